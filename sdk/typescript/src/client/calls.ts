/** What a caller holds of its call. */

import { CallError } from "../errors.js";
import { Queue } from "../session/queue.js";
import type { Acceptance, CallEvent, CallKey, CallSpec, End, Payload, Reply as RawReply } from "../session/types.js";
import type { CallSink, Driver } from "./driver.js";
import { fromPayload } from "./payload.js";
import { Waiters } from "./waiters.js";

/** How a call ended, and how it got there. */
export type Reply<T> = RawReply<T> & {
  /** Of a body that is no MessagePack. */
  contentType?: string | undefined;
};

/** An end with its body as a value. */
export type TypedEnd<T> = { reply: Reply<T> } | { error: CallError };

/** Reads the body of an end. */
export function typed<T>(end: End): TypedEnd<T> {
  if ("error" in end) return end;
  const { reply } = end;
  try {
    const { contentType } = reply.body;
    return { reply: { ...reply, body: fromPayload(reply.body) as T, contentType } };
  } catch (error) {
    const { requestId, callId, target, attempts } = reply;
    const fields = { accepted: "yes" as const, requestId, callId, target, attempts };
    return { error: new CallError("decode", `the result cannot be read: ${(error as Error).message}`, fields) };
  }
}

/** What calls have in common: one end, phase one, and a way to let go. */
export abstract class Asked<T> implements CallSink {
  protected readonly key: CallKey;
  protected acceptance: Acceptance | undefined;
  #end: End | undefined;
  #typedEnd: TypedEnd<T> | undefined;
  readonly #waiters = new Waiters();
  #unlisten: (() => void) | undefined;

  constructor(
    protected readonly driver: Driver,
    spec: CallSpec,
    signal?: AbortSignal,
  ) {
    if (signal?.aborted === true) {
      this.key = -1;
      this.#end = { error: new CallError("cancelled", "aborted before it was sent", { accepted: "no" }) };
      return;
    }
    this.key = driver.register(this);
    if (signal !== undefined) {
      const abort = (): void => this.cancel();
      signal.addEventListener("abort", abort, { once: true });
      this.#unlisten = () => signal.removeEventListener("abort", abort);
    }
    driver.handle({ is: "open", key: this.key, spec });
  }

  /** @internal */
  onEvent(event: CallEvent): void {
    if (event.is === "accepted")
      this.acceptance = this.acceptance?.wouldTimeout === true ? this.acceptance : event.acceptance;
    else if (event.is === "ended") this.#finish(event.end);
    else this.onPiece(event);
    this.#waiters.wake();
  }

  /** A chunk, or one target's part. */
  protected onPiece(_: CallEvent): void {}

  #finish(end: End): void {
    if (this.#end !== undefined) return;
    this.#end = end;
    this.#unlisten?.();
  }

  /** Resolves with what `look` finds, as soon as it finds something. */
  protected until<U>(look: () => U | undefined): Promise<U> {
    return this.#waiters.until(look);
  }

  protected get ended(): End | undefined {
    return this.#end;
  }

  protected typed(): TypedEnd<T> | undefined {
    return (this.#typedEnd ??= this.#end === undefined ? undefined : typed<T>(this.#end));
  }

  /**
   * Waits for phase one: the first ACCEPT. `undefined` when a result came without one.
   *
   * @throws CallError when the call failed before.
   */
  async accepted(): Promise<Acceptance | undefined> {
    const end = await this.until(() => this.acceptance ?? this.#end);
    if ("error" in end) throw end.error;
    return this.acceptance;
  }

  /** Waits until the provider says that it will miss `preferredTimeoutMs`; `undefined` when the call ends without that. */
  async wouldTimeout(): Promise<Acceptance | undefined> {
    await this.until(() => (this.acceptance?.wouldTimeout === true ? true : this.#end));
    return this.acceptance?.wouldTimeout === true ? this.acceptance : undefined;
  }

  /** Nobody wants it any more: it fails with `cancelled` at once, and its handler is told. */
  cancel(): void {
    if (this.#end === undefined) this.driver.handle({ is: "cancel", key: this.key });
  }

  /** Asks the provider to stop, and leaves the end to it: `cancelled`, or a result that was there before. */
  withdraw(): void {
    if (this.#end === undefined) this.driver.handle({ is: "withdraw", key: this.key });
  }
}

/** A call under way: `await` gives its result. */
export class PendingCall<T> extends Asked<T> implements PromiseLike<T> {
  #promise: Promise<T> | undefined;

  /** Waits for the result. @throws CallError */
  then<A = T, B = never>(
    ok?: ((value: T) => A | PromiseLike<A>) | null,
    fail?: ((error: CallError) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    // Made when somebody waits: a call that nobody waits for must not end the process with an unhandled rejection.
    this.#promise ??= this.reply().then(({ body }) => body);
    return this.#promise.then(ok, fail);
  }

  /** As `catch` of a promise. */
  catch<B>(fail: (error: CallError) => B | PromiseLike<B>): Promise<T | B> {
    return this.then(undefined, fail);
  }

  /** As `finally` of a promise. */
  finally(done: () => void): Promise<T> {
    return this.then().finally(done);
  }

  /** Waits for the result, with how it got there. @throws CallError */
  async reply(): Promise<Reply<T>> {
    const end = await this.until(() => this.typed());
    if ("error" in end) throw end.error;
    return end.reply;
  }
}

/** Most bytes that wait for one reader. A hub that keeps to the credit stays far below it. */
const UNREAD_BYTES = 64 * 1024 * 1024;

/** Pieces that came and were not taken, with the credit that goes back for those that are. */
export class Unread<I> {
  readonly #items = new Queue<{ item: I; bytes: number }>();
  #bytes = 0;

  /** False: more waits than is allowed. */
  push(item: I, payload: Payload | undefined): boolean {
    const bytes = (payload?.bytes.length ?? 0) + 64;
    this.#bytes += bytes;
    this.#items.push({ item, bytes });
    return this.#bytes <= UNREAD_BYTES;
  }

  shift(): I | undefined {
    const first = this.#items.shift();
    this.#bytes -= first?.bytes ?? 0;
    return first?.item;
  }
}

/**
 * A call whose result comes in pieces: `for await` gives each, and throws when the stream broke. Leaving the loop early
 * cancels the call.
 */
export class CallStream<C, R> extends Asked<R> implements AsyncIterableIterator<C> {
  readonly #unread = new Unread<Payload>();
  #taken = 0;

  readonly #window: number;

  constructor(driver: Driver, spec: CallSpec, window: number, signal?: AbortSignal) {
    super(driver, spec, signal);
    this.#window = window;
  }

  /** @internal */
  protected override onPiece(event: CallEvent): void {
    // Events come while the base class still makes this object only if the call ends at once, and those are no pieces.
    if (event.is !== "chunk" || this.ended !== undefined) return;
    if (!this.#unread.push(event.payload, event.payload)) this.#overflow();
  }

  #overflow(): void {
    this.onEvent({
      is: "ended",
      end: { error: new CallError("overloaded", "more waits to be read than is allowed", { accepted: "yes" }) },
    });
    this.driver.handle({ is: "cancel", key: this.key });
  }

  /** The next piece. */
  async next(): Promise<IteratorResult<C, undefined>> {
    const payload = await this.until(() => this.#unread.shift() ?? this.ended);
    if ("error" in payload) throw payload.error;
    if ("reply" in payload) return { done: true, value: undefined };
    this.#taken += 1;
    // Half a window at a time: an envelope for each piece would cost as much as the piece.
    if (this.#taken * 2 >= this.#window) {
      this.driver.handle({ is: "consumed", key: this.key, n: this.#taken, target: undefined });
      this.#taken = 0;
    }
    return { done: false, value: this.#read(payload) };
  }

  #read(payload: Payload): C {
    try {
      return fromPayload(payload) as C;
    } catch (error) {
      this.cancel();
      throw new CallError("decode", `a piece cannot be read: ${(error as Error).message}`, { accepted: "yes" });
    }
  }

  /** Leaves the stream. */
  return(): Promise<IteratorResult<C, undefined>> {
    this.cancel();
    return Promise.resolve({ done: true, value: undefined });
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  /** Waits for the result after the last piece; pieces that were not taken hold it up once a window of them waits. */
  async result(): Promise<R> {
    return (await this.reply()).body;
  }

  /** The same, with how it got there. @throws CallError */
  async reply(): Promise<Reply<R>> {
    const end = await this.until(() => this.typed());
    if ("error" in end) throw end.error;
    return end.reply;
  }
}
