/** The table of GOODBYE codes: the number's range says whether to come back. */

/** Words of GOODBYE with their close codes. */
export const GOODBYE: Readonly<Record<string, number>> = {
  normal: 1000,
  draining: 4000,
  gone: 4001,
  slow_consumer: 4002,
  rate_limited: 4003,
  credentials_expired: 4004,
  replaced: 4500,
  protocol_error: 4501,
  message_too_large: 1009,
  unauthorized: 4503,
  credentials_revoked: 4504,
  version_unsupported: 4505,
};

/** Whether one comes back after this word; `undefined` of a word that is not in the table. */
export function comesBack(word: string): boolean | undefined {
  if (!Object.hasOwn(GOODBYE, word)) return undefined;
  const code = GOODBYE[word]!;
  return code >= 4000 && code < 4500;
}

/** Whether a close code alone says not to come back. */
export function isFinalClose(code: number | undefined): boolean {
  return code !== undefined && code >= 4500 && code <= 4999;
}

/** The word of a close code that came without one. */
export function wordOf(code: number): string {
  const known = Object.entries(GOODBYE).find(([, number]) => number === code && code >= 4000);
  return known?.[0] ?? String(code);
}
