/** The golden vectors of the protocol. */

import { readdirSync, readFileSync } from "node:fs";

/** One vector: see protocol/vectors/README.md. */
export interface Vector {
  id: string;
  direction: "to_hub" | "to_agent";
  bytes_hex?: string;
  bytes_parts?: [string, number][];
  value?: [number, Record<string, unknown>, unknown];
  canonical?: boolean;
  reads_as?: string;
  error?: { class: string; kind?: number; field?: string; id?: number };
  note?: string;
}

// Tests run from build/tests.
const folder = new URL("../../../../../protocol/vectors/", import.meta.url);

/** All vectors of `accept` or `reject`. */
export function vectors(which: "accept" | "reject"): Vector[] {
  const dir = new URL(`${which}/`, folder);
  return readdirSync(dir).flatMap((file) => JSON.parse(readFileSync(new URL(file, dir), "utf8")) as Vector[]);
}

/** The message of a vector. */
export function bytesOf(vector: Vector): Uint8Array {
  const parts = vector.bytes_parts ?? [[vector.bytes_hex ?? "", 1] as [string, number]];
  return new Uint8Array(Buffer.from(parts.map(([hex, times]) => hex.repeat(times)).join(""), "hex"));
}
