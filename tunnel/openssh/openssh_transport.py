"""The transport over the OpenSSH client: a master connection logs in once, and each command is a client of it. It ends
when the ccb that started it ends, even if that ccb is killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Awaitable, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from ..errors import AuthFailed, Unreachable
from ..plain_text import neutralise
from ..ssh_config.config_files import resolve, ssh_says
from ..ssh_config.ssh_target import Lines, SshTarget
from ..transports import command_transport as commands
from ..transports.askpass import NO_ASKING, Askpass, askpass_in, peer_problem
from ..transports.login_failures import SSH_FAILED, last_words, ssh_failure
from ..transports.login_prompts import NobodyToAsk, Prompts, is_told
from ..transports.pipe import Transport
from .connection_keeper import ENDING_WITH_STDIN
from .shared_master import MasterTrial, client_command, usable_master

log = logging.getLogger(__name__)

_POLL_S = 0.01
_END_S = 3.0
_GROUP_END_S = 1.0
_RUNNER = ("/bin/sh", "-c", ENDING_WITH_STDIN, "sh")


class Master:
    """A master connection that is logged in; the caller must `end` it, or leave it to its runner (`let_go`)."""

    def __init__(self, child: commands.TransportProcess, listening: asyncio.Task[None]) -> None:
        self._child = child
        self._listening = listening

    async def end(self) -> None:
        stdin = self._child.process.stdin
        assert stdin is not None
        stdin.close()
        await self.let_go()

    async def let_go(self) -> None:
        """Wait for the end of the process that was started here. Another one may keep the connection."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_END_S):
                    await self._child.exited()
        finally:
            await _ended(self._child, self._listening)


async def log_in(
    target: SshTarget,
    socket: Path,
    configured: Lines,
    askpass: Askpass,
    prompts: Prompts,
    *,
    words: Sequence[str] = ("ssh",),
    runner: Sequence[str] = _RUNNER,
) -> Master:
    """Start the master that listens at `socket`, and wait for its login. `runner` runs the ssh of `words`, and ends it
    when its own stdin ends. Raise AuthFailed if the person gave up, and what `ssh_failure` reads from ssh's output."""
    name, shown, gave_up = target.shown, target.shell_command(words), askpass.gave_up
    pipe, null = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    argv = [*runner, *words, *NO_COMMAND, *target.flags(), *_login_options(configured, prompts)]
    argv += ["-S", str(socket).replace("%", "%%"), "-M", "-N", "-T", "-o", "ControlPersist=no", "--", target.host]
    child = await commands.start(argv, shown, stdin=pipe, stdout=null, env=askpass.env)
    assert child.process.stderr is not None
    tail, logged_in = commands.StderrTail(), False

    def say(line: str) -> None:
        if logged_in:
            log.info("the ssh to %s says: %s", name, line)
        else:
            prompts.banner(line)

    listening = asyncio.create_task(tail.drain(child.process.stderr.read, say), name="stderr of a master")
    waits = [asyncio.create_task(work) for work in (child.exited(), gave_up.wait(), _exists(socket))]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        logged_in = waits[2].done()
        if logged_in:
            return Master(child, listening)
        if gave_up.is_set():
            raise AuthFailed(
                f"the login to {name} was cancelled",
                evidence=last_words(neutralise(tail.text())) if is_told(prompts) else neutralise(tail.text().strip()),
                do="Answer its questions, or log in with a key or an agent.",
            )
        await asyncio.wait({listening}, timeout=commands.LAST_WORDS_S)  # a program of the person may hold it open
        said, status = neutralise(tail.text().strip()), await child.exited()
        raise ssh_failure(name, status, said, shown, told=is_told(prompts)) or Unreachable(
            f"no SSH connection to {name}",
            evidence=said or f"ssh ended with status {status}.",
            do=f"Make `{shown}` work first.",
        )
    finally:
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        if not logged_in:
            await _ended(child, listening)


async def _exists(socket: Path) -> None:
    exists = socket.exists
    while not exists():  # noqa: ASYNC110
        await asyncio.sleep(_POLL_S)


async def _ended(child: commands.TransportProcess, listening: asyncio.Task[None]) -> None:
    """End ssh and kill what is left of its process group: ssh itself sends a ProxyCommand only SIGHUP."""
    await child.end()
    group = child.process.pid  # not reused by the kernel while the group has a process
    with contextlib.suppress(ProcessLookupError, PermissionError):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GROUP_END_S):
                while True:
                    os.killpg(group, 0)
                    await asyncio.sleep(_POLL_S)
        os.killpg(group, signal.SIGKILL)
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)


KEEPALIVE_S = 5
KEEPALIVE_COUNT = 60
"""ssh also gives up a login in which the server is silent for this long: 5 minutes, in which the person may fetch their
phone. Silence after the login is noticed by the link, much earlier."""
_QUIET = (
    "-a", "-x", "-o", "ClearAllForwardings=yes",
    "-o", f"ServerAliveInterval={KEEPALIVE_S}", "-o", f"ServerAliveCountMax={KEEPALIVE_COUNT}",
)  # fmt: skip

_CONNECT_S = 10
_INDIRECT_CONNECT_S = 300  # behind a jump host or proxy command, which asks its own questions first

NO_COMMAND = ("-o", "RemoteCommand=none")  # in front of the person's options: the first value counts
_RUN_COMMAND = ("SessionType=default", "StdinNull=no")  # an old ssh does not know these
_OWN_MULTIPLEXING = ("controlmaster", "controlpath", "controlpersist")


async def connect(
    target: SshTarget, prompts: Prompts, *, env: commands.Env, words: Sequence[str] = ("ssh",)
) -> Transport:
    """Log in with the OpenSSH client that `words` start, or use a master that the person has running. If they set
    ControlMaster or ControlPath with `-o`, ssh does what that says. Raise UsageError, ConfigError, ConnectError."""
    configured = await ssh_says([*words, *NO_COMMAND, *target.flags(), "-G"], target.host, env)

    def log_in() -> Awaitable[Transport]:
        return _log_in(target, prompts, env, words, configured)

    if configured.get("controlpath", ["none"]) != ["none"] and not _decides_on_multiplexing(target):
        config = await resolve(target, words)
        master = usable_master(config, target, prompts)
        if master is not None:
            return MasterTrial(master, target, config, prompts, log_in)
    return await log_in()


async def _log_in(
    target: SshTarget, prompts: Prompts, env: commands.Env, words: Sequence[str], configured: Lines
) -> OpenSshTransport:
    async with AsyncExitStack() as stack:
        askpass = await askpass_in(stack, prompts, env)
        if _decides_on_multiplexing(target):  # over a master of theirs, or each command logs in by itself
            argv = [*words, *NO_COMMAND, *target.flags(), *_login_options(configured, prompts)]
            argv += [*_run_options(configured), "-T", "--", target.host]
            shown = target.shell_command(words)
            failure = partial(ssh_failure, target.shown, by_hand=shown, told=is_told(prompts))
            command = commands.PipeCommand(
                target.shown, shown, lambda line: [*argv, line], failure, lost_status=SSH_FAILED
            )
            return OpenSshTransport(command, None, env=askpass.env, notice=prompts.banner, stack=stack.pop_all())
        socket = askpass.directory / "m"
        master = await log_in(target, socket, configured, askpass, prompts, words=words)
        stack.push_async_callback(master.end)
        command = client_command(socket, target, configured, words)
        return OpenSshTransport(command, socket, env={**env, **NO_ASKING}, stack=stack.pop_all())


def _decides_on_multiplexing(target: SshTarget) -> bool:
    return any(option.strip().lower().startswith(_OWN_MULTIPLEXING) for option in target.options)


class OpenSshTransport(commands.CommandTransport):
    """Commands over the master at `socket`, None if the person decides about multiplexing. `stack` ends ours."""

    def __init__(
        self,
        command: commands.PipeCommand,
        socket: Path | None,
        *,
        env: commands.Env,
        notice: commands.Notice | None = None,
        stack: AsyncExitStack | None = None,
    ) -> None:
        super().__init__(command, env=env, notice=notice, stack=stack)
        self._socket = socket
        self.warm = socket is not None

    @property
    def alive(self) -> bool:
        if self._given_up or self._socket is None:
            return super().alive
        return not peer_problem(self._socket)


def _login_options(configured: Lines, prompts: Prompts) -> list[str]:
    options = [*_QUIET, *(["-o", "BatchMode=yes"] if isinstance(prompts, NobodyToAsk) else []), "-o", "LogLevel=INFO"]
    direct = all(configured.get(key, ["none"]) == ["none"] for key in ("proxyjump", "proxycommand"))
    if configured.get("connecttimeout", ["none"])[0] in ("none", "0"):
        options += ["-o", f"ConnectTimeout={_CONNECT_S if direct else _INDIRECT_CONNECT_S}"]
    return options


def _run_options(configured: Lines) -> list[str]:
    known = [option for option in _RUN_COMMAND if option.partition("=")[0].lower() in configured]
    return [word for option in known for word in ("-o", option)]
