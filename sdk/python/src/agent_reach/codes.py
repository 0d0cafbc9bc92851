"""The tables of words and numbers: envelope kinds, error codes, GOODBYE codes."""

from enum import Enum, IntEnum


class Kind(IntEnum):
    """Kinds of envelopes, with their numbers on the wire."""

    HELLO = 1
    WELCOME = 2
    UPDATE = 3
    GOODBYE = 4
    ERROR = 5
    CALL = 10
    ACCEPT = 11
    CHUNK = 12
    CREDIT = 13
    RESULT = 14
    CANCEL = 15
    RECEIPT = 16


class Accepted(str, Enum):
    """Whether a provider had a call when it failed: whether it may have had an effect."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"

    def __str__(self) -> str:
        return self.value


#: Error code -> whether another try can help, where nobody says it.
RETRYABLE: dict[str, bool] = {
    "no_instance": True,
    "no_capability": False,
    "unauthorized": False,
    "invalid_request": False,
    "schema_mismatch": False,
    "payload_too_large": False,
    "overloaded": True,
    "rate_limited": True,
    "accept_timeout": True,
    "timeout": True,
    "budget_exhausted": False,
    "agent_lost": False,
    "circuit_open": True,
    "handler_error": False,
    "unsupported": False,
    "cancelled": False,
    "degraded": False,
    "idempotency_conflict": False,
    "shutting_down": True,
    "orphaned": False,
    "internal": False,
    "unknown_kind": False,
}

#: Codes that a provider may say itself; any other becomes ``handler_error``.
FROM_PROVIDER = frozenset(
    {"unsupported", "invalid_request", "schema_mismatch", "overloaded", "rate_limited", "cancelled"}
)

#: What a code alone tells of a call whose ACCEPT was not seen. Not named: unknown.
ACCEPTED_BY_CODE: dict[str, Accepted] = {
    **dict.fromkeys(("handler_error", "timeout", "completed"), Accepted.YES),
    **dict.fromkeys(
        (
            "no_instance",
            "no_capability",
            "unauthorized",
            "invalid_request",
            "schema_mismatch",
            "payload_too_large",
            "overloaded",
            "rate_limited",
            "circuit_open",
            "unsupported",
            "idempotency_conflict",
            "shutting_down",
            "unknown_kind",
        ),
        Accepted.NO,
    ),
}

#: GOODBYE word -> close code, and whether to come back.
GOODBYES: dict[str, tuple[int, bool]] = {
    "normal": (1000, False),
    "draining": (4000, True),
    "gone": (4001, True),
    "slow_consumer": (4002, True),
    "rate_limited": (4003, True),
    "credentials_expired": (4004, True),
    "replaced": (4500, False),
    "protocol_error": (4501, False),
    "message_too_large": (1009, False),
    "unauthorized": (4503, False),
    "credentials_revoked": (4504, False),
    "version_unsupported": (4505, False),
}


def goodbye_of(close_code: int) -> str:
    """The GOODBYE word of a close code that came without one; the number itself when there is none."""
    for word, (code, _) in GOODBYES.items():
        if code == close_code and code >= 4000:
            return word
    return str(close_code)
