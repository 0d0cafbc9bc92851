/** Which of several windows of one login this page is: each is an agent of its own, `NAME/WINDOW`. */

const KEY = "agent-reach-window";
/** Longest agent_id, in letters: names have none that takes two bytes. */
const LONGEST = 128;

function made(): string {
  return Array.from(crypto.getRandomValues(new Uint8Array(5)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What the browser keeps for this window alone, in which it may have been told to keep nothing. */
function storage(): Storage | undefined {
  try {
    return sessionStorage;
  } catch {
    return undefined;
  }
}

/**
 * The window's name, taken out of what the browser keeps for as long as the page is there: a window that is duplicated
 * begins with a copy of that, and has to be another one. A page that is loaded again finds what it left behind.
 */
function take(): string {
  const kept = storage()?.getItem(KEY);
  storage()?.removeItem(KEY);
  return kept ?? made();
}

let own: string | undefined;

function name(): string {
  if (own !== undefined) return own;
  const taken = take();
  addEventListener("pagehide", () => storage()?.setItem(KEY, taken));
  addEventListener("pageshow", (event) => {
    if (event.persisted) storage()?.removeItem(KEY);
  });
  own = taken;
  return taken;
}

/** The agent that this window is, of a token that has the agent_id. Where that leaves no room, all windows are one. */
export function windowOf(agentId: string): string {
  const id = `${agentId}/${name()}`;
  return id.length > LONGEST ? agentId : id;
}
