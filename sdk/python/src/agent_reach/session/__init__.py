"""Every decision of the SDK, with time and chance passed in. No socket, no clock, no task."""

from .backoff import Backoff
from .machine import Session
from .registration import Registration

__all__ = ["Backoff", "Registration", "Session"]
