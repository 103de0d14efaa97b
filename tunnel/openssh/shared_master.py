"""Find a ControlMaster that runs already, check it, and run commands over it."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shlex
import shutil
import stat
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

from ..errors import CcbError, ConnectionLost
from ..secret import without_secrets
from ..ssh_config.host_config import HostConfig
from ..ssh_config.ssh_target import Lines, SshTarget
from ..transports.askpass import NO_ASKING, peer_problem
from ..transports.command_transport import CommandPipe, CommandTransport, PipeCommand
from ..transports.login_failures import SSH_FAILED, session_failure
from ..transports.login_prompts import Prompts
from ..transports.pipe import Pipe, Transport

_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{40}(?![0-9a-f])")  # what `%C` becomes


def master_problem(config: HostConfig, target: SshTarget) -> str | None:
    """Return why the master at `control_path` of `target` is not used, "" if it may be, None if there is none. ccb uses
    it only if nobody else can have made it, and if it leads to this account: its name says so, or the command line
    names it for this host."""
    path = config.control_path
    if path is None or not os.path.lexists(path):
        return None
    if config.control_asks:
        return "it asks for confirmation (ControlMaster ask)"
    problem = socket_problem(path)
    named = any(option.strip().lower().startswith("controlpath") for option in target.options)
    if not problem and not named and not _names_account(path.name, config, target):
        problem = "its name does not tell user, host and port apart: use %C in ControlPath"
    return problem or peer_problem(path)


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


log = logging.getLogger(__name__)

ANSWER_S = 1.0  # for the first word over a master, which may not notice for minutes that its connection is dead

LogIn = Callable[[], Awaitable[Transport]]


def usable_master(config: HostConfig, target: SshTarget, prompts: Prompts) -> Path | None:
    path, problem = config.control_path, master_problem(config, target)
    if path is None or problem is None or shutil.which("ssh") is None:
        return None
    if not problem and _inode(path) in prompts.memory.silent_masters:
        problem = "it did not answer before"
    if problem:
        log.info("the master at %s is not used: %s", path, problem)
        return None
    return path


def client_command(socket: Path, target: SshTarget, lines: Lines, words: Sequence[str] = ("ssh",)) -> PipeCommand:
    """Return the command of a client of the master. It reads no configuration: of `lines` (`ssh -G`) only the variables
    for a command are for it. Its own way to the host is `false`: it must not log in if the master is gone."""
    sent = [word for patterns in lines.get("sendenv", ()) for word in ("-o", f"SendEnv={patterns}")]
    if lines.get("setenv"):
        sent += ["-o", f"SetEnv={shlex.join(lines['setenv'])}"]  # only the first one counts
    argv = [
        words[0], "-F", "none", "-S", str(socket).replace("%", "%%"), "-o", "ControlMaster=no", "-o",
        "ProxyCommand=false", "-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ClearAllForwardings=yes", "-a",
        "-x", *sent, "-T", "--", target.host,
    ]  # fmt: skip
    shown = target.shell_command(words)
    failure = partial(session_failure, target.shown, by_hand=shown)
    return PipeCommand(target.shown, shown, lambda line: [*argv, line], failure, lost_status=SSH_FAILED)


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

    def __init__(self, socket: Path, target: SshTarget, config: HostConfig, prompts: Prompts, log_in: LogIn) -> None:
        self.socket = socket
        self.answer_s = ANSWER_S
        self.name = target.shown
        self._commands = CommandTransport(client_command(socket, target, config.given), env=client_env())
        self._log_in = log_in
        self._silent = prompts.memory.silent_masters
        self._inode = _inode(socket)
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
        self._silent.add(self._inode)
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
