/** Something that a test waits for. */
export function signalled(): { promise: Promise<void>; now: () => void } {
  let now = (): void => {};
  const promise = new Promise<void>((resolve) => (now = resolve));
  return { promise, now };
}
