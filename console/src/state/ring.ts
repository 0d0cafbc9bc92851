/** The newest of many things: a list that forgets its oldest. */
export class Ring<T> {
  readonly #items: T[] = [];
  #next = 0;

  /** @param capacity how many are kept at most. */
  constructor(readonly capacity: number) {}

  /** Takes one in; gives the one that is forgotten for it. */
  push(item: T): T | undefined {
    const forgotten = this.#items[this.#next];
    this.#items[this.#next] = item;
    this.#next = (this.#next + 1) % this.capacity;
    return forgotten;
  }

  get length(): number {
    return this.#items.length;
  }

  clear(): void {
    this.#items.length = 0;
    this.#next = 0;
  }

  /** From the newest to the oldest. */
  *[Symbol.iterator](): IterableIterator<T> {
    const { length } = this.#items;
    for (let back = 1; back <= length; back += 1) yield this.#items[(this.#next - back + length * 2) % length]!;
  }
}
