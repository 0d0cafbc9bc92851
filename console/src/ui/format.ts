/** Figures as people read them. Nothing known is a dash. */

const DASH = "–";

/** Microseconds: `<1 ms` where the hub tells milliseconds alone. */
export function micros(us: number | undefined): string {
  if (us === undefined) return DASH;
  if (us < 1000) return `${Math.round(us)} µs`;
  return millis(us / 1000);
}

/** Milliseconds, with three figures at most. */
export function millis(ms: number | undefined): string {
  if (ms === undefined) return DASH;
  if (ms < 1) return "<1 ms";
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(2)} s`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  return span(ms);
}

/** A longer time, in its two largest units. */
export function span(ms: number | undefined): string {
  if (ms === undefined) return DASH;
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${minutes % 60} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A count with separators. */
export function count(n: number | undefined): string {
  return n === undefined ? DASH : n.toLocaleString("en");
}

/** Things in a second. */
export function rate(perSecond: number | undefined): string {
  if (perSecond === undefined) return DASH;
  if (perSecond === 0) return "0";
  if (perSecond < 0.1) return "<0.1";
  return perSecond < 10 ? perSecond.toFixed(1) : count(Math.round(perSecond));
}

/** Bytes in binary units. */
export function bytes(n: number | undefined): string {
  if (n === undefined) return DASH;
  if (n < 1024) return `${Math.round(n)} B`;
  const units = ["KiB", "MiB", "GiB", "TiB"];
  let value = n / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]!}`;
}

/** A share as per cent: all is 100 %, and what is not all never looks like it. */
export function share(part: number | undefined): string {
  if (part === undefined) return DASH;
  const percent = part * 100;
  if (percent === 100 || percent === 0) return `${percent} %`;
  return `${percent > 99.9 ? "99.9" : percent.toFixed(percent > 99 || percent < 1 ? 1 : 0)} %`;
}

/** The time of day, with milliseconds. */
export function time(ms: number): string {
  const date = new Date(ms);
  const two = (n: number): string => String(n).padStart(2, "0");
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** The beginning of a long id. */
export function short(id: string, letters = 12): string {
  return id.length <= letters ? id : `${id.slice(0, letters)}…`;
}
