/** Values as the JSON edge of the hub shows them: the notation of the golden vectors. */

import { Ext, Timestamp } from "../../src/codec/index.js";

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

function time(seconds: bigint, nanoseconds: number): string {
  const whole = new Date(Number(seconds) * 1000).toISOString().slice(0, 19);
  const fraction = nanoseconds === 0 ? "" : "." + String(nanoseconds).padStart(9, "0").replace(/0+$/, "");
  return `${whole}${fraction}Z`;
}

/** What the vectors write for a decoded value. */
export function edge(value: unknown): unknown {
  // 2^53 itself stands bare in the vectors, and is exact as a number.
  if (value === 2n ** 53n || value === -(2n ** 53n)) return Number(value);
  if (typeof value === "bigint") return { $int: value.toString() };
  if (typeof value === "number" && !Number.isFinite(value)) return null;
  if (value instanceof Uint8Array) return { $bin: base64(value) };
  if (value instanceof Timestamp) return { $time: time(value.seconds, value.nanoseconds) };
  if (value instanceof Date) {
    const seconds = Math.floor(value.getTime() / 1000);
    return { $time: time(BigInt(seconds), (value.getTime() - seconds * 1000) * 1e6) };
  }
  if (value instanceof Ext) return { $ext: [value.type, base64(value.data)] };
  if (Array.isArray(value)) return value.map(edge);
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, item]) => [keyText(key), edge(item)]));
  if (typeof value === "object" && value !== null) {
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, edge(item)]));
  }
  return value;
}

function keyText(key: unknown): string {
  return typeof key === "string" ? key : JSON.stringify(edge(key));
}
