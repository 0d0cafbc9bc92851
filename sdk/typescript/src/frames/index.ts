/** Whole messages: an envelope `[kind, header, body]` around a header. */

import { Reader, ReadError, Tag, Writer, type Entry } from "../codec/index.js";
import { KEEP_MS_MADE } from "../limits.js";
import { FieldError, type Uint } from "./fields.js";
import * as headers from "./headers.js";
import type { Table } from "./table.js";

export { FieldError, type Pairs, type Private, type Uint } from "./fields.js";
export type * from "./headers.js";

/** Kinds of envelopes, with their numbers on the wire. */
export const enum Kind {
  Hello = 1,
  Welcome = 2,
  Update = 3,
  Goodbye = 4,
  Error = 5,
  Call = 10,
  Accept = 11,
  Chunk = 12,
  Credit = 13,
  Result = 14,
  Cancel = 15,
  Receipt = 16,
}

/** Headers of what both sides send alike. */
interface Both {
  [Kind.Goodbye]: headers.Goodbye;
  [Kind.Accept]: headers.Accept;
  [Kind.Chunk]: headers.Chunk;
  [Kind.Credit]: headers.Credit;
  [Kind.Result]: headers.Result;
  [Kind.Cancel]: headers.Cancel;
}
/** Headers of what an agent sends, by kind. */
export interface ToHub extends Both {
  [Kind.Hello]: headers.Hello;
  [Kind.Update]: headers.Update;
  [Kind.Call]: headers.Call;
  [Kind.Receipt]: headers.Receipt;
}
/** Headers of what the hub sends, by kind. */
export interface ToAgent extends Both {
  [Kind.Welcome]: headers.Welcome;
  [Kind.Error]: headers.ErrorReply;
  [Kind.Call]: headers.Dispatch;
}

type Frame<Headers> = {
  [K in keyof Headers]: { kind: K; header: Headers[K]; body: Uint8Array | undefined };
}[keyof Headers];
/** A message of an agent, read. */
export type FrameToHub = Frame<ToHub>;
/** A message of the hub, read. */
export type FrameToAgent = Frame<ToAgent>;

const both = {
  [Kind.Goodbye]: headers.goodbye,
  [Kind.Accept]: headers.accept,
  [Kind.Chunk]: headers.chunk,
  [Kind.Credit]: headers.credit,
  [Kind.Result]: headers.result,
  [Kind.Cancel]: headers.cancel,
};
const toHub: Record<number, Table<unknown>> = {
  ...both,
  [Kind.Hello]: headers.hello,
  [Kind.Update]: headers.update,
  [Kind.Call]: headers.call,
  [Kind.Receipt]: headers.receipt,
};
const toAgent: Record<number, Table<unknown>> = {
  ...both,
  [Kind.Welcome]: headers.welcome,
  [Kind.Error]: headers.errorReply,
  [Kind.Call]: headers.dispatch,
};

/** Why a message could not be read, sorted by what it costs: see docs/protocol.md, "What is refused". */
export class FrameError extends Error {
  override readonly name = "FrameError";
  constructor(
    readonly reason: "untrusted" | "malformed" | "unknown_kind" | "wrong_direction",
    message: string,
    readonly kind?: Uint,
    /** Of the envelope, if it has a usable one. */
    readonly id?: Uint,
    /** Of `malformed`: which key. */
    readonly field?: string,
  ) {
    super(message);
  }
}

const out = new Writer();

function encode(table: Table<unknown>, kind: number, header: unknown, body: Uint8Array | undefined): Uint8Array {
  out.reset();
  out.array(3);
  out.int(kind);
  table.write(out, header);
  if (body === undefined) out.nil();
  else out.bin(body);
  return out.take();
}

/** Writes a message of an agent. */
export function encodeToHub<K extends keyof ToHub>(kind: K, header: ToHub[K], body?: Uint8Array): Uint8Array {
  return encode(toHub[kind], kind, header, body);
}

/** Writes a message of the hub. */
export function encodeToAgent<K extends keyof ToAgent>(kind: K, header: ToAgent[K], body?: Uint8Array): Uint8Array {
  return encode(toAgent[kind], kind, header, body);
}

/** Parts of a CALL that are the same in every one: `[10, {id: …, request_id: …, keep_ms: 600000, capability: …}, body]`. */
const PLAIN = {
  head: pack((w) => {
    w.array(3);
    w.int(Kind.Call);
    w.map(4);
    w.str("id");
  }),
  requestId: pack((w) => w.str("request_id")),
};
const plainNames = new Map<string, Uint8Array>();
/** Names that are kept written; a program that makes up names must not fill memory with them. */
const PLAIN_NAMES_MAX = 1024;

function pack(write: (out: Writer) => unknown): Uint8Array {
  const own = new Writer();
  write(own);
  return own.take();
}

/** Writes a CALL that says nothing but the id that the SDK made, and its capability: most of them. */
export function encodePlainCall(id: Uint, requestId: string, capability: string, body?: Uint8Array): Uint8Array {
  let rest = plainNames.get(capability);
  if (rest === undefined) {
    rest = pack((w) => {
      w.str("keep_ms");
      w.int(KEEP_MS_MADE);
      w.str("capability");
      w.str(capability);
    });
    if (plainNames.size < PLAIN_NAMES_MAX) plainNames.set(capability, rest);
  }
  out.reset();
  out.raw(PLAIN.head);
  out.int(id);
  out.raw(PLAIN.requestId);
  out.str(requestId);
  out.raw(rest);
  if (body === undefined) out.nil();
  else out.bin(body);
  return out.take();
}

/** Reads a message of an agent. @throws FrameError */
export function decodeToHub(message: Uint8Array): FrameToHub {
  return decode(message, toHub) as FrameToHub;
}

/** Reads a message of the hub. @throws FrameError */
export function decodeToAgent(message: Uint8Array): FrameToAgent {
  return decode(message, toAgent) as FrameToAgent;
}

interface Parts {
  kind: Uint;
  entries: Entry[];
  body: Uint8Array | undefined;
  /** The body is neither bytes nor nil. */
  isBodyWrong: boolean;
}

function decode(message: Uint8Array, tables: Record<number, Table<unknown>>): unknown {
  const reader = new Reader(message);
  const { kind, entries, body, isBodyWrong } = trusted(reader);
  if (!(Number(kind) in toHub) && !(Number(kind) in toAgent)) {
    throw new FrameError("unknown_kind", `kind ${kind.toString()} is not known`, kind, idOf(entries));
  }
  try {
    if (isBodyWrong) throw new FieldError("body", "must be bytes or nil");
    const table = tables[kind as number];
    if (table === undefined) {
      throw new FrameError("wrong_direction", "not sent in this direction", kind);
    }
    return { kind, header: table.from(reader, entries), body };
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    throw new FrameError("malformed", error.message, kind, idOf(entries), error.field);
  }
}

function idOf(entries: Entry[]): Uint | undefined {
  const entry = entries.find(({ key, tag }) => key === "id" && tag === Tag.UInt);
  return entry?.value as Uint | undefined;
}

function trusted(reader: Reader): Parts {
  try {
    return split(reader);
  } catch (error) {
    if (error instanceof ReadError) throw new FrameError("untrusted", error.message);
    throw error;
  }
}

function headOf(reader: Reader, tag: Tag): boolean {
  reader.head();
  return reader.tag === tag;
}

/** The parts of a message: the header's entries checked for trust, and not yet for sense. */
function split(reader: Reader): Parts {
  const parts = headOf(reader, Tag.Array) ? reader.size : 0;
  if (parts < 2 || parts > 3) {
    throw new ReadError("no [kind, header, body]");
  }
  if (!headOf(reader, Tag.UInt)) throw new ReadError("a kind is an unsigned integer");
  const kind = reader.scalar as Uint;
  const entries = reader.entries();
  let body: Uint8Array | undefined;
  let isBodyWrong = false;
  if (parts === 3) {
    const start = reader.at;
    reader.head();
    if (reader.tag === Tag.Bin) {
      const at = reader.take(reader.size);
      body = reader.bytes.subarray(at, reader.at);
    } else if (reader.tag !== Tag.Nil) {
      isBodyWrong = true;
      // The rules of headers do not hold inside a body; it is passed over to know where the message ends.
      reader.at = start;
      reader.skip();
    }
  }
  if (reader.at !== reader.bytes.length) throw new ReadError("bytes follow");
  return { kind, entries, body, isBodyWrong };
}
