/** Waits so long; false at once when the signal says that nobody waits any more. */
export function pause(ms: number, signal: AbortSignal): Promise<boolean> {
  if (signal.aborted) return Promise.resolve(false);
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      resolve(false);
    };
    const timer = setTimeout(() => {
      signal.removeEventListener("abort", end);
      resolve(true);
    }, ms);
    signal.addEventListener("abort", end, { once: true });
  });
}
