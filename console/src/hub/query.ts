import { CallError } from "@agent-reach/client";
import { useEffect, useRef, useState } from "preact/hooks";

import { link } from "./link.ts";

/** What a question to the hub has come to. */
export type Answer<T> =
  | { is: "loading" }
  | { is: "ok"; value: T }
  | { is: "failed"; error: CallError; /** What was known before. */ value?: T };

/** What a failure says, whatever it is. */
export function failure(error: unknown): CallError {
  return error instanceof CallError ? error : new CallError("internal", String(error));
}

/**
 * Asks the hub when the page is shown, when what is asked changes, when the connection comes back, and again every so
 * often. `body` undefined: nothing is asked.
 */
export function useQuery<T>(capability: string, body: object | undefined, every?: number): [Answer<T>, () => void] {
  const [answer, setAnswer] = useState<Answer<T>>({ is: "loading" });
  const [round, setRound] = useState(0);
  const isLive = link.phase.value.is === "live";
  const key = JSON.stringify(body);
  const last = useRef(key);
  useEffect(() => {
    if (key !== last.current) setAnswer({ is: "loading" });
    last.current = key;
    if (!isLive || body === undefined) return;
    let wanted = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const ask = async (): Promise<void> => {
      try {
        const value = await link.call<T>(capability, body, { budgetMs: 10_000 });
        if (wanted) setAnswer({ is: "ok", value });
      } catch (error) {
        const known = (before: Answer<T>): Answer<T> => ({
          is: "failed",
          error: failure(error),
          ...("value" in before && before.value !== undefined ? { value: before.value } : {}),
        });
        if (wanted) setAnswer(known);
      }
      if (wanted && every !== undefined) timer = setTimeout(() => void again(), every);
    };
    // A hidden page asks nothing.
    const again = async (): Promise<void> => {
      if (!document.hidden) await ask();
      else timer = setTimeout(() => void again(), every);
    };
    void ask();
    return () => {
      wanted = false;
      clearTimeout(timer);
    };
  }, [capability, key, isLive, round, every]);
  return [answer, () => setRound((before) => before + 1)];
}
