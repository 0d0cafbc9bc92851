"""Bounds of the wire protocol, the same on both sides. Bytes are of UTF-8 for text, of the encoded value for others."""

VERSION = 1
CONNECT_PATH = "/v1/connect"
SUBPROTOCOL = "agent-reach.v1.msgpack"
#: Bytes of a whole message, unless WELCOME says otherwise.
MESSAGE_BYTES_DEFAULT = 1_048_576
#: Levels of a header, itself being the first.
HEADER_DEPTH_MAX = 32
#: Keys of any map in a header.
HEADER_KEYS_MAX = 1024
ID_BYTES_MAX = 128
WORD_BYTES_MAX = 256
TEXT_BYTES_MAX = 4096
#: Encoded bytes of a JSON Schema, or of ``details``.
SCHEMA_BYTES_MAX = 65_536
LABELS_MAX = 64
CAPABILITIES_MAX = 1024
ALIASES_MAX = 16
LIST_MAX = 1024
PRIVATE_KEYS_MAX = 32
#: Bytes of all ``x-`` keys and values of one header together.
PRIVATE_BYTES_MAX = 16_384
MAX_CONCURRENCY_DEFAULT = 50
#: Chunks of a first window.
CREDIT_DEFAULT = 16
#: Milliseconds for which the outcome of an id made by the SDK is remembered.
KEEP_MS_MADE = 600_000
#: Seconds for which a provider may hold ACCEPT back.
ACCEPT_HOLD = 0.005
