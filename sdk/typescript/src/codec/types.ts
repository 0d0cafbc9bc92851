/**
 * A moment that a `Date` alone cannot say: finer than a millisecond, or beyond the years that `Date` reaches. It is a
 * `Date` all the same (an invalid one when out of reach), and is written exactly as it was read.
 */
export class Timestamp extends Date {
  /** Whole seconds since 1970, rounded down. */
  readonly seconds: bigint;
  /** Nanoseconds after `seconds`, 0 to 999,999,999. */
  readonly nanoseconds: number;

  constructor(seconds: bigint, nanoseconds: number) {
    super(Number(seconds) * 1000 + Math.floor(nanoseconds / 1e6));
    this.seconds = seconds;
    this.nanoseconds = nanoseconds;
  }
}

/** A MessagePack extension value other than a timestamp. */
export class Ext {
  constructor(
    /** -128 to 127. */
    readonly type: number,
    readonly data: Uint8Array,
  ) {}
}
