/** The provider's side: what is offered, and what a handler sees of its call. */

import { encode } from "../codec/index.js";
import { ConnectError, HandlerError } from "../errors.js";
import type { Mode, Priority } from "../frames/index.js";
import { pairs, type Input, type Invocation, type Offer, type Outcome, type Payload } from "../session/types.js";
import type { Agent } from "./agent.js";
import { fromPayload, toPayload } from "./payload.js";
import { isZod, schemaOf, type Schema } from "./schema.js";

/** What the header of a CHUNK may take of a message, at most. */
const CHUNK_HEADER_BYTES = 512;

/** What an agent says of a capability. */
export interface CapabilityOptions<I = unknown, O = unknown> {
  /** Semantic version, which callers can ask for. */
  version?: string;
  /** For people. */
  description?: string;
  /** What it takes: a plain JSON Schema, which the hub checks, or a Zod one, which is checked here as well. */
  input?: Schema<I>;
  /** What it answers. A Zod one converts and checks the result. */
  output?: Schema<O>;
  /** Processing time of calls that name none, in milliseconds; with 20 % grace the most that any call gets. */
  timeoutMs?: number;
  /** Most calls a second. */
  qpsLimit?: number;
  /** Most handlers of it at once; further calls wait in the agent. Default: only the agent's own bound. */
  maxConcurrency?: number;
  /** Whether running one intent twice is harmless: then a call whose provider was lost is tried again. Default false. */
  idempotent?: boolean;
  labels?: Record<string, string>;
  /** Further names that it answers to. */
  aliases?: string[];
}

/** What a handler gives: a result; or a generator, whose pieces are streamed and whose return value is the result. */
export type Handled<O> = O | Promise<O> | AsyncGenerator<unknown, O> | Generator<unknown, O>;
/** A handler of one capability. */
export type Handler<I = unknown, O = unknown> = (ctx: Context<I>) => Handled<O>;

/** A name in its canonical form. @throws ConnectError `config` for one outside the grammar. */
export function nameOf(name: string): string {
  const folded = name.replace(/[A-Z_]/g, (c) => (c === "_" ? "-" : c.toLowerCase()));
  const wrong = (what: string): ConnectError =>
    new ConnectError("config", `capability name ${JSON.stringify(name)} ${what}`);
  if (folded.length > 128) throw wrong("has more than 128 bytes");
  if (!/^[a-z0-9-]+(\.[a-z0-9-]+)*$/.test(folded)) {
    throw wrong("must be words of a-z, 0-9 and - joined by dots");
  }
  if (folded === "hub" || folded.startsWith("hub.")) throw wrong("belongs to the hub");
  return folded;
}

/** What goes to the hub of a capability. */
export function offerOf(name: string, options: CapabilityOptions): Offer {
  const schema = (own: Schema | undefined, io: "input" | "output"): Uint8Array | undefined =>
    own === undefined ? undefined : encode(schemaOf(own, io));
  const header = {
    name: nameOf(name),
    version: options.version,
    description: options.description,
    input_schema: schema(options.input, "input"),
    output_schema: schema(options.output, "output"),
    timeout_ms: options.timeoutMs,
    qps_limit: options.qpsLimit,
    idempotent: options.idempotent,
    labels: pairs(options.labels),
    aliases: options.aliases?.map(nameOf),
  };
  return { header, most: options.maxConcurrency };
}

/** What a handler knows of the call it serves. */
export class Context<I = unknown> {
  /** The body of the call, as the capability's schema has it. */
  readonly input: I;
  /** The agent that this handler belongs to, for calls of its own. */
  readonly agent: Agent;
  /** Who asks: the caller's `agentId`. */
  readonly caller: string;
  /** The capability as this agent registered it. */
  readonly capability: string;
  /** One business intent: the same for every try of one call. */
  readonly requestId: string;
  /** Hub-wide id of the call, for logs and traces. */
  readonly callId: string;
  /** What the caller waits for. */
  readonly mode: Mode;
  /** The caller's urgency. */
  readonly priority: Priority;
  /** W3C Trace Context of the caller. */
  readonly traceparent: string | undefined;
  /** W3C Trace Context of the caller. */
  readonly tracestate: string | undefined;
  /** Of a task. */
  readonly taskId: string | undefined;
  /** Of a body that is no MessagePack: `input` has its bytes then. */
  readonly contentType: string | undefined;
  /** When the caller gives up, as far as was known when the call came: milliseconds of `performance.now()`. */
  readonly deadline: number;
  #made: AbortController | undefined;

  /** @internal */
  readonly #run: Run;

  constructor(run: Run, input: unknown) {
    this.#run = run;
    this.input = input as I;
    this.agent = run.agent;
    const { header } = run.call;
    this.caller = header.caller;
    this.capability = header.capability;
    this.requestId = header.request_id;
    this.callId = header.call_id;
    this.mode = header.mode;
    this.priority = header.priority;
    this.traceparent = header.traceparent;
    this.tracestate = header.tracestate;
    this.taskId = header.task_id;
    this.contentType = header.content_type;
    this.deadline = run.agent.environment.now() + Number(header.deadline_ms);
  }

  /** Which try this is, from 1. */
  get attempt(): number {
    return Number(this.#run.call.header.attempt);
  }

  /** Milliseconds that are left of the deadline. */
  get remainingMs(): number {
    return Math.max(this.deadline - this.agent.environment.now(), 0);
  }

  /** The processing time that the caller would like, in milliseconds; see {@link Context.wouldTake}. */
  get preferredTimeoutMs(): number | undefined {
    const ms = this.#run.call.header.preferred_timeout_ms;
    return ms === undefined ? undefined : Number(ms);
  }

  /** The caller's preferred labels. */
  get labels(): Record<string, string> {
    return Object.fromEntries(this.#run.call.header.labels ?? []);
  }

  /** A private key of the caller, which begins with `x-`. */
  private(key: string): unknown {
    const found = this.#run.call.header.private?.find(([own]) => own === key);
    return found === undefined ? undefined : fromPayload({ bytes: found[1] });
  }

  /** Whether the caller takes the result in pieces. Not so of a task, whose pieces are progress. */
  get wantsStream(): boolean {
    return this.#run.call.header.stream && this.taskId === undefined;
  }

  /** Whether nobody waits any more. */
  get isCancelled(): boolean {
    return this.#run.isCancelled;
  }

  /** Aborted when nobody waits any more. A handler that takes no notice has 5 s before its call is answered without it. */
  get signal(): AbortSignal {
    // Few handlers look at it, and it is dear to make.
    this.#made ??= new AbortController();
    if (this.#run.isCancelled) this.#abort();
    else this.#run.onCancel = () => this.#abort();
    return this.#made.signal;
  }

  #abort(): void {
    this.#made?.abort(new HandlerError("cancelled", "the call is cancelled"));
  }

  /**
   * Sends one piece of a streamed result; waits until the caller takes more. Does nothing when the caller takes no pieces;
   * in a task it is {@link Context.progress}.
   *
   * @throws HandlerError `cancelled` when nobody waits any more, `too-large` when it is more than one message holds.
   */
  async emit(piece: unknown): Promise<void> {
    if (!this.wantsStream) {
      this.progress(piece);
      return;
    }
    const payload = this.#run.piece(piece);
    if (!this.#run.takeCredit()) await this.#run.waitForCredit();
    this.#run.emit(payload);
  }

  /**
   * Says how far a task is, in whatever form those who watch it understand. To the hub it is a sign of life: a task that
   * goes without one for twice its processing time counts as orphaned. Never waits: while the hub is away, or slow, what is
   * said is left out. Does nothing where the call is no task, or where who submitted it did not ask for it.
   *
   * @throws HandlerError `cancelled` when the task was cancelled.
   */
  progress(value: unknown): void {
    if (!this.#run.call.header.stream || this.taskId === undefined) return;
    const payload = this.#run.piece(value);
    if (this.#run.takeCredit()) this.#run.emit(payload);
  }

  /** Says how long this will take from now, in milliseconds. A caller that would like it sooner is told so. */
  wouldTake(ms: number): void {
    this.#run.wouldTake(ms);
  }
}

/** What a handler says while it runs. */
type Said = Extract<Input, { is: "emit" | "wouldTake" }>;

/** One handler under way. */
export class Run {
  isCancelled = false;
  onCancel: (() => void) | undefined;
  #credit: number;
  #waiters: { resolve: () => void; reject: (error: Error) => void }[] = [];
  /** Of a handler that is a generator: ends it. */
  #endGenerator: (() => void) | undefined;
  readonly #tell: (input: Said) => void;
  readonly #maxMessage: () => number;

  constructor(
    readonly agent: Agent,
    readonly call: Invocation,
    tell: (input: Said) => void,
    maxMessage: () => number,
  ) {
    this.#tell = tell;
    this.#maxMessage = maxMessage;
    this.#credit = call.credit;
  }

  /** Runs the handler; `done` gets its end. */
  start(handler: Handler, options: CapabilityOptions, done: (outcome: Outcome) => void): void {
    const fail = (error: unknown): void => done(outcomeOf(error));
    const complete = (value: unknown): void => {
      try {
        done({ payload: toPayload(checked(options.output, value)) });
      } catch (error) {
        fail(error);
      }
    };
    try {
      const out = handler(new Context(this, this.#read(options)));
      if (isGenerator(out)) this.#drain(out).then(complete, fail);
      else if (isThenable(out)) out.then(complete, fail);
      else complete(out);
    } catch (error) {
      fail(error);
    }
  }

  /** The body, as the capability's schema has it. */
  #read(options: CapabilityOptions): unknown {
    let value: unknown;
    try {
      value = fromPayload(this.call.payload);
    } catch (error) {
      throw new HandlerError("invalid_request", `the body cannot be read: ${(error as Error).message}`);
    }
    if (!isZod(options.input)) return value;
    const parsed = options.input.safeParse(value);
    if (parsed.success) return parsed.data;
    const text = `the body is not what this takes: ${parsed.error.message}`;
    throw new HandlerError("invalid_request", text, { details: { issues: plain(parsed.error.issues) } });
  }

  async #drain(generator: AsyncGenerator | Generator): Promise<unknown> {
    const ctx = new Context(this, undefined);
    this.#endGenerator = () => {
      // Its `finally` runs as soon as it gives its next piece, or at once where it waits for room.
      void Promise.resolve(generator.return(undefined)).catch(() => {});
    };
    for (;;) {
      const next: IteratorResult<unknown, unknown> = await generator.next();
      if (next.done === true) return next.value;
      try {
        await ctx.emit(next.value);
      } catch (error) {
        await generator.return(undefined);
        throw error;
      }
    }
  }

  piece(value: unknown): Payload {
    const payload = toPayload(value);
    const limit = this.#maxMessage();
    if (payload.bytes.length + CHUNK_HEADER_BYTES > limit) {
      throw new HandlerError(
        "too-large",
        `the piece has ${payload.bytes.length} bytes, the hub takes messages of ${limit}`,
      );
    }
    return payload;
  }

  takeCredit(): boolean {
    if (this.isCancelled) throw cancelled();
    if (this.#credit === 0 || this.#waiters.length > 0) return false;
    this.#credit -= 1;
    return true;
  }

  waitForCredit(): Promise<void> {
    return new Promise((resolve, reject) => this.#waiters.push({ resolve, reject }));
  }

  grant(n: number): void {
    this.#credit += n;
    while (this.#credit > 0 && this.#waiters.length > 0) {
      this.#credit -= 1;
      this.#waiters.shift()!.resolve();
    }
  }

  emit(payload: Payload): void {
    if (this.isCancelled) throw cancelled();
    this.#tell({ is: "emit", run: this.call.run, payload });
  }

  wouldTake(ms: number): void {
    this.#tell({ is: "wouldTake", run: this.call.run, ms });
  }

  /** Nobody waits any more. */
  cancel(): void {
    if (this.isCancelled) return;
    this.isCancelled = true;
    for (const { reject } of this.#waiters.splice(0)) reject(cancelled());
    this.onCancel?.();
    this.#endGenerator?.();
  }
}

function cancelled(): HandlerError {
  return new HandlerError("cancelled", "the call is cancelled");
}

function checked(schema: Schema | undefined, value: unknown): unknown {
  if (!isZod(schema)) return value;
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  throw new HandlerError("output", `the result is not what this promises: ${parsed.error.message}`);
}

/** Details must be writable, whatever a library puts into them. */
function plain(value: unknown): unknown {
  return value === undefined ? undefined : (JSON.parse(JSON.stringify(value)) as unknown);
}

/** What a thrown error says to the caller. */
function outcomeOf(error: unknown): Outcome {
  const own =
    error instanceof HandlerError
      ? error
      : new HandlerError("error", error instanceof Error ? error.message : String(error));
  const code = own.wireCode;
  const value = own.details ?? (code === "handler_error" ? { code: own.code, message: own.message } : undefined);
  let details: Uint8Array | undefined;
  try {
    details = value === undefined ? undefined : encode(value);
  } catch {
    details = undefined;
  }
  return { failure: { code, message: own.message, retryable: own.retryable, details } };
}

function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof value === "object" && value !== null && typeof (value as PromiseLike<unknown>).then === "function";
}

function isGenerator(value: unknown): value is AsyncGenerator | Generator {
  if (typeof value !== "object" || value === null || !("next" in value) || !("return" in value)) return false;
  return Symbol.asyncIterator in value || Symbol.iterator in value;
}
