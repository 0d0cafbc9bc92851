/** MessagePack, of bodies and of headers. */

export { EncodeError, ReadError } from "./errors.js";
export { decode, Reader, Tag, type Entry } from "./read.js";
export { Ext, Timestamp } from "./types.js";
export { encode, utf8Length, Writer } from "./write.js";
