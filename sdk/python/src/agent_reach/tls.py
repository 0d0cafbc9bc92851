"""Certificates: read anew for each connection, so that renewed files are used without a restart."""

import ssl
from os import PathLike

from .errors import ConnectError

Path = str | PathLike[str]


class Tls:
    """PEM files that prove this agent to the hub, and the hub to this agent: the CA, the chain, the private key.

    They are read now, to find mistakes early, and again at each connect.

    Raises:
        ConnectError: a file cannot be read, holds no PEM of its kind, or key and certificate do not match.
    """

    def __init__(self, ca: Path, cert: Path | None = None, key: Path | None = None) -> None:
        self._ca, self._cert, self._key = ca, cert, key
        self.load()

    def load(self) -> ssl.SSLContext:
        """A context of what the files are now."""
        try:
            context = ssl.create_default_context(cafile=self._ca)
        except (OSError, ssl.SSLError) as error:
            raise ConnectError("tls", f"CA {self._ca}: {error}") from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self._cert is not None:
            try:
                context.load_cert_chain(self._cert, self._key)
            except (OSError, ssl.SSLError) as error:
                raise ConnectError("tls", f"certificate {self._cert} and key {self._key}: {error}") from error
        return context
