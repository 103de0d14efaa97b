"""Find a ControlMaster that runs already, check it, and run commands over it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import stat
import struct
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from ..errors import CcbError, ConnectionLost
from ..secret import without_secrets
from ..ssh_config.host_config import HostConfig
from ..ssh_config.ssh_target import SshTarget
from ..transports.askpass import NO_ASKING
from ..transports.command_transport import CommandPipe, CommandTransport, PipeCommand
from ..transports.login_failures import SSH_FAILED, session_failure
from ..transports.login_prompts import Prompts
from ..transports.pipe import Pipe, Transport
from ..wire.dataclass import dataclass

_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")  # what `%C` becomes


@dataclass(frozen=True)
class LiveMaster:
    """The control socket of a master. `problem` says why it is not used, "" if it may be."""

    socket: Path
    problem: str = ""


def find_master(config: HostConfig, target: SshTarget) -> LiveMaster | None:
    """Return the master that the person's ssh_config names for `target`, or None. ccb uses it only if nobody else can
    have made it, and if it leads to this account: its name says so, or the command line names it for this host."""
    path = config.control_path
    if path is None or not os.path.lexists(path):
        return None
    if config.control_asks:
        return LiveMaster(path, "it asks for confirmation (ControlMaster ask)")
    problem = socket_problem(path)
    named = any(option.strip().lower().startswith("controlpath") for option in target.options)
    if not problem and not named and not _names_account(path.name, config, target):
        problem = "its name does not tell user, host and port apart: use %C in ControlPath"
    return LiveMaster(path, problem or peer_problem(path))


def socket_problem(path: Path) -> str:
    """Return why the socket at `path` may belong to somebody else, "" if only this user can have made it."""
    try:
        found, directory = path.lstat(), path.parent.stat()
    except OSError as error:
        return str(error.strerror)
    if not stat.S_ISSOCK(found.st_mode):
        return "it is not a socket"
    if found.st_uid != os.getuid():
        return f"it belongs to user {found.st_uid}"
    if directory.st_uid not in (os.getuid(), 0) or stat.S_IMODE(directory.st_mode) & 0o022:
        return f"other users may write to {path.parent}"
    return ""


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


def _names_account(name: str, config: HostConfig, target: SshTarget) -> bool:
    if _HASH.search(name):
        return True
    hosts = sorted({config.hostname, target.host}, key=len, reverse=True)
    for choices in (hosts, [config.user], [str(config.port)]):
        found = next((each for each in choices if each.lower() in name.lower()), None)
        if found is None:
            return False
        at = name.lower().index(found.lower())
        name = f"{name[:at]}\0{name[at + len(found) :]}"
    return True


def client_words(ssh: str, socket: Path, host: str, *, send_env: Sequence[str] = ()) -> list[str]:
    """Return the words of a client of the master; the command line follows. Its own way to the host is `false`."""
    sending = ["-o", f"SendEnv={' '.join(send_env)}"] if send_env else []
    return [
        ssh, "-F", "none", "-S", str(socket).replace("%", "%%"), "-o", "ControlMaster=no", "-o", "ProxyCommand=false",
        "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ClearAllForwardings=yes", "-a", "-x", *sending, "-T",
        "--", host,
    ]  # fmt: skip


log = logging.getLogger(__name__)

ANSWER_S = 1.0  # for the first word over a master, which may not notice for minutes that its connection is dead

LogIn = Callable[[], Awaitable[Transport]]


def usable_master(config: HostConfig, target: SshTarget, prompts: Prompts) -> Path | None:
    master = find_master(config, target)
    if master is None or shutil.which("ssh") is None:
        return None
    silent = _inode(master.socket) in prompts.memory.silent_masters
    if master.problem or silent:
        log.info("the master at %s is not used: %s", master.socket, master.problem or "it did not answer before")
        return None
    return master.socket


def over_master(socket: Path, config: HostConfig, target: SshTarget, prompts: Prompts, log_in: LogIn) -> MasterTrial:
    forget = partial(prompts.memory.silent_masters.add, _inode(socket))
    commands = CommandTransport(client_command(socket, config, target), env=client_env())
    return MasterTrial(socket, commands, log_in, forget)


def client_command(socket: Path, config: HostConfig, target: SshTarget) -> PipeCommand:
    words = client_words("ssh", socket, target.host, send_env=config.stream.send_env)
    failure = partial(session_failure, target.shown, by_hand=target.shell_command())
    return PipeCommand(target.shown, "ssh", lambda line: [*words, line], failure, lost_status=SSH_FAILED)


def client_env() -> dict[str, str]:
    return {**without_secrets(os.environ), **NO_ASKING}


def _inode(path: Path) -> int:
    try:
        return path.lstat().st_ino
    except OSError:
        return 0


class MasterTrial(Transport):
    """Runs commands over the master at `socket`. If the first one gets no answer in `answer_s`, it runs again over
    `log_in`, so it must have no effect before its first output (`on_trial`)."""

    def __init__(self, socket: Path, commands: CommandTransport, log_in: LogIn, gave_up: Callable[[], None]) -> None:
        self.socket = socket
        self.answer_s = ANSWER_S
        self.name = commands.name
        self._commands = commands
        self._log_in = log_in
        self._gave_up = gave_up
        self._proved = False
        self._closed = False
        self._login: Transport | None = None

    @property
    def on_trial(self) -> bool:
        return not self._proved and self._login is None

    @property
    def shared(self) -> bool:
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
