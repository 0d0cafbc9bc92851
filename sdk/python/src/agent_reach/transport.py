"""The socket: TCP, TLS, WebSocket. The seam for tests is `Transport`: whatever carries whole messages will do."""

import asyncio
import ssl
from typing import Any, Protocol
from urllib.parse import urlsplit

from . import limits
from .errors import ConnectError
from .tls import Tls

#: TCP, TLS and upgrade together must be done in this time, in seconds.
DIAL_TIMEOUT = 10.0
#: Largest message taken from a hub. Its own limit is smaller; this only guards against a broken one.
MESSAGE_BYTES_MAX = 64 * 1024 * 1024
#: The other end must close the TCP connection in this time after the last frame, in seconds.
CLOSE_TIMEOUT = 2.0
DEFAULT_PORT = 7443


class Listener(Protocol):
    """What a connection tells, all on the connection's loop."""

    def on_messages(self, messages: list[bytes]) -> None:
        """Binary messages came, in one go."""

    def on_text(self) -> None:
        """A text message came."""

    def on_alive(self) -> None:
        """A ping or a pong came."""

    def on_writable(self) -> None:
        """More can be written."""

    def on_lost(self, code: int | None, reason: str) -> None:
        """It is gone; with the close code, if one came. Nothing is told after it."""


class Wire(Protocol):
    """An open connection, used on its loop only."""

    @property
    def writable(self) -> bool:
        """Whether more is to be written now."""

    def send(self, messages: list[bytes]) -> None:
        """Writes binary messages in one go."""

    def ping(self) -> None:
        """Writes a ping."""

    def read(self, wanted: bool) -> None:
        """Whether more is to be read."""

    def close(self, code: int) -> None:
        """Closes in order."""

    def abort(self) -> None:
        """Lets go at once; tells nothing any more."""


class Transport(Protocol):
    """Opens connections to one hub."""

    async def open(self, listener: Listener) -> Wire:
        """Opens one.

        Raises:
            ConnectError: why not.
        """


def address(hub: str) -> tuple[str, str, int, bool]:
    """Whole URL, host, port and whether it is TLS, of a hub's address like ``wss://localhost:7443``.

    Raises:
        ConnectError: it is no address of a hub.
    """
    try:
        parts = urlsplit(hub)
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise ConnectError("config", f"{hub!r} is no address: {error}") from None
    if parts.scheme not in ("wss", "ws") or not parts.hostname:
        raise ConnectError("config", f"{hub!r} is no address of a hub: wss://HOST:PORT is")
    host = parts.hostname
    shown = f"[{host}]" if ":" in host else host
    path = parts.path if parts.path not in ("", "/") else limits.CONNECT_PATH
    url = f"{parts.scheme}://{shown}:{port}{path}" + (f"?{parts.query}" if parts.query else "")
    return url, host, port, parts.scheme == "wss"


class WebSocketTransport:
    """A hub's address over the network.

    Raises:
        ConnectError: the address cannot be used, or is ``wss`` and no CA is given.
    """

    def __init__(self, hub: str, tls: Tls | None = None, token: str | None = None) -> None:
        self._url, self._host, self._port, self._secure = address(hub)
        if self._secure and tls is None:
            raise ConnectError("config", f"{hub} needs certificates: ca, cert and key")
        self._tls = tls
        self._token = token

    async def open(self, listener: Listener) -> Wire:
        """Opens one connection."""
        context = self._tls.load() if self._secure and self._tls is not None else None
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        socket = _WebSocket(listener, opened, self._url, self._token)
        try:
            async with _deadline(DIAL_TIMEOUT):
                await loop.create_connection(
                    lambda: socket,
                    self._host,
                    self._port,
                    ssl=context,
                    server_hostname=self._host if context is not None else None,
                )
                await opened
        except BaseException as error:
            socket.abort()
            if not opened.cancel() and not opened.cancelled():
                opened.exception()  # Seen: it is the one that is raised here.
            raise _connect_error(error) from error
        return socket


class _deadline:
    """``asyncio.timeout`` for Python 3.10 too."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._fired = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None, "a dial is a task"

        def fire() -> None:
            self._fired = True
            task.cancel()

        self._timer = asyncio.get_running_loop().call_later(self._seconds, fire)

    async def __aexit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._timer.cancel()
        if self._fired and kind is asyncio.CancelledError:
            raise ConnectError("io", f"no connection within {self._seconds:g} s")


def _connect_error(error: BaseException) -> BaseException:
    if isinstance(error, ssl.SSLError):
        return ConnectError("tls", str(error))
    if isinstance(error, OSError):
        return ConnectError("io", str(error) or type(error).__name__)
    return error


class _WebSocket(asyncio.Protocol):
    """The library's state machine between the loop's transport and the listener: all frames of one read in one go."""

    def __init__(self, listener: Listener, opened: "asyncio.Future[None]", url: str, token: str | None) -> None:
        from websockets.client import ClientProtocol
        from websockets.frames import Opcode
        from websockets.protocol import State
        from websockets.typing import Subprotocol
        from websockets.uri import parse_uri

        self._listener: Listener | None = listener
        self._opened = opened
        self._token = token
        self._ws = ClientProtocol(
            parse_uri(url), subprotocols=[Subprotocol(limits.SUBPROTOCOL)], max_size=MESSAGE_BYTES_MAX
        )
        self._opcode = Opcode
        self._state = State
        self._transport: Any = None
        self._fragments: list[bytes] = []
        self._paused = False
        self._closing: asyncio.TimerHandle | None = None

    # The loop's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        request = self._ws.connect()
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token}"
        self._ws.send_request(request)
        self._write()

    def data_received(self, data: bytes) -> None:
        self._ws.receive_data(data)
        self._take()

    def eof_received(self) -> None:
        self._ws.receive_eof()
        self._take()

    def connection_lost(self, error: Exception | None) -> None:
        # Up to Python 3.10 a TLS transport that its other end closed does not know that it is closed.
        self._transport.abort()
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()
        if not self._opened.done():
            # A client certificate is refused after our side of the handshake is done: it shows on first read.
            self._opened.set_exception(error or ConnectionError("the connection closed during the upgrade"))
        listener, self._listener = self._listener, None
        if listener is not None and not self._opened.cancelled() and self._opened.exception() is None:
            received = self._ws.close_rcvd
            if received is not None:
                listener.on_lost(received.code, received.reason)
            else:
                listener.on_lost(None, str(error) if error is not None else "the connection closed")

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._listener is not None:
            self._listener.on_writable()

    def _take(self) -> None:
        if self._opened.cancelled():
            return  # The dial was given up while the answer to its upgrade was on its way.
        opcode = self._opcode
        messages: list[bytes] = []
        for event in self._ws.events_received():
            if not self._opened.done():
                self._upgraded()
                continue
            frame: Any = event
            if frame.opcode is opcode.BINARY and frame.fin:
                messages.append(frame.data)
            elif frame.opcode in (opcode.BINARY, opcode.CONT):
                self._fragments.append(frame.data)
                if frame.fin:
                    messages.append(b"".join(self._fragments))
                    self._fragments.clear()
            elif frame.opcode is opcode.TEXT:
                self._tell(messages)
                messages = []
                if self._listener is not None:
                    self._listener.on_text()
            elif self._listener is not None:
                self._listener.on_alive()
        if self._ws.handshake_exc is not None and not self._opened.done():
            self._upgraded()
        self._write()
        self._tell(messages)
        if self._ws.close_expected() and self._transport is not None and self._closing is None:
            # The library waits for the other end to close the TCP connection, and bounds nothing itself.
            self._closing = asyncio.get_running_loop().call_later(CLOSE_TIMEOUT, self._drop)

    def _tell(self, messages: list[bytes]) -> None:
        if messages and self._listener is not None:
            self._listener.on_messages(messages)

    def _upgraded(self) -> None:
        problem = self._ws.handshake_exc
        if problem is None:
            if self._ws.subprotocol != limits.SUBPROTOCOL:
                text = f"the hub does not speak {limits.SUBPROTOCOL}"
                self._opened.set_exception(ConnectError("config", text))
            else:
                self._opened.set_result(None)
            return
        response = getattr(problem, "response", None)
        status = getattr(response, "status_code", None)
        if status is not None and status != 101:
            text = (getattr(response, "body", b"") or b"")[:512].decode(errors="replace").strip()
            self._opened.set_exception(ConnectError("http", f"upgrade refused with HTTP {status}: {text}", status))
        else:
            self._opened.set_exception(ConnectError("io", f"no upgrade: {problem}"))

    def _write(self) -> None:
        data = self._ws.data_to_send()
        if self._transport is None:
            return
        whole = data[0] if len(data) == 1 else b"".join(data)
        if whole:
            self._transport.write(whole)
        if data and data[-1] == b"" and self._transport.can_write_eof():
            self._transport.write_eof()

    def _drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The driver's side.

    @property
    def writable(self) -> bool:
        return not self._paused and self._is_open

    @property
    def _is_open(self) -> bool:
        # The other end's last bytes come before the loop says that the connection is lost.
        return self._transport is not None and self._ws.state is self._state.OPEN

    def send(self, messages: list[bytes]) -> None:
        if not self._is_open:
            return
        for message in messages:
            self._ws.send_binary(message)
        self._write()

    def ping(self) -> None:
        if self._is_open:
            self._ws.send_ping(b"")
            self._write()

    def read(self, wanted: bool) -> None:
        if self._transport is not None and wanted != self._transport.is_reading():
            if wanted:
                self._transport.resume_reading()
            else:
                self._transport.pause_reading()

    def close(self, code: int) -> None:
        if self._is_open:
            self._ws.send_close(code)
            self._write()

    def abort(self) -> None:
        self._listener = None
        self._drop()
