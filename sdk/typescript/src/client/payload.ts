/** Bodies: one MessagePack value, or bytes of another content type as they are. */

import { decode, encode } from "../codec/index.js";
import { EMPTY, type Payload } from "../session/types.js";

/** Bytes that are sent as they are. */
export class Raw {
  constructor(
    readonly bytes: Uint8Array,
    /** What they are; absent: MessagePack. At most 256 bytes. */
    readonly contentType?: string,
  ) {}
}

const MSGPACK = new Set(["application/msgpack", "application/x-msgpack", "application/vnd.msgpack"]);

/** The body for a value. @throws EncodeError */
export function toPayload(value: unknown): Payload {
  if (value === undefined) return EMPTY;
  if (value instanceof Raw) return { bytes: value.bytes, contentType: value.contentType };
  return { bytes: encode(value) };
}

/** The value of a body: nil where there is none, bytes where it is no MessagePack. @throws ReadError */
export function fromPayload({ bytes, contentType }: Payload): unknown {
  if (bytes.length === 0 && contentType === undefined) return null;
  if (contentType === undefined || MSGPACK.has(contentType)) return decode(bytes);
  return Uint8Array.from(bytes);
}
