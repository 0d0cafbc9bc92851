/** Bytes that are no MessagePack, or MessagePack that breaks a rule of headers. */
export class ReadError extends Error {
  override readonly name = "ReadError";
}

/** A value that MessagePack, or this SDK, cannot write. */
export class EncodeError extends Error {
  override readonly name = "EncodeError";
}
