/** Values of the wire as JSON: what JSON cannot say is written as the hub's JSON edge writes it. */

function base64(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return btoa(text);
}

function plain(value: unknown): unknown {
  if (typeof value === "bigint") return { $int: value.toString() };
  if (value instanceof Uint8Array) return { $bin: base64(value) };
  if (value instanceof Date) return { $time: value.toISOString() };
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, item]) => [String(key), plain(item)]));
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value === "object" && value !== null)
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
  return value;
}

/** A value as indented JSON; of none `null`. */
export function json(value: unknown): string {
  return JSON.stringify(plain(value) ?? null, undefined, 2);
}

/** A value in one line. */
export function oneLine(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(plain(value) ?? null);
}
