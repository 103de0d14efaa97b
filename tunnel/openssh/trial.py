"""The transport over a master connection that was there before: its first command is the test, and a login is the
other way."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from ..errors import CcbError, ConnectionLost
from ..login.askpass import variables_without_asking
from ..login.command_failures import SSH_FAILED, session_failure
from ..login.prompter import Prompts
from ..ssh_config.host_config import HostConfig
from ..ssh_config.target import SshTarget
from ..transports.command import CommandPipe, CommandTransport, PipeCommand
from ..transports.environment import without_secrets
from ..transports.pipe import Pipe, Transport
from .live_master import client_words, find_master, peer_problem

log = logging.getLogger(__name__)

ANSWER_S = 1.0
"""Seconds in which the host must say its first word over a master. A master may not notice for many minutes that its
connection is dead."""

LogIn = Callable[[], Awaitable[Transport]]


def usable_master(config: HostConfig, target: SshTarget, prompts: Prompts) -> Path | None:
    """Return the socket of the person's own master for `target`, None without a usable one."""
    master = find_master(config, target)
    if master is None or shutil.which("ssh") is None:
        return None
    silent = _inode(master.socket) in prompts.memory.silent_masters
    if master.problem or silent:
        log.info("the master at %s is not used: %s", master.socket, master.problem or "it did not answer before")
        return None
    return master.socket


def over_master(socket: Path, config: HostConfig, target: SshTarget, prompts: Prompts, log_in: LogIn) -> MasterTrial:
    """Return the transport over the master at `socket`, which logs in with `log_in` if the master does not answer."""
    forget = partial(prompts.memory.silent_masters.add, _inode(socket))
    return MasterTrial(socket, commands_over(socket, config, target), log_in, forget)


def commands_over(socket: Path, config: HostConfig, target: SshTarget) -> CommandTransport:
    """Return what starts commands as clients of the master at `socket`."""
    words = client_words("ssh", socket, target.host, send_env=config.stream.send_env)
    failure = partial(session_failure, target.shown, by_hand=target.shell_command())
    command = PipeCommand(target.shown, "ssh", lambda line: [*words, line], failure, lost_status=SSH_FAILED)
    return CommandTransport(command, env={**without_secrets(os.environ), **variables_without_asking()})


def _inode(path: Path) -> int:
    """Return the number of a socket, 0 if it is gone. A new master has a new one."""
    try:
        return path.lstat().st_ino
    except OSError:
        return 0


class MasterTrial:
    """Runs commands over the master at `socket` with `commands`.

    If the first command gets no answer in `answer_s`, it is given up: `log_in` logs in, and the command runs again over
    that. So it must have no effect before its first output (`on_trial`). `gave_up` is called when the master has not
    answered.
    """

    def __init__(self, socket: Path, commands: CommandTransport, log_in: LogIn, gave_up: Callable[[], None]) -> None:
        self.socket = socket
        self.answer_s = ANSWER_S
        self._commands = commands
        self._log_in = log_in
        self._gave_up = gave_up
        self._proved = False
        self._closed = False
        self._login: Transport | None = None

    @property
    def name(self) -> str:
        return self._commands.name

    @property
    def on_trial(self) -> bool:
        """Whether the next command may be given up and run again."""
        return not self._proved and self._login is None

    @property
    def shared(self) -> bool:
        """Whether the master carries the commands."""
        return self._login is None

    async def execute(self, command: str) -> Pipe:
        if self._login is not None:
            return await self._login.execute(command)
        pipe = await self.answering(command)
        if pipe is not None:
            if not self._proved:
                log.info("no login to %s: the master at %s carries this connection", self.name, self.socket)
            self._proved = True
            return pipe
        self._gave_up()
        if self._proved or self._closed:
            raise ConnectionLost(f"the master connection to {self.name} does not answer any more")
        self._login = await self._log_in()
        return await self._login.execute(command)

    async def answering(self, command: str) -> CommandPipe | None:
        """Start `command` over the master. Return its pipe at the first word of the host, or None."""
        began = asyncio.get_running_loop().time()
        pipe = await self._commands.execute(command)
        why = ""
        try:
            async with asyncio.timeout_at(began + self.answer_s):
                if await pipe.answers():
                    return pipe
            why = pipe.stderr_tail().strip() or "it ended without a word"
        except TimeoutError:
            why = f"no answer within {self.answer_s:g} s"
        except CcbError as error:
            why = f"{error.what} {error.evidence}".strip()
        finally:
            if why or not pipe.answered:
                pipe.kill()
                await pipe.close()
        log.info("the master at %s is not used: %s", self.socket, why)
        return None

    @property
    def alive(self) -> bool:
        if self._login is not None:
            return self._login.alive
        return not self._closed and not peer_problem(self.socket)

    @property
    def warm(self) -> bool:
        return True if self._login is None else self._login.warm

    def abort(self) -> None:
        self._closed = True
        self._commands.abort()
        if self._login is not None:
            self._login.abort()

    async def close(self) -> None:
        self._closed = True
        await self._commands.close()
        if self._login is not None:
            await self._login.close()
