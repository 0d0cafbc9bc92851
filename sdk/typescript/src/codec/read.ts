/** Reading MessagePack: a cursor over bytes that are not trusted. */

import { BODY_DEPTH_MAX, HEADER_DEPTH_MAX, HEADER_KEYS_MAX } from "../limits.js";
import { ReadError } from "./errors.js";
import { Ext, Timestamp } from "./types.js";

/** What kind of value a head begins. */
export const enum Tag {
  Nil,
  Bool,
  UInt,
  /** A negative integer. */
  Int,
  Float,
  Str,
  /** A str whose bytes are not UTF-8. */
  NotUtf8,
  Bin,
  Array,
  Map,
  Ext,
}

/** One key of a header's map: its value where that is a scalar, and where its bytes stand. */
export interface Entry {
  key: string;
  tag: Tag;
  /** Of a scalar; of bytes a view into the message. `undefined` of a container. */
  value: unknown;
  start: number;
  end: number;
}

const NOT_UTF8 = "text that is not UTF-8";
const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** A position in bytes. Nothing is believed of a length before its bytes are there. */
export class Reader {
  /** Of the last head: what it begins, */
  tag: Tag = Tag.Nil;
  /** its scalar, */
  scalar: unknown = null;
  /** and its length in bytes, items or pairs. */
  size = 0;
  at = 0;
  readonly #view: DataView;

  readonly bytes: Uint8Array;

  constructor(bytes: Uint8Array) {
    // A Node `Buffer` is a Uint8Array whose `slice` is no copy.
    const isPlain = bytes.constructor === Uint8Array;
    this.bytes = isPlain ? bytes : new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Passes over so many bytes, and gives where they began. */
  take(n: number): number {
    const start = this.at;
    // Not at + n > length: a length of 32 bits cannot overflow here, but the rule is to compare with what is left.
    if (n > this.bytes.length - start) throw new ReadError("it ends inside a value");
    this.at = start + n;
    return start;
  }

  /** An unsigned integer of 8, 16 or 32 bits: `width` 0, 1 or 2. */
  #length(width: number): number {
    const start = this.take(1 << width);
    return width === 0 ? this.bytes[start]! : width === 1 ? this.#view.getUint16(start) : this.#view.getUint32(start);
  }

  #unsigned(n: number | bigint): void {
    this.tag = Tag.UInt;
    this.scalar = typeof n === "bigint" && n <= Number.MAX_SAFE_INTEGER ? Number(n) : n;
  }

  #signed(n: number | bigint): void {
    if (n >= 0) return this.#unsigned(n);
    this.tag = Tag.Int;
    this.scalar = typeof n === "bigint" && n >= Number.MIN_SAFE_INTEGER ? Number(n) : n;
  }

  #float(x: number): void {
    this.tag = Tag.Float;
    this.scalar = x;
  }

  #sized(tag: Tag, n: number): void {
    this.tag = tag;
    this.size = n;
    this.scalar = undefined;
  }

  /** Reads the head of the next value, without what follows it. */
  head(): void {
    const first = this.bytes[this.take(1)]!;
    if (first < 0x80) {
      this.tag = Tag.UInt;
      this.scalar = first;
    } else if (first < 0x90) this.#sized(Tag.Map, first & 0x0f);
    else if (first < 0xa0) this.#sized(Tag.Array, first & 0x0f);
    else if (first < 0xc0) this.#sized(Tag.Str, first & 0x1f);
    else if (first >= 0xe0) this.#signed(first - 256);
    else this.#longHead(first);
  }

  #longHead(first: number): void {
    switch (first) {
      case 0xc0:
        this.#sized(Tag.Nil, 0);
        this.scalar = null;
        return;
      case 0xc2:
      case 0xc3:
        this.tag = Tag.Bool;
        this.scalar = first === 0xc3;
        return;
      case 0xc4:
      case 0xc5:
      case 0xc6:
        return this.#sized(Tag.Bin, this.#length(first - 0xc4));
      case 0xc7:
      case 0xc8:
      case 0xc9:
        return this.#sized(Tag.Ext, this.#length(first - 0xc7));
      case 0xca:
        return this.#float(this.#view.getFloat32(this.take(4)));
      case 0xcb:
        return this.#float(this.#view.getFloat64(this.take(8)));
      case 0xcc:
      case 0xcd:
      case 0xce:
        return this.#unsigned(this.#length(first - 0xcc));
      case 0xcf:
        return this.#unsigned(this.#view.getBigUint64(this.take(8)));
      case 0xd0:
        return this.#signed(this.#view.getInt8(this.take(1)));
      case 0xd1:
        return this.#signed(this.#view.getInt16(this.take(2)));
      case 0xd2:
        return this.#signed(this.#view.getInt32(this.take(4)));
      case 0xd3:
        return this.#signed(this.#view.getBigInt64(this.take(8)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.#sized(Tag.Str, this.#length(first - 0xd9));
      case 0xdc:
      case 0xdd:
        return this.#sized(Tag.Array, this.#length(first - 0xdb));
      case 0xde:
      case 0xdf:
        return this.#sized(Tag.Map, this.#length(first - 0xdd));
      case 0xc1:
        throw new ReadError("0xc1 is no MessagePack");
      default:
        return this.#sized(Tag.Ext, 1 << (first - 0xd4));
    }
  }

  /** Text of so many bytes; `undefined` when they are not UTF-8. */
  #text(n: number): string | undefined {
    const start = this.take(n);
    const bytes = this.bytes;
    if (n < 32) {
      let text = "";
      let i = start;
      for (; i < this.at; i++) {
        const byte = bytes[i]!;
        if (byte > 0x7f) break;
        text += String.fromCharCode(byte);
      }
      if (i === this.at) return text;
    }
    try {
      return utf8.decode(bytes.subarray(start, this.at));
    } catch {
      return undefined;
    }
  }

  /** Reads the next value of a header and checks all inside it; leaves `tag` and `scalar` of it behind. */
  checked(depth: number): void {
    this.head();
    switch (this.tag) {
      case Tag.Str: {
        const text = this.#text(this.size);
        if (text === undefined) this.tag = Tag.NotUtf8;
        this.scalar = text;
        return;
      }
      case Tag.Bin: {
        const start = this.take(this.size);
        this.scalar = this.bytes.subarray(start, this.at);
        return;
      }
      case Tag.Ext:
        this.take(1 + this.size);
        return;
      case Tag.Array: {
        if (depth === 0) throw new ReadError("nested deeper than 32");
        for (let n = this.size; n > 0; n--) this.checked(depth - 1);
        this.#sized(Tag.Array, 0);
        return;
      }
      case Tag.Map:
        this.#pairs(depth);
        this.#sized(Tag.Map, 0);
        return;
      default:
    }
  }

  /** The entries of a header's map, which takes one level of `depth`. */
  entries(depth = HEADER_DEPTH_MAX): Entry[] {
    this.head();
    if (this.tag !== Tag.Map) throw new ReadError("a header is a map");
    return this.#pairs(depth);
  }

  /** The pairs of a map whose head was read. */
  #pairs(depth: number): Entry[] {
    if (depth === 0) throw new ReadError("nested deeper than 32");
    const n = this.size;
    if (n > HEADER_KEYS_MAX) throw new ReadError(`a map has more than ${HEADER_KEYS_MAX} keys`);
    const entries: Entry[] = [];
    for (let i = 0; i < n; i++) {
      this.head();
      const key = this.tag === Tag.Str ? this.#text(this.size) : undefined;
      if (key === undefined) throw new ReadError("a key is no string");
      const start = this.at;
      this.checked(depth - 1);
      entries.push({ key, tag: this.tag, value: this.scalar, start, end: this.at });
    }
    if (hasRepeatedKey(entries)) throw new ReadError("a key is repeated");
    return entries;
  }

  /** The next item of a list whose head was read and whose bytes were checked. */
  item(): Entry {
    const start = this.at;
    this.checked(HEADER_DEPTH_MAX);
    return { key: "", tag: this.tag, value: this.scalar, start, end: this.at };
  }

  /** Passes over the next value, whatever it holds and however deep it is: without recursion. False: text in it is
   * not UTF-8. */
  skip(): boolean {
    let valid = true;
    for (let left = 1; left > 0; left--) {
      this.head();
      if (this.tag === Tag.Str) valid = this.#text(this.size) !== undefined && valid;
      else if (this.tag === Tag.Bin) this.take(this.size);
      else if (this.tag === Tag.Ext) this.take(1 + this.size);
      else if (this.tag === Tag.Array) left += this.size;
      else if (this.tag === Tag.Map) left += 2 * this.size;
    }
    return valid;
  }

  /** The next value, as JavaScript has it: see {@link decode}. */
  value(depth = BODY_DEPTH_MAX): unknown {
    this.head();
    return this.#rest(depth);
  }

  /** What follows a head that was read. */
  #rest(depth: number): unknown {
    switch (this.tag) {
      case Tag.Str: {
        const text = this.#text(this.size);
        if (text === undefined) throw new ReadError(NOT_UTF8);
        return text;
      }
      case Tag.Bin: {
        const start = this.take(this.size);
        // A copy: a view would keep the whole message in memory, and be changed by who changes it.
        return this.bytes.slice(start, this.at);
      }
      case Tag.Ext: {
        const type = this.#view.getInt8(this.take(1));
        const start = this.take(this.size);
        return extension(type, this.bytes.slice(start, this.at));
      }
      case Tag.Array: {
        if (depth === 0) throw new ReadError(`nested deeper than ${BODY_DEPTH_MAX}`);
        const items: unknown[] = [];
        for (let n = this.size; n > 0; n--) items.push(this.value(depth - 1));
        return items;
      }
      case Tag.Map:
        if (depth === 0) throw new ReadError(`nested deeper than ${BODY_DEPTH_MAX}`);
        return this.#record(this.size, depth - 1);
      default:
        return this.scalar;
    }
  }

  /** A map: an object as long as its keys are texts, else a `Map`. */
  #record(n: number, depth: number): unknown {
    const record: Record<string, unknown> = {};
    for (let i = 0; i < n; i++) {
      this.head();
      // What was read is kept: to read it a second time at each level would cost 2^depth.
      if (this.tag !== Tag.Str) return this.#map(new Map(Object.entries(record)), n - i, depth);
      const key = this.#text(this.size);
      if (key === undefined) throw new ReadError(NOT_UTF8);
      const value = this.value(depth);
      if (key === "__proto__") {
        // An assignment would change what the object inherits.
        Object.defineProperty(record, key, { value, enumerable: true, configurable: true, writable: true });
      } else {
        record[key] = value;
      }
    }
    return record;
  }

  /** The `left` last pairs of a map, of which the head of the first key was read. */
  #map(map: Map<unknown, unknown>, left: number, depth: number): Map<unknown, unknown> {
    for (let i = 0; i < left; i++) {
      if (i > 0) this.head();
      const key = this.#rest(depth);
      map.set(key, this.value(depth));
    }
    return map;
  }
}

function hasRepeatedKey(entries: Entry[]): boolean {
  if (entries.length > 24) return new Set(entries.map((entry) => entry.key)).size < entries.length;
  for (let i = 1; i < entries.length; i++) {
    const key = entries[i]!.key;
    for (let j = 0; j < i; j++) if (entries[j]!.key === key) return true;
  }
  return false;
}

function extension(type: number, data: Uint8Array): unknown {
  if (type !== -1) return new Ext(type, data);
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (data.length === 4) return moment(BigInt(view.getUint32(0)), 0);
  if (data.length === 8) {
    const word = view.getBigUint64(0);
    return moment(word & (2n ** 34n - 1n), Number(word >> 34n));
  }
  if (data.length === 12) return moment(view.getBigInt64(4), view.getUint32(0));
  return new Ext(type, data);
}

function moment(seconds: bigint, nanoseconds: number): Date {
  const ms = Number(seconds) * 1000 + nanoseconds / 1e6;
  const fits = nanoseconds % 1e6 === 0 && nanoseconds < 1e9 && Math.abs(ms) <= 8.64e15;
  return fits ? new Date(ms) : new Timestamp(seconds, nanoseconds);
}

/**
 * Reads one MessagePack value that fills `bytes`. Integers beyond 2^53 become `bigint`, exactly; bytes `Uint8Array`; a
 * timestamp `Date`, or {@link Timestamp} where that would lose something; other extensions {@link Ext}; a map an
 * object, or a `Map` when one of its keys is no text.
 *
 * @throws ReadError when it is no MessagePack, has text that is not UTF-8, or is nested deeper than 512.
 */
export function decode(bytes: Uint8Array): unknown {
  const reader = new Reader(bytes);
  const value = reader.value();
  if (reader.at !== bytes.length) throw new ReadError("bytes follow");
  return value;
}
