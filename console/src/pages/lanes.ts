import { triesOf } from "../state/traces.ts";
import type { Step } from "../state/views.ts";
import { micros } from "../ui/format.ts";

/** The hub's names of steps, in words. */
export const STEPS: Record<string, string> = {
  routed: "Routed",
  waits: "Waits in line",
  given: "Given",
  accepted: "Accepted",
  first_chunk: "First piece",
  answered: "Answered",
  retry_in: "Tries again later",
  from_cache: "An older result is used",
  cancel_asked: "Cancelled by the caller",
  cancel_sent: "Cancellation passed on",
  target_away: "Agent lost",
  caller_away: "Caller lost",
  joined: "Asked again, and joined",
  ended: "Ended",
};

/** One stretch of a lane, in microseconds since the CALL. */
export interface Part {
  from: number;
  to: number;
  kind: string;
  says: string;
}

/** What one try, or the hub, was at. */
export interface Lane {
  name: string;
  note: string;
  parts: Part[];
}

/** What a call's steps come to: a lane for the hub, and one for each try. */
export function lanesOf(steps: Step[]): { lanes: Lane[]; total: number } {
  const total = Math.max(1, ...steps.map((step) => step.at_us));
  const hub: Part[] = [];
  steps.forEach(({ step, at_us: from, reason }, at) => {
    if (step !== "waits" && step !== "retry_in") return;
    const next = steps.slice(at + 1).find((one) => one.step === "given" || one.step === "ended");
    const says = `${STEPS[step] ?? step} ${reason ?? ""}: ${micros((next?.at_us ?? total) - from)}`;
    hub.push({ from, to: next?.at_us ?? total, kind: "waits", says });
  });
  const lanes: Lane[] = triesOf(steps).map((one) => {
    const end = one.answered ?? total;
    const parts: Part[] = [];
    const { accepted, given } = one;
    const isHeard = accepted !== undefined || one.firstChunk !== undefined || one.answered !== undefined;
    if (accepted !== undefined || !isHeard)
      parts.push({ from: given, to: accepted ?? end, kind: "accept", says: `until accepted: ${micros((accepted ?? end) - given)}` });
    const began = accepted ?? given;
    if (isHeard) parts.push({ from: began, to: end, kind: "process", says: `at work: ${micros(end - began)}` });
    if (one.firstChunk !== undefined)
      parts.push({ from: one.firstChunk, to: one.firstChunk, kind: "chunk", says: `first piece at ${micros(one.firstChunk)}` });
    return { name: one.target, note: `try ${one.attempt}${one.outcome === undefined ? "" : ` · ${one.outcome}`}`, parts };
  });
  if (hub.length > 0) lanes.unshift({ name: "hub", note: "waiting", parts: hub });
  return { lanes, total };
}
