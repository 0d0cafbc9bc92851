/** Limits of the protocol, as the table in docs/protocol.md has them. Sizes in bytes, times in milliseconds. */

export const VERSION = 1;
export const CONNECT_PATH = "/v1/connect";
export const SUBPROTOCOL_MSGPACK = "agent-reach.v1.msgpack";
export const MESSAGE_BYTES_DEFAULT = 1_048_576;
export const HEADER_DEPTH_MAX = 32;
export const HEADER_KEYS_MAX = 1024;
export const ID_BYTES_MAX = 128;
export const WORD_BYTES_MAX = 256;
export const TEXT_BYTES_MAX = 4096;
export const SCHEMA_BYTES_MAX = 65_536;
export const LABELS_MAX = 64;
export const CAPABILITIES_MAX = 1024;
export const ALIASES_MAX = 16;
export const LIST_MAX = 1024;
export const PRIVATE_KEYS_MAX = 32;
export const PRIVATE_BYTES_MAX = 16_384;
export const MAX_CONCURRENCY_DEFAULT = 50;
export const CREDIT_DEFAULT = 16;
export const KEEP_MS_MADE = 600_000;
export const ACCEPT_HOLD_MS = 5;
/** Levels of a body. Not of the protocol: the bound of this SDK, so that no body ends the process. */
export const BODY_DEPTH_MAX = 512;
