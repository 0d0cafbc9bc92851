/** A map of a header as a table of its keys, in the canonical order. */

import { Writer, type Entry, type Reader } from "../codec/index.js";
import { entriesOf, FieldError, readAt, readPrivate, type FieldType, type Private } from "./fields.js";

/** Whether a key has to be there, may be absent, or is always written and may be absent. */
export type Need = "must" | "may" | "always";

/** One key of a table. */
export interface Field {
  key: string;
  type: FieldType;
  need: Need;
}

interface Row extends Field {
  /** The key as MessagePack. */
  encoded: Uint8Array;
  /** What an absent key reads as, where that is a value. */
  absent: unknown;
}

/**
 * A map as it stands on the wire. Read values have normal form: what says only a default is `undefined`, unless it is
 * always written.
 */
export class Table<T> implements FieldType {
  readonly #rows: Row[];
  readonly #byKey: Map<string, Row>;

  readonly #hasPrivate: boolean;

  constructor(fields: Field[], hasPrivate = false) {
    this.#hasPrivate = hasPrivate;
    this.#rows = fields.map((field) => {
      const out = new Writer();
      out.str(field.key);
      const absent = field.need === "always" ? field.type.absent?.value : undefined;
      return { ...field, encoded: out.take(), absent };
    });
    this.#byKey = new Map(this.#rows.map((row) => [row.key, row]));
  }

  read(reader: Reader, entry: Entry): T {
    return this.from(reader, entriesOf(reader, entry, "a map"));
  }

  /** Reads a map's entries. @throws FieldError for the first key that is wrong, in the order of the wire. */
  from(reader: Reader, entries: Entry[]): T {
    const value: Record<string, unknown> = {};
    for (const entry of entries) {
      const row = this.#byKey.get(entry.key);
      if (row === undefined) continue;
      // A nil reads as absent wherever the key may be absent: many encoders write one for what is not set.
      if (entry.value === null && row.need !== "must") continue;
      const read = readAt(row.type, reader, entry);
      if (row.need === "always" || row.type.isDefault?.(read as never) !== true) value[row.key] = read;
    }
    for (const row of this.#rows) {
      if (value[row.key] !== undefined) continue;
      if (row.need === "must") throw new FieldError(row.key, "is missing");
      if (row.absent !== undefined) value[row.key] = row.absent;
    }
    if (this.#hasPrivate) {
      const keys = readPrivate(reader, entries);
      if (keys !== undefined) value["private"] = keys;
    }
    return value as T;
  }

  write(out: Writer, value: T): void {
    const values = value as Record<string, unknown>;
    const keys = this.#hasPrivate ? (values["private"] as Private | undefined) : undefined;
    let n = keys?.length ?? 0;
    for (const row of this.#rows) if (isWritten(row, values[row.key])) n += 1;
    out.map(n);
    for (const row of this.#rows) {
      const field = values[row.key];
      if (!isWritten(row, field)) continue;
      out.raw(row.encoded);
      row.type.write(out, (field ?? row.absent) as never);
    }
    for (const [key, raw] of keys ?? []) {
      out.str(key);
      out.raw(raw);
    }
  }
}

function isWritten(row: Row, value: unknown): boolean {
  if (value === undefined) return row.absent !== undefined;
  return row.need === "always" || row.type.isDefault?.(value as never) !== true;
}

export const must = (key: string, type: FieldType): Field => ({ key, type, need: "must" });
export const may = (key: string, type: FieldType): Field => ({ key, type, need: "may" });
export const always = (key: string, type: FieldType): Field => ({ key, type, need: "always" });
