/** A queue whose both ends cost the same: an array's `shift` would move all the rest. */
export class Queue<T> {
  #items: T[] = [];
  #head = 0;

  get length(): number {
    return this.#items.length - this.#head;
  }

  push(item: T): void {
    this.#items.push(item);
  }

  peek(): T | undefined {
    return this.#items[this.#head];
  }

  shift(): T | undefined {
    if (this.#head === this.#items.length) return undefined;
    const item = this.#items[this.#head];
    this.#items[this.#head++] = undefined as T;
    if (this.#head > 32 && this.#head * 2 > this.#items.length) {
      this.#items = this.#items.slice(this.#head);
      this.#head = 0;
    }
    return item;
  }

  /** Takes out the first that fits; false when none does. */
  remove(fits: (item: T) => boolean): T | undefined {
    for (let i = this.#head; i < this.#items.length; i++) {
      if (fits(this.#items[i]!)) return this.#items.splice(i, 1)[0];
    }
    return undefined;
  }

  /** Where the first that fits stands; -1 when none does. */
  indexOf(item: T): number {
    const at = this.#items.indexOf(item, this.#head);
    return at < 0 ? -1 : at - this.#head;
  }

  clear(): void {
    this.#items = [];
    this.#head = 0;
  }
}
