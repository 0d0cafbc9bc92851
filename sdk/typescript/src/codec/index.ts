/** MessagePack, of bodies and of headers. */

export { EncodeError, ReadError } from "./errors.js";
export { decode, nameOf, Reader, Tag, type Entry } from "./read.js";
export { Ext, Timestamp } from "./types.js";
export { encode, Writer } from "./write.js";
