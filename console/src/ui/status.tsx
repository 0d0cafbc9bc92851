import type { ComponentChildren, JSX } from "preact";

/** What a colour stands for. A shape goes with each, and the word itself. */
export type Tone = "good" | "warn" | "bad" | "idle" | "busy";

const SHAPES: Record<Tone, JSX.Element> = {
  good: <circle cx="5" cy="5" r="4" />,
  warn: <path d="M5 .8 9.4 9H.6Z" />,
  bad: <path d="M1 1h8v8H1Z" />,
  idle: <circle cx="5" cy="5" r="3.3" class="hollow" />,
  busy: <path d="M5 .5 9.5 5 5 9.5.5 5Z" />,
};

/** A word with its shape. */
export function Mark({ tone, children }: { tone: Tone; children: ComponentChildren }): JSX.Element {
  return (
    <span class={`mark ${tone}`}>
      <svg viewBox="0 0 10 10" aria-hidden="true">
        {SHAPES[tone]}
      </svg>
      {children}
    </span>
  );
}

const AGENT: Record<string, Tone> = { ready: "good", degraded: "warn", draining: "busy", suspect: "bad", away: "idle" };
const TASK: Record<string, Tone> = {
  QUEUED: "idle",
  RECEIVED: "busy",
  PROCESSING: "busy",
  SUCCEEDED: "good",
  FAILED: "bad",
};

/** The tone of an agent's status. */
export const toneOf = (status: string): Tone => AGENT[status] ?? "idle";

export function AgentStatus({ status }: { status: string }): JSX.Element {
  return <Mark tone={toneOf(status)}>{status}</Mark>;
}

export function TaskState({ state }: { state: string }): JSX.Element {
  return <Mark tone={TASK[state] ?? "idle"}>{state.toLowerCase()}</Mark>;
}

/** How a call ended, or that it has not. */
export function Outcome({ outcome, state }: { outcome: string | undefined; state?: string }): JSX.Element {
  if (outcome === undefined) return <Mark tone="busy">{state ?? "open"}</Mark>;
  return <Mark tone={outcome === "completed" ? "good" : "bad"}>{outcome}</Mark>;
}
