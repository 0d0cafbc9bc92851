"""The socket, against servers that behave in all ways, and the agent's life around it."""

import asyncio
import contextlib
import gc
import http
import logging
import unittest.mock
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from sessions import WELCOME
from websockets.asyncio.server import ServerConnection, serve
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol
from world import run

import agent_reach
from agent_reach import ConnectError
from agent_reach.codec import decode_to_hub, encode
from agent_reach.codes import Kind
from agent_reach.limits import SUBPROTOCOL
from agent_reach.transport import WebSocketTransport, _WebSocket, address


class Listener:
    """Remembers what it is told, in words."""

    def __init__(self) -> None:
        self.told: asyncio.Queue[Any] = asyncio.Queue()

    def on_messages(self, messages: list[bytes]) -> None:
        for message in messages:
            self.told.put_nowait(bytes(message))

    def on_text(self) -> None:
        self.told.put_nowait("text")

    def on_alive(self) -> None:
        self.told.put_nowait("alive")

    def on_writable(self) -> None:
        self.told.put_nowait("writable")

    def on_lost(self, code: int | None, reason: str) -> None:
        self.told.put_nowait((code, reason))


Serve = Callable[[ServerConnection], Awaitable[None]]


@contextlib.asynccontextmanager
async def server(handler: Serve, **options: Any) -> AsyncIterator[str]:
    options.setdefault("subprotocols", [Subprotocol(SUBPROTOCOL)])
    quiet = logging.getLogger("quiet")
    quiet.disabled = True
    async with serve(handler, "127.0.0.1", 0, logger=quiet, max_size=None, **options) as own:
        yield f"ws://127.0.0.1:{own.sockets[0].getsockname()[1]}"


async def nothing(socket: ServerConnection) -> None:
    await socket.wait_closed()


@pytest.mark.parametrize(
    ("hub", "url"),
    [
        ("wss://hub.example", "wss://hub.example:7443/v1/connect"),
        ("wss://hub.example/", "wss://hub.example:7443/v1/connect"),
        ("ws://[::1]:5/other?x=1", "ws://[::1]:5/other?x=1"),
    ],
)
def test_the_connect_path_and_port_are_added_where_none_are_given(hub: str, url: str) -> None:
    """CONN-1."""
    assert address(hub)[0] == url


@pytest.mark.parametrize("hub", ["https://hub.example", "hub.example:7443", "", "wss://", "ws://hub:port"])
def test_other_addresses_are_refused(hub: str) -> None:
    """CONN-1."""
    with pytest.raises(ConnectError, match="config"):
        address(hub)
    with pytest.raises(ConnectError, match="needs certificates"):
        WebSocketTransport("wss://hub.example")


def test_an_agent_without_an_address_or_with_unreadable_files_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CONN-2."""
    monkeypatch.delenv("AGENT_REACH_HUB", raising=False)
    with pytest.raises(ConnectError, match="AGENT_REACH_HUB"):
        agent_reach.Agent("a")
    with pytest.raises(ConnectError, match="tls: CA /nowhere"):
        agent_reach.Agent("a", "wss://hub", ca="/nowhere")


def test_messages_come_whole_pings_are_answered_and_the_close_code_is_told() -> None:
    """CONN-1, LIVE-3, BACK-5."""

    async def test() -> None:
        async def handler(socket: ServerConnection) -> None:
            assert socket.request is not None
            assert socket.request.headers["Authorization"] == "Bearer secret"
            assert "Sec-WebSocket-Extensions" not in socket.request.headers
            assert await socket.recv() == b"one"
            assert await socket.recv() == b"two"
            await socket.send([b"a", b"b", b"c"])
            await socket.send("text")
            await (await socket.ping())
            await socket.send(b"")
            await socket.close(4002, "slow")

        async with server(handler) as hub:
            listener = Listener()
            wire = await WebSocketTransport(hub, token="secret").open(listener)
            wire.send([b"one", b"two"])
            told = [await listener.told.get() for _ in range(5)]
            # Control frames say only that somebody lives: they need not wait for what was read with them.
            assert [own for own in told if own != "alive"] == [b"abc", "text", b""]
            assert await listener.told.get() == (4002, "slow")
            assert not wire.writable
            for late in (wire.ping, partial(wire.send, [b"late"]), partial(wire.close, 1000), wire.abort):
                late()

    run(test())


def test_nothing_is_written_between_the_other_ends_close_and_the_loss() -> None:
    """BACK-5, CONN-7."""

    async def test() -> None:
        async def handler(socket: ServerConnection) -> None:
            await socket.recv()
            await socket.close(4000)

        async with server(handler) as hub:
            late: list[bool] = []

            class Talker(Listener):
                def on_alive(self) -> None:
                    # The close frame, before the loss: what is written now would be an error of the library's.
                    late.append(wire.writable)
                    wire.send([b"late"])
                    wire.ping()
                    wire.close(1000)

            listener = Talker()
            wire = await WebSocketTransport(hub).open(listener)
            wire.send([b"one"])
            assert await listener.told.get() == (4000, "")
            assert late == [False]

    run(test())


def test_a_connection_that_breaks_tells_no_code() -> None:
    """BACK-5."""

    async def test() -> None:
        async def handler(socket: ServerConnection) -> None:
            socket.transport.abort()

        async with server(handler) as hub:
            listener = Listener()
            await WebSocketTransport(hub).open(listener)
            code, _ = await listener.told.get()
            assert code is None

    run(test())


def test_a_socket_that_takes_no_more_says_so_and_one_that_is_not_read_is_held_up() -> None:
    """BOUND-1."""

    async def test() -> None:
        go_on = asyncio.Event()
        size = 64 * 1024 * 1024 - 64

        async def handler(socket: ServerConnection) -> None:
            await go_on.wait()
            assert len(await socket.recv()) == size
            await socket.send(b"first")
            await socket.recv()
            await socket.send(b"second")
            await nothing(socket)

        async with server(handler) as hub:
            listener = Listener()
            wire = await WebSocketTransport(hub).open(listener)
            wire.send([b"x" * size])
            assert not wire.writable
            go_on.set()
            assert await listener.told.get() == "writable"
            assert await listener.told.get() == b"first"
            wire.read(False)
            wire.read(True)
            wire.send([b"more"])
            assert await listener.told.get() == b"second"
            wire.abort()

    run(test())


def test_an_answer_to_the_upgrade_that_comes_when_its_dial_was_given_up_means_nothing() -> None:
    async def test() -> None:
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        transport = unittest.mock.Mock()
        socket = _WebSocket(unittest.mock.Mock(), opened, "ws://127.0.0.1", None)
        socket.connection_made(transport)
        opened.cancel()
        socket.data_received(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n")
        socket.eof_received()
        socket.connection_lost(None)

    run(test())


@pytest.mark.parametrize(("status", "final"), [(401, True), (404, True), (429, False), (503, False)])
def test_the_status_of_a_refused_upgrade_decides(status: int, final: bool) -> None:
    """CONN-6, CONN-4."""

    async def test() -> None:
        tries = 0

        def refuse(socket: ServerConnection, request: Request) -> Response:
            nonlocal tries
            tries += 1
            return socket.respond(http.HTTPStatus(status), "come later or not")

        async with server(nothing, process_request=refuse) as hub:
            with pytest.raises(ConnectError, match="come later") as caught:
                await WebSocketTransport(hub).open(Listener())
            assert (caught.value.status, caught.value.final) == (status, final)
            agent = agent_reach.Agent("a", hub, connect_timeout=0.3, reconnect_waits=(0.01, 0.01))
            with pytest.raises(ConnectError, match=str(status)) as caught:
                await agent.connect()
            assert caught.value.kind == ("http" if final else "timeout")
            assert (tries == 2) is final

    run(test())


def test_a_hub_of_another_subprotocol_or_none_at_all_is_no_hub() -> None:
    """CONN-6."""

    async def test() -> None:
        async with server(nothing, subprotocols=None) as hub:
            with pytest.raises(ConnectError, match="config: the hub does not speak"):
                await WebSocketTransport(hub).open(Listener())

        async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"220 this is mail\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(rude, "127.0.0.1", 0) as own:
            port = own.sockets[0].getsockname()[1]
            with pytest.raises(ConnectError, match="io") as caught:
                await WebSocketTransport(f"ws://127.0.0.1:{port}").open(Listener())
            assert not caught.value.final

    run(test())


def test_a_hub_that_accepts_and_says_nothing_is_left_after_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CONN-1."""
    monkeypatch.setattr("agent_reach.transport.DIAL_TIMEOUT", 0.05)

    async def test() -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as own:
            port = own.sockets[0].getsockname()[1]
            with pytest.raises(ConnectError, match="no connection within"):
                await WebSocketTransport(f"ws://127.0.0.1:{port}").open(Listener())

    run(test())


def test_garbage_of_a_hub_costs_connections_and_never_the_agent() -> None:
    """CONN-7, CODEC-3, K15, K20, K55."""

    async def test() -> None:
        garbage: list[bytes | str] = [b"\xc1", b"\x91" * 10_000, b"\x93\xdd\xff\xff\xff\xff", "text", b""]

        async def handler(socket: ServerConnection) -> None:
            await socket.recv()
            await socket.send(encode(Kind.WELCOME, WELCOME))
            if garbage:
                await socket.send(garbage.pop())
            async for message in socket:
                assert isinstance(message, bytes)
                kind, header, _ = decode_to_hub(message)
                if kind is Kind.CALL:
                    # A call that left on a connection before has another id on this one.
                    await socket.send(encode(Kind.RESULT, {"id": header["id"], "status": "completed"}, b"\x07"))

        async with server(handler) as hub:
            agent = agent_reach.Agent("a", hub, reconnect_waits=(0.001, 0.001))
            async with agent:
                while garbage:
                    gc.collect()
                    await asyncio.sleep(0)
                assert await agent.call("x") == 7

    run(test())
