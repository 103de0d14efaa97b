"""An askpass program that passes the questions of ssh and its wrappers on to the person."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shlex
import shutil
import socket
import stat
import struct
import sys
import tempfile
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Self

from ..errors import ConfigError
from ..plain_text import neutralise
from ..tasks import cancelled
from .command_transport import CommandTransport, Env, PipeCommand
from .login_prompts import NobodyToAsk, Prompts


class AskingTransport(CommandTransport):
    """Commands with an askpass program. What the command says while it connects is shown to the person."""

    @classmethod
    async def open(cls, command: PipeCommand, prompts: Prompts, env: Env) -> Self:
        """Return a transport that is ready to start `command`; nothing is started yet. Raise ConfigError."""
        async with AsyncExitStack() as stack:
            askpass = await askpass_in(stack, prompts, env)
            return cls(command, env=askpass.env, notice=prompts.banner, stack=stack.pop_all())


log = logging.getLogger(__name__)

_MAX_LINE = 64 * 1024
_YES_NO = "yes/no"
_PREFIX = "ccb-ssh-"
_MAX_DIRECTORY = 59  # bytes. A path of a socket has 104: 26 for our name, 2 for the socket, 17 that ssh adds

_ASK = (
    "import json,os,socket,sys;"
    "sys.excepthook=lambda*_:None;"  # the person would see a traceback in the middle of the login
    "s=socket.socket(socket.AF_UNIX);s.connect(sys.argv[1]);"
    "q={'text':' '.join(sys.argv[2:]),'hint':os.environ.get('SSH_ASKPASS_PROMPT',''),'asker':os.getppid()};"
    "s.sendall(json.dumps(q).encode()+b'\\n');"
    "d=b''.join(iter(lambda:s.recv(65536),b''));"
    "d or sys.exit(1);"
    "sys.stdout.buffer.write(d)"
)


def private_directory(env: Env) -> Path:
    """Make a private directory, short enough for a socket. Remove those of killed ccbs. Raise ConfigError."""
    runtime = env.get("XDG_RUNTIME_DIR", "")
    for top in (runtime, env.get("TMPDIR", ""), "/tmp"):  # noqa: S108 - mkdtemp makes it private
        if top.startswith("/") and len(os.fsencode(top)) <= _MAX_DIRECTORY:
            with contextlib.suppress(OSError):
                _remove_stale(Path(top))
            with contextlib.suppress(OSError):
                return Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=top))
    raise ConfigError("there is no directory for the sockets of ssh", do="Make /tmp or XDG_RUNTIME_DIR writable.")


def _remove_stale(top: Path) -> None:
    for directory in top.glob(f"{_PREFIX}*"):
        pid = directory.name.removeprefix(_PREFIX).partition("-")[0]
        try:
            info = directory.lstat()
        except FileNotFoundError:
            continue  # another ccb ended just now
        if not pid.isdigit() or not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            continue
        try:
            os.kill(int(pid), 0)
        except ProcessLookupError:
            if all(peer_problem(path) for path in directory.iterdir()):
                shutil.rmtree(directory, ignore_errors=True)
        except OSError:
            continue


def peer_problem(path: Path) -> str:
    """Return why no process of this user answers at the socket, "" if one accepts connections."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except OSError as error:
            return f"no process listens on it ({error.strerror})"
        if hasattr(socket, "SO_PEERCRED"):
            _, uid, _ = struct.unpack("3i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
            if uid != os.getuid():
                return f"a process of user {uid} listens on it"
    return ""


NO_ASKING = {"SSH_ASKPASS": "/bin/false", "SSH_ASKPASS_REQUIRE": "never"}
"""The variables for a command that must not ask anything: they name no askpass program."""


async def askpass_in(stack: AsyncExitStack, prompts: Prompts, env: Env) -> Askpass:
    """Return an askpass program in a private directory of its own, which `stack` removes. Raise ConfigError."""
    directory = private_directory(env)
    stack.callback(shutil.rmtree, directory, ignore_errors=True)
    askpass = Askpass(directory, prompts, env)
    stack.push_async_callback(askpass.close)
    await askpass.open()
    return askpass


class Askpass:
    """Answers the questions of an ssh that has the environment `env`, with `prompts`. `gave_up` is set when the person
    does not answer: ssh would try an empty password and ask again, so the second question gets no answer. (Without a
    passphrase it takes the next key.)"""

    def __init__(self, directory: Path, prompts: Prompts, env: Env) -> None:
        self.gave_up = asyncio.Event()
        self._unanswered: set[int] = set()
        self.directory = directory
        self._socket = directory / "ask"
        self._program = directory / "askpass"
        self._prompts = prompts
        self._asks = not isinstance(prompts, NobodyToAsk)
        # Old versions of ssh need DISPLAY, new ones SSH_ASKPASS_REQUIRE.
        display = os.environ.get("DISPLAY", ":0")
        asking = {"SSH_ASKPASS": str(self._program), "SSH_ASKPASS_REQUIRE": "force", "DISPLAY": display}
        self.env = {**env, **(asking if self._asks else NO_ASKING)}
        self._server: asyncio.Server | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Lock()

    async def open(self) -> None:
        if self._asks:
            words = [sys.executable, "-I", "-S", "-c", _ASK, str(self._socket)]
            self._program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
            self._program.chmod(0o700)
            self._server = await asyncio.start_unix_server(self._serve, self._socket, limit=_MAX_LINE)

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await cancelled(*self._asking)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._asking.add(task)
        try:
            question = json.loads(await reader.readline())
            text, hint = neutralise(str(question["text"])), str(question["hint"])
            if hint == "none":  # a notice such as "touch your key"; ssh ends the program when it is over
                self._prompts.banner(text)
                await reader.read()
                return
            asker = int(question["asker"])
            async with self._turn:
                gone = asyncio.create_task(reader.read(), name="askpass gone")
                answer = None if asker in self._unanswered else await self._answer(text, gone)
                gone.cancel()
            if answer is None and "passphrase" not in text.lower():
                self._unanswered.add(asker)
            if answer is not None:
                writer.write(answer.encode() + b"\n")
                await writer.drain()
        except (OSError, ValueError, KeyError, TypeError) as error:
            log.warning("a question of ssh was not answered: %s", error)
        finally:
            self._asking.discard(task)
            writer.close()

    async def _answer(self, text: str, gone: asyncio.Task[bytes]) -> str | None:
        """Return the person's answer, None if they gave up or the program that asked has ended."""
        *before, last = text.rstrip("\n").split("\n")
        echo = _YES_NO in last
        asking = asyncio.create_task(self._prompts.challenge("", "\n".join(before), [(last, echo)]), name="askpass")
        try:
            await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
            answers = asking.result() if asking.done() else None
            if asking.done() and not answers and not echo and "passphrase" not in last.lower():
                self.gave_up.set()
        finally:
            await cancelled(asking, gone)
        return answers[0] if answers else None
