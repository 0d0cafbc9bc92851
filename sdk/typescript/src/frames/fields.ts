/** The types that header fields have: how each is read, bounded and written. */

import { Reader, Tag, utf8Length, type Entry, type Writer } from "../codec/index.js";
import { ID_BYTES_MAX, LABELS_MAX, LIST_MAX, PRIVATE_BYTES_MAX, PRIVATE_KEYS_MAX, WORD_BYTES_MAX } from "../limits.js";

/** Labels and the like, in the order of the wire. */
export type Pairs = readonly (readonly [string, string])[];
/** An unsigned integer: `bigint` only beyond 2^53. */
export type Uint = number | bigint;

/** What is wrong with one key of a header. */
export class FieldError extends Error {
  override readonly name = "FieldError";
  constructor(
    /** Path of the key, dots between levels: `load.cpu`. */
    readonly field: string,
    /** What was expected and what came. */
    readonly text: string,
  ) {
    super(`${field} ${text}`);
  }

  /** The same with the key of the level above in front. */
  under(key: string): FieldError {
    return new FieldError(this.field === "" ? key : `${key}.${this.field}`, this.text);
  }
}

/** A type that a header field can have. */
export interface FieldType {
  /** Reads the value of a key that is there; the error's field is relative to the key. */
  readonly read: (reader: Reader, entry: Entry) => unknown;
  readonly write: (out: Writer, value: never) => void;
  /** What an absent key reads as; without one the key has to be there. */
  absent?: { value: unknown };
  /** Whether a value says only its default, so that it is not written. */
  readonly isDefault?: (value: never) => boolean;
}

/** Reads the value of a key; an error names the key. */
export function readAt(type: FieldType, reader: Reader, entry: Entry): unknown {
  try {
    return type.read(reader, entry);
  } catch (error) {
    throw error instanceof FieldError ? error.under(entry.key) : error;
  }
}

function wrong(text: string): FieldError {
  return new FieldError("", text);
}

function expected(what: string): FieldError {
  return wrong(`must be ${what}`);
}

function within(n: number, least: number, most: number): void {
  if (n < least || n > most) throw wrong(`has length ${n}; ${least} to ${most} are allowed`);
}

/** Reads the value of a key once more. */
function inside(reader: Reader, entry: Entry): Reader {
  const again = new Reader(reader.bytes);
  again.at = entry.start;
  return again;
}

function writeText(out: Writer, text: string): void {
  out.str(text);
}

function writeFloat(out: Writer, x: number): void {
  out.float(x);
}

/** Bytes of a text that was read, by its head. */
function textBytes(reader: Reader, entry: Entry): number {
  const first = reader.bytes[entry.start]!;
  const head = first < 0xc0 ? 1 : first === 0xd9 ? 2 : first === 0xda ? 3 : 5;
  return entry.end - entry.start - head;
}

export const uint: FieldType = {
  read(_, entry) {
    if (entry.tag !== Tag.UInt) throw expected("an unsigned integer");
    return entry.value;
  },
  write: (out, value: Uint) => out.int(value),
};

function finite(entry: Entry): number {
  const value = entry.value;
  if (entry.tag === Tag.Float && Number.isFinite(value)) return value as number;
  // A whole `cpu: 1` is how many encoders write 1.0.
  if (entry.tag === Tag.UInt && (value as Uint) <= 0xffff_ffff) return Number(value);
  throw expected("a finite number");
}

export const number: FieldType = {
  read: (_, entry) => finite(entry),
  write: writeFloat,
};

export const share: FieldType = {
  read(_, entry) {
    const value = finite(entry);
    if (value < 0 || value > 1) throw expected("between 0 and 1");
    return value;
  },
  write: writeFloat,
};

export const percent: FieldType = {
  read(reader, entry) {
    const value = uint.read(reader, entry) as Uint;
    if (value > 100) throw expected("between 0 and 100");
    return value;
  },
  write: uint.write,
};

export const bool: FieldType = {
  read(_, entry) {
    if (entry.tag !== Tag.Bool) throw expected("a boolean");
    return entry.value;
  },
  write: (out, value: boolean) => out.bool(value),
  absent: { value: false },
  isDefault: (value: boolean) => !value,
};

export function str(least = 0, most = Infinity): FieldType {
  return {
    read(reader, entry) {
      if (entry.tag !== Tag.Str) throw expected("a string");
      within(textBytes(reader, entry), least, most);
      return entry.value;
    },
    write: writeText,
  };
}

/** Any value, kept as its bytes. */
export function raw(most: number): FieldType {
  return {
    read(reader, entry) {
      if (!inside(reader, entry).skip()) throw wrong("holds a string that is not UTF-8");
      within(entry.end - entry.start, 0, most);
      return reader.bytes.slice(entry.start, entry.end);
    },
    write: (out, value: Uint8Array) => out.raw(value),
  };
}

/** One word of a fixed set. */
export function word(...words: string[]): FieldType {
  return {
    read(_, entry) {
      if (entry.tag === Tag.Str && words.includes(entry.value as string)) return entry.value;
      throw expected(`one of ${words.join(" ")}`);
    },
    write: writeText,
  };
}

export const select: FieldType = {
  read(_, { tag, value }) {
    if (tag === Tag.UInt && (value as Uint) >= 1) return value;
    if (tag === Tag.Str && (value === "one" || value === "all")) return value;
    throw expected('"one", "all" or an integer from 1');
  },
  write: (out, value: string | Uint) => (typeof value === "string" ? out.str(value) : out.int(value)),
};

/** An absent list or map is empty, and an empty one is not written. */
const EMPTY = { absent: { value: [] }, isDefault: (value: readonly unknown[]) => value.length === 0 };

/** A list. An absent one is empty, and an empty one is not written. */
export function list(item: FieldType, least = 0, most = LIST_MAX): FieldType {
  return {
    read(reader, entry) {
      if (entry.tag !== Tag.Array) throw expected("an array");
      const again = inside(reader, entry);
      again.head();
      const n = again.size;
      if (n > LIST_MAX) throw wrong(`has more than ${LIST_MAX} items`);
      const items: unknown[] = [];
      for (let i = 0; i < n; i++) items.push(item.read(again, again.item()));
      within(n, least, most);
      return items;
    },
    write(out, value: unknown[]) {
      out.array(value.length);
      for (const one of value) item.write(out, one as never);
    },
    ...EMPTY,
  };
}

/** The entries of a map that was checked already. */
export function entriesOf(reader: Reader, entry: Entry, what: string): Entry[] {
  if (entry.tag !== Tag.Map) throw expected(what);
  return inside(reader, entry).entries();
}

/** Writes pairs as a map. */
function mapOf<T>(write: (out: Writer, value: T) => void): (out: Writer, value: readonly (readonly [string, T])[]) => void {
  return (out, value) => {
    out.map(value.length);
    for (const [key, one] of value) {
      out.str(key);
      write(out, one);
    }
  };
}

export const labels: FieldType = {
  read(reader, entry) {
    const entries = entriesOf(reader, entry, "a map of strings");
    if (entries.length > LABELS_MAX) throw wrong(`has more than ${LABELS_MAX} labels`);
    return entries.map((label) => {
      const text = readAt(str(), reader, label);
      const bytes = utf8Length(label.key);
      if (bytes === 0 || bytes > WORD_BYTES_MAX || textBytes(reader, label) > WORD_BYTES_MAX) {
        throw wrong("has a key or value of wrong length");
      }
      return [label.key, text];
    });
  },
  write: mapOf(writeText),
  ...EMPTY,
};

export const levels: FieldType = {
  read(reader, entry) {
    return entriesOf(reader, entry, "a map of numbers").map((level) => {
      if (utf8Length(level.key) > ID_BYTES_MAX) {
        throw wrong("has a key of wrong length");
      }
      return [level.key, readAt(share, reader, level)];
    });
  },
  write: mapOf(writeFloat),
  ...EMPTY,
};

/** The private keys (`x-…`) of a header, with their encoded values. */
export type Private = readonly (readonly [string, Uint8Array])[];

const anything = raw(Infinity);

export function readPrivate(reader: Reader, entries: Entry[]): Private | undefined {
  let picked: [string, Uint8Array][] | undefined;
  let bytes = 0;
  for (const entry of entries) {
    if (entry.key.charCodeAt(0) !== 0x78 || !entry.key.startsWith("x-")) continue;
    const value = readAt(anything, reader, entry) as Uint8Array;
    bytes += utf8Length(entry.key) + value.length;
    (picked ??= []).push([entry.key, value]);
  }
  if (picked !== undefined && (picked.length > PRIVATE_KEYS_MAX || bytes > PRIVATE_BYTES_MAX)) {
    throw new FieldError("x-", "keys are too many or too large");
  }
  return picked;
}
