/** Who waits for something to happen. */
export class Waiters {
  /** Few things have more than one. */
  #waiters: (() => void)[] = [];

  /** Something happened. */
  wake(): void {
    if (this.#waiters.length === 0) return;
    const waiters = this.#waiters;
    this.#waiters = [];
    for (const waiter of waiters) waiter();
  }

  /** Resolves with what `look` finds, as soon as it finds something. */
  until<T>(look: () => T | undefined): Promise<T> {
    return new Promise((resolve) => {
      const tryNow = (): void => {
        const found = look();
        if (found === undefined) this.#waiters.push(tryNow);
        else resolve(found);
      };
      tryNow();
    });
  }
}
