import { pause } from "./pause.ts";
import { link, world } from "./link.ts";
import { touch } from "../state/frame.ts";
import type { AgentView } from "../state/views.ts";

/** Agents in one page of the list, and the pause between two. */
const PAGE = 250;
const BETWEEN_MS = 400;
/** The pause between two rounds. */
const ROUND_MS = 1500;

interface Page {
  agents: AgentView[];
  more?: boolean;
}

/**
 * Brings newer figures of all agents, page by page, while somebody looks at them: heartbeats change load and latency and
 * are no events. Ends when the signal says so.
 */
export async function sweep(signal: AbortSignal): Promise<void> {
  let after: string | undefined;
  for (;;) {
    let isLast = true;
    if (!document.hidden && link.phase.value.is === "live") {
      try {
        const body = { limit: PAGE, ...(after === undefined ? {} : { after }) };
        const page = await link.call<Page>("hub.agents.list", body, { budgetMs: 10_000 });
        world.agents.refresh(page.agents, Date.now());
        touch("agents");
        const last = page.agents.at(-1)?.agent_id;
        isLast = page.more !== true || last === undefined || last === after;
        after = isLast ? undefined : last;
      } catch {
        // Lost or refused: the page says so elsewhere, and the next round asks again.
        after = undefined;
      }
    }
    if (!(await pause(isLast ? ROUND_MS : BETWEEN_MS, signal))) return;
  }
}
