/** A call to several agents at once. */

import type { CallError } from "../errors.js";
import type { CallEvent, CallSpec, Payload } from "../session/types.js";
import { Asked, typed, Unread, type Reply } from "./calls.js";
import type { Driver } from "./driver.js";
import { fromPayload } from "./payload.js";

/** One agent's part of a fan-out: its reply, or its own failure. */
export type Part<T> = { target: string } & ({ ok: true; reply: Reply<T> } | { ok: false; error: CallError });

/** What comes of a fan-out while it goes on: an agent's part, or a piece of one. */
export type FanOutItem<T, C = unknown> = ({ is: "part" } & Part<T>) | { is: "chunk"; target: string; chunk: C };

/** How many agents it went to, and what became of it there. */
export interface Summary {
  targets: number;
  completed: number;
  failed: number;
}

/** All answers of a fan-out. */
export interface FanOut<T> {
  /** Each agent's part, in the order they came. */
  parts: Part<T>[];
  summary: Summary;
}

type Item<T> = { part: Part<T> } | { target: string; payload: Payload };

/** A fan-out under way: `await` gives all parts, `for await` each part, and each piece where a window was given. */
export class PendingFanOut<T, C = unknown> extends Asked<unknown> implements PromiseLike<FanOut<T>> {
  readonly #unread = new Unread<Item<T>>();
  readonly #parts: Part<T>[] = [];
  readonly #taken = new Map<string, number>();

  readonly #window: number | undefined;

  constructor(driver: Driver, spec: CallSpec, window: number | undefined, signal?: AbortSignal) {
    super(driver, spec, signal);
    this.#window = window;
  }

  /** @internal */
  protected override onPiece(event: CallEvent): void {
    if (event.is === "part") {
      const end = typed<T>(event.end);
      const target = event.target ?? "";
      const part: Part<T> =
        "error" in end ? { target, ok: false, error: end.error } : { target, ok: true, reply: end.reply };
      this.#parts.push(part);
      this.#unread.push({ part }, undefined);
    } else if (event.is === "chunk") {
      const fits = this.#unread.push({ target: event.target ?? "", payload: event.payload }, event.payload);
      if (!fits) this.cancel();
    }
  }

  /** Waits for all parts. @throws CallError when the whole failed; one agent's failure is its own. */
  then<A = FanOut<T>, B = never>(
    ok?: ((value: FanOut<T>) => A | PromiseLike<A>) | null,
    fail?: ((error: CallError) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#all().then(ok, fail);
  }

  async #all(): Promise<FanOut<T>> {
    const end = await this.until(() => this.ended);
    if ("error" in end) throw end.error;
    const { targets = 0, completed = 0, failed = 0 } = end.summary ?? {};
    return {
      parts: this.#parts,
      summary: { targets: Number(targets), completed: Number(completed), failed: Number(failed) },
    };
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<FanOutItem<T, C>, void> {
    try {
      for (;;) {
        const item = await this.until(() => this.#unread.shift() ?? this.ended);
        if ("part" in item) {
          yield { is: "part", ...item.part };
        } else if ("payload" in item) {
          this.#grant(item.target);
          yield { is: "chunk", target: item.target, chunk: fromPayload(item.payload) as C };
        } else if ("error" in item) {
          throw item.error;
        } else {
          return;
        }
      }
    } finally {
      this.cancel();
    }
  }

  #grant(target: string): void {
    const n = (this.#taken.get(target) ?? 0) + 1;
    const isDue = n * 2 >= (this.#window ?? 1);
    if (isDue) this.driver.handle({ is: "consumed", key: this.key, n, target });
    this.#taken.set(target, isDue ? 0 : n);
  }
}
