/** Writing MessagePack, always in the shortest form. */

import { BODY_DEPTH_MAX } from "../limits.js";
import { EncodeError } from "./errors.js";
import { Ext, Timestamp } from "./types.js";

const utf8 = new TextEncoder();
const I64_MIN = -(2n ** 63n);
const U64_MAX = 2n ** 64n - 1n;
/** The buffer shrinks back to this after a large message, so that one of them does not stay for ever. */
const ROOM_BYTES = 64 * 1024;

/** Bytes being written. One is reused for message after message; what `take` gives is a copy of exact size. */
export class Writer {
  #bytes = new Uint8Array(ROOM_BYTES);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;

  /** Forgets what was written. */
  reset(): void {
    if (this.#bytes.length > ROOM_BYTES) {
      this.#bytes = new Uint8Array(ROOM_BYTES);
      this.#view = new DataView(this.#bytes.buffer);
    }
    this.#at = 0;
  }

  /** What was written. */
  take(): Uint8Array {
    const taken = this.#bytes.slice(0, this.#at);
    this.reset();
    return taken;
  }

  #room(n: number): void {
    const need = this.#at + n;
    if (need <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(need, this.#bytes.length * 2));
    grown.set(this.#bytes.subarray(0, this.#at));
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }

  #u8(n: number): void {
    this.#bytes[this.#at++] = n;
  }

  #u16(first: number, n: number): void {
    this.#bytes[this.#at] = first;
    this.#view.setUint16(this.#at + 1, n);
    this.#at += 3;
  }

  #u32(first: number, n: number): void {
    this.#bytes[this.#at] = first;
    this.#view.setUint32(this.#at + 1, n);
    this.#at += 5;
  }

  #u64(first: number, n: bigint): void {
    this.#bytes[this.#at] = first;
    this.#view.setBigUint64(this.#at + 1, BigInt.asUintN(64, n));
    this.#at += 9;
  }

  nil(): void {
    this.#room(1);
    this.#u8(0xc0);
  }

  bool(value: boolean): void {
    this.#room(1);
    this.#u8(value ? 0xc3 : 0xc2);
  }

  float(x: number): void {
    this.#room(9);
    this.#u8(0xcb);
    this.#view.setFloat64(this.#at, x);
    this.#at += 8;
  }

  /** A whole number: a safe integer, or a bigint from -2^63 to 2^64-1. */
  int(n: number | bigint): void {
    this.#room(9);
    if (typeof n === "bigint") {
      if (n >= Number.MIN_SAFE_INTEGER && n <= Number.MAX_SAFE_INTEGER) this.#smallInt(Number(n));
      else if (n < I64_MIN || n > U64_MAX) throw new EncodeError(`${n.toString()} is beyond 64 bits`);
      else this.#u64(n < 0n ? 0xd3 : 0xcf, n);
    } else if (Number.isSafeInteger(n)) {
      this.#smallInt(n);
    } else {
      throw new EncodeError(`${n} is no exact integer`);
    }
  }

  #smallInt(n: number): void {
    if (n >= 0x1_0000_0000 || n < -0x8000_0000) this.#u64(n < 0 ? 0xd3 : 0xcf, BigInt(n));
    else if (n >= 0) this.#length(n, 0, 0x7f, 0xcc, 0xcd);
    else if (n >= -32) this.#u8(n & 0xff);
    else if (n >= -0x80) {
      this.#u8(0xd0);
      this.#u8(n & 0xff);
    } else if (n >= -0x8000) this.#u16(0xd1, n);
    else this.#u32(0xd2, n);
  }

  str(text: string): void {
    const length = text.length;
    this.#room(5 + length * 3);
    if (length < 48 && this.#ascii(text, length)) return;
    const start = this.#at;
    // Room for the longest head first; what it does not need is closed by moving the text once.
    const { written } = utf8.encodeInto(text, this.#bytes.subarray(start + 5));
    if (written > length && !isWellFormed(text)) throw new EncodeError("half a surrogate pair is no text");
    this.#length(written, 0xa0, 31, 0xd9, 0xda);
    this.#bytes.copyWithin(this.#at, start + 5, start + 5 + written);
    this.#at += written;
  }

  /** Writes a short text that is ASCII alone; false, with nothing written, when it is not. */
  #ascii(text: string, length: number): boolean {
    const start = this.#at;
    this.#length(length, 0xa0, 31, 0xd9, 0xda);
    const bytes = this.#bytes;
    let at = this.#at;
    for (let i = 0; i < length; i++) {
      const code = text.charCodeAt(i);
      if (code > 0x7f) {
        this.#at = start;
        return false;
      }
      bytes[at++] = code;
    }
    this.#at = at;
    return true;
  }

  /** A number from 0, or a head with such a length: `fix` up to `most`, then 8 bits where there is such a form, 16, 32. */
  #length(n: number, fix: number, most: number, first8: number, first16: number): void {
    if (n <= most) this.#u8(fix | n);
    else if (first8 !== 0 && n < 0x100) {
      this.#u8(first8);
      this.#u8(n);
    } else if (n < 0x10000) this.#u16(first16, n);
    else this.#u32(first16 + 1, n);
  }

  bin(bytes: Uint8Array): void {
    this.#room(5 + bytes.length);
    this.#length(bytes.length, 0, -1, 0xc4, 0xc5);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  /** The head of an array. */
  array(n: number): void {
    this.#room(5);
    this.#length(n, 0x90, 15, 0, 0xdc);
  }

  /** The head of a map; `n` keys with their values follow. */
  map(n: number): void {
    this.#room(5);
    this.#length(n, 0x80, 15, 0, 0xde);
  }

  /** What is MessagePack already. */
  raw(bytes: Uint8Array): void {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  ext(type: number, data: Uint8Array): void {
    const n = data.length;
    this.#room(6 + n);
    const fixed = [1, 2, 4, 8, 16].indexOf(n);
    if (fixed >= 0) this.#u8(0xd4 + fixed);
    else this.#length(n, 0, -1, 0xc7, 0xc8);
    this.#u8(type & 0xff);
    this.#bytes.set(data, this.#at);
    this.#at += n;
  }

  #timestamp(date: Date): void {
    const [seconds, nanoseconds] = partsOf(date);
    const data = new DataView(new ArrayBuffer(12));
    if (seconds >= 0n && seconds < 2n ** 34n) {
      if (nanoseconds === 0 && seconds < 2n ** 32n) {
        data.setUint32(0, Number(seconds));
        return this.ext(-1, new Uint8Array(data.buffer, 0, 4));
      }
      data.setBigUint64(0, (BigInt(nanoseconds) << 34n) | seconds);
      return this.ext(-1, new Uint8Array(data.buffer, 0, 8));
    }
    data.setUint32(0, nanoseconds);
    data.setBigInt64(4, seconds);
    this.ext(-1, new Uint8Array(data.buffer));
  }

  /**
   * Any value: see {@link encode}.
   *
   * @throws EncodeError for what MessagePack has no form for.
   */
  value(value: unknown, depth = BODY_DEPTH_MAX): void {
    switch (typeof value) {
      case "string":
        return this.str(value);
      case "number":
        // -0 has no integer form.
        return Number.isSafeInteger(value) && !Object.is(value, -0) ? this.int(value) : this.float(value);
      case "boolean":
        return this.bool(value);
      case "bigint":
        return this.int(value);
      case "undefined":
        return this.nil();
      case "object":
        if (value === null) return this.nil();
        if (depth === 0) throw new EncodeError(`nested deeper than ${BODY_DEPTH_MAX}, or a circle`);
        return this.#object(value, depth - 1);
      default:
        throw new EncodeError(`a ${typeof value} cannot be written`);
    }
  }

  #object(value: object, depth: number): void {
    if (Array.isArray(value)) {
      this.array(value.length);
      for (const item of value) this.value(item, depth);
    } else if (value instanceof Uint8Array) {
      this.bin(value);
    } else if (ArrayBuffer.isView(value)) {
      this.bin(new Uint8Array(value.buffer, value.byteOffset, value.byteLength));
    } else if (value instanceof ArrayBuffer) {
      this.bin(new Uint8Array(value));
    } else if (value instanceof Date) {
      this.#timestamp(value);
    } else if (value instanceof Map) {
      this.map(value.size);
      for (const [key, item] of value) {
        this.value(key, depth);
        this.value(item, depth);
      }
    } else if (value instanceof Ext) {
      this.ext(value.type, value.data);
    } else if (value instanceof Set) {
      throw new EncodeError("a Set cannot be written");
    } else if ("toJSON" in value && typeof value.toJSON === "function") {
      this.value((value.toJSON as () => unknown)(), depth);
    } else {
      this.#record(value as Record<string, unknown>, depth);
    }
  }

  #record(value: Record<string, unknown>, depth: number): void {
    const keys = Object.keys(value);
    let n = 0;
    for (const key of keys) if (value[key] !== undefined) n += 1;
    this.map(n);
    for (const key of keys) {
      const item = value[key];
      if (item === undefined) continue;
      this.str(key);
      this.value(item, depth);
    }
  }
}

function partsOf(date: Date): [bigint, number] {
  if (date instanceof Timestamp) return [date.seconds, date.nanoseconds];
  const ms = date.getTime();
  if (Number.isNaN(ms)) throw new EncodeError("an invalid Date cannot be written");
  const seconds = Math.floor(ms / 1000);
  return [BigInt(seconds), (ms - seconds * 1000) * 1e6];
}

/** Bytes of a text as UTF-8. */
export function utf8Length(text: string): number {
  return utf8.encode(text).length;
}

function isWellFormed(text: string): boolean {
  return !/\p{Surrogate}/u.test(text);
}

const shared = new Writer();

/**
 * Writes one value as MessagePack. Safe integers and bigints become integers, other numbers floats; `Uint8Array`, other
 * views and `ArrayBuffer` bytes; `Date` a timestamp; `Map` and plain objects maps. A key whose value is `undefined` is
 * left out. An object with `toJSON` is written as what that gives.
 *
 * @throws EncodeError for functions, symbols, `Set`, bigints beyond 64 bits, text with half a surrogate pair, and what
 * is nested deeper than 512.
 */
export function encode(value: unknown): Uint8Array {
  shared.reset();
  shared.value(value);
  return shared.take();
}
