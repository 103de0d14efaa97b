"""A server that is a program of this machine: its messages, however it writes them, and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from typing import TextIO

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from pydantic import ValidationError

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import LineReader, reason_of
from ccb.tunnel.wire.messages import as_dict

from . import server_keeper
from .mcp_config import StdioServer

Item = SessionMessage | Exception

log = logging.getLogger(__name__)

MAX_LINE = 32 * 1024 * 1024  # bytes of a message. A longer one is an error of its call.
_LOOK_S = 0.005
_END_S = 2.0  # the keeper of a server needs less, if the kernel can kill what it started


@asynccontextmanager
async def program_streams(
    config: StdioServer, stderr: TextIO
) -> AsyncIterator[tuple[MemoryObjectReceiveStream[Item], MemoryObjectSendStream[SessionMessage]]]:
    """Start a server, and yield its streams. Leaving ends all of it."""
    process, control = await _keeper(config, stderr)
    assert process.stdin is not None
    heard, reading = anyio.create_memory_object_stream[Item](256)
    writing, sent = anyio.create_memory_object_stream[SessionMessage](0)
    program = _Program(process, heard, sent)
    tasks: list[asyncio.Task[None]] = []
    try:
        await _is_up(process, control, config.command)
        tasks += (asyncio.create_task(work) for work in (program.read(), program.write()))
        yield reading, writing
    finally:
        process.stdin.close()
        try:
            await _ended(control)
        finally:
            control.close()
            for task in tasks:
                task.cancel()
            for stream in (heard, reading, writing, sent):
                stream.close()
            process._transport.close()  # type: ignore[attr-defined]  # no server is left that could still speak
            await asyncio.gather(*tasks, return_exceptions=True)


async def _keeper(config: StdioServer, stderr: TextIO) -> tuple[asyncio.subprocess.Process, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ExitStack() as stack, theirs:
        stack.callback(ours.close)
        keeper = (sys.executable, "-I", "-S", server_keeper.__file__, str(theirs.fileno()))
        command = (*keeper, config.command, *config.args)
        env, fds = {**get_default_environment(), **config.env}, (theirs.fileno(),)
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=stderr,
            env=env,
            pass_fds=fds,
            start_new_session=True,
            limit=MAX_LINE,
        )
        stack.pop_all()
    return process, ours


async def _is_up(process: asyncio.subprocess.Process, control: socket.socket, command: str) -> None:
    said = await asyncio.get_running_loop().sock_recv(control, 4096)
    while process.returncode is None:  # noqa: ASYNC110 - there is no event for it; the keeper goes on without its parent, which has ended by now
        await asyncio.sleep(_LOOK_S)
    if said != b"\n":
        raise OSError(said.decode("utf-8", "replace") or f"{command} did not start")


async def _ended(control: socket.socket) -> None:
    with suppress(OSError):
        control.shutdown(socket.SHUT_WR)
    try:
        async with asyncio.timeout(_END_S):
            while await asyncio.get_running_loop().sock_recv(control, 4096):
                pass
    except TimeoutError:
        log.warning("an MCP server has not ended within %s s", _END_S)
    except OSError:
        pass


@dataclass(eq=False)
class _Program:
    _process: asyncio.subprocess.Process
    _heard: MemoryObjectSendStream[Item]
    _sent: MemoryObjectReceiveStream[SessionMessage]
    _greeted: bool = False

    def __post_init__(self) -> None:
        self._lines = LineReader(self._cannot_be_read)

    async def read(self) -> None:
        assert self._process.stdout is not None
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with self._heard:
                while True:
                    try:
                        line = await self._process.stdout.readline()
                    except ValueError:
                        line = b"{too long"
                    if not line:
                        break
                    await self._take(line)

    async def write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            async for item in self._sent:
                message = item.message.model_dump(by_alias=True, exclude_unset=True)
                self._lines.sent(message)
                stdin.write(json.dumps(message).encode() + b"\n")
                await stdin.drain()
        except (OSError, anyio.BrokenResourceError):
            log.info("an MCP server takes no more messages", exc_info=True)
            self._heard.close()

    async def _take(self, line: bytes) -> None:
        found = self._lines.read(line)
        if not found and line.strip():
            log.info("an MCP server prints: %s", line[:1000].decode("utf-8", "replace"))
        for message in found:
            if "method" not in message:
                self._lines.done(message["id"])
                reply = _reply(message)
                if not self._greeted and isinstance(reply, types.JSONRPCResponse):
                    self._greeted, reply.result = True, _greeting(reply.result)
                await self._heard.send(SessionMessage(reply))
                continue
            asked = {**message, "jsonrpc": "2.0", "params": as_dict(message.get("params"))}
            try:
                await self._heard.send(SessionMessage(types.jsonrpc_message_adapter.validate_python(asked)))
            except ValidationError:
                log.info("an MCP server asks for something that is not MCP: %s", str(message)[:300])

    def _cannot_be_read(self, number: object, why: str) -> None:
        self._lines.done(number)
        with suppress(anyio.WouldBlock, anyio.BrokenResourceError, anyio.ClosedResourceError):
            self._heard.send_nowait(SessionMessage(_error(number, -32700, why)))


def _reply(message: Json) -> types.JSONRPCResponse | types.JSONRPCError:
    error, result = message.get("error"), message.get("result")
    if error is None and isinstance(result, dict):
        return types.JSONRPCResponse(jsonrpc="2.0", id=message["id"], result=result)
    code = as_dict(error).get("code")
    why = reason_of(error) if error is not None else "its reply has no result"
    return _error(message["id"], code if isinstance(code, int) else -32603, why)


def _greeting(given: Json) -> Json:
    """Return the answer of a server to `initialize` in a form that the package takes. Only names in it count."""
    version, instructions = given.get("protocolVersion"), given.get("instructions")
    info, offers = as_dict(given.get("serverInfo")), as_dict(given.get("capabilities"))
    return {
        "protocolVersion": version if version in HANDSHAKE_PROTOCOL_VERSIONS else LATEST_HANDSHAKE_VERSION,
        "capabilities": {name: {} for name, each in offers.items() if each not in (None, False)},
        "serverInfo": {name: str(info.get(name) or "unknown") for name in ("name", "version")},
        **({"instructions": instructions} if isinstance(instructions, str) else {}),
    }


def _error(number: object, code: int, why: str) -> types.JSONRPCError:
    assert isinstance(number, (int, str))
    return types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=why))
