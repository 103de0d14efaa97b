"""The transport over the OpenSSH client: a master connection that logs in once, in a private directory, and a client of it for
each command. What ssh asks is asked through askpass; where nobody can be asked it runs in batch mode."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from ..login.askpass import Askpass, Stored, private_directory, variables_without_asking
from ..login.command_failures import SSH_FAILED, session_failure, ssh_failure
from ..login.host_keys import pattern_for
from ..login.prompter import NobodyToAsk, Prompts, is_told
from ..ssh_config.resolve import ssh_says
from ..ssh_config.target import SshTarget
from ..transports.command import CommandPipe, CommandTransport, start
from .master import Master, log_in

log = logging.getLogger(__name__)

KEEPALIVE_S = 5
KEEPALIVE_COUNT = 60
"""ssh also gives up a login in which the server is silent for so long, while the person looks for their phone; silence later
is noticed by the link."""
_CONNECT_S = 10
_WAY_S = 300
"""Seconds for a way that leads over others: a jump host or a proxy command asks its questions before the host can greet."""

_CHECK_S = 5.0
_NO_COMMAND = ("-o", "RemoteCommand=none")  # before what the person says: the first value counts
_A_COMMAND = ("SessionType=default", "StdinNull=no")  # an old ssh does not know them
_OWN_MULTIPLEXING = ("controlmaster", "controlpath", "controlpersist")


async def connect(
    target: SshTarget, prompts: Prompts, *, env: Mapping[str, str], words: Sequence[str] = ("ssh",)
) -> OpenSshTransport:
    """Log in to `target` with the OpenSSH client that `words` start.

    A master of the person's own that lives is used as it is, and so is what they say about ControlMaster and ControlPath with
    `-o`. Raises UsageError (no such program), ConfigError, Unreachable, AuthFailed, HostKeyError.
    """
    base = [*words, *_NO_COMMAND, *target.flags()]
    shown = target.shell_command(words)
    configured = await ssh_says([*base, "-G"], target.host, env)
    wanted = any(option.strip().lower().startswith(_OWN_MULTIPLEXING) for option in target.options)
    theirs = not wanted and configured.get("controlpath", ["none"]) != ["none"]
    async with AsyncExitStack() as stack:
        directory = private_directory(env)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        askpass = await stack.enter_async_context(Askpass(directory, prompts, _stored(configured)))
        asking = {**env, **askpass.variables}
        batch = ["-o", "BatchMode=yes"] if isinstance(prompts, NobodyToAsk) else []
        known = [option for option in _A_COMMAND if option.partition("=")[0].lower() in configured]
        command = [word for option in known for word in ("-o", option)]
        once = [*_quiet(), *batch, "-o", "LogLevel=INFO"]
        direct = all(configured.get(way, ["none"]) == ["none"] for way in ("proxyjump", "proxycommand"))
        if configured.get("connecttimeout", ["none"])[0] in ("none", "0"):
            once += ["-o", f"ConnectTimeout={_CONNECT_S if direct else _WAY_S}"]
        if wanted or (theirs and await _serves(words, base, target, env)):
            argv, environment = [*base, *once, *command, "-T", "--", target.host], asking
            master = None
        else:
            socket = directory / "m"
            argv = [
                *base,
                *once,
                "-S",
                _literal(socket),
                "-M",
                "-N",
                "-T",
                "-o",
                "ControlPersist=no",
                "--",
                target.host,
            ]
            master = await log_in(
                argv,
                socket,
                name=target.shown,
                shown=shown,
                env=asking,
                prompts=prompts,
                gave_up=askpass.gave_up,
            )
            stack.push_async_callback(master.end)
            # A client whose master is gone must not log in by itself, hence the proxy that leads nowhere. The first value
            # of an option counts, and a ProxyJump before it would count instead.
            argv = [*words, "-o", "ProxyCommand=false", *_NO_COMMAND, *command, *target.flags(), *_quiet()]
            argv += [
                "-o",
                "BatchMode=yes",
                "-o",
                "LogLevel=ERROR",
                "-o",
                "ControlMaster=no",
                "-S",
                _literal(socket),
                "-T",
                "--",
                target.host,
            ]
            environment = {**env, **variables_without_asking()}
        commands = CommandTransport(
            target.shown,
            shown,
            lambda line: [*argv, line],
            partial(ssh_failure, target.shown, by_hand=shown, told=is_told(prompts))
            if master is None
            else partial(session_failure, target.shown, by_hand=shown),
            env=environment,
            notice=prompts.banner if master is None else None,
            lost_status=SSH_FAILED,
        )
        return OpenSshTransport(commands, master, stack.pop_all())


class OpenSshTransport:
    """Commands over one login. `master` is the one that is ours, None when the person's own is used or none; `stack` ends it."""

    def __init__(self, commands: CommandTransport, master: Master | None, stack: AsyncExitStack) -> None:
        self._commands = commands
        self._master = master
        self._stack = stack
        self._given_up = False

    @property
    def name(self) -> str:
        return self._commands.name

    async def execute(self, command: str) -> CommandPipe:
        return await self._commands.execute(command)

    @property
    def alive(self) -> bool:
        if self._given_up:
            return False
        return self._commands.alive if self._master is None else self._master.alive

    @property
    def warm(self) -> bool:
        return self._master is not None

    def abort(self) -> None:
        self._given_up = True
        self._commands.abort()

    async def close(self) -> None:
        self._given_up = True
        await self._commands.close()
        await self._stack.aclose()


def _quiet() -> list[str]:
    """Nothing is forwarded, no terminal, no command but ours."""
    return [
        "-a", "-x", "-o", "ClearAllForwardings=yes",
        "-o", f"ServerAliveInterval={KEEPALIVE_S}", "-o", f"ServerAliveCountMax={KEEPALIVE_COUNT}",
    ]  # fmt: skip


def _stored(configured: Mapping[str, Sequence[str]]) -> Stored | None:
    """Where ssh would write the host key that it asks about."""
    (file, *_), (host, *_), (port, *_), (alias, *_) = (
        configured.get(key) or [""] for key in ("userknownhostsfile", "hostname", "port", "hostkeyalias")
    )
    if file in ("", "none") or not port.isdigit():
        return None
    return Stored(alias or pattern_for(host, int(port)), file)


async def _serves(words: Sequence[str], base: Sequence[str], target: SshTarget, env: Mapping[str, str]) -> bool:
    """Whether a master of the person's own is there and its host answers. It may not have noticed that the network is another one,
    and then does so only after many minutes."""
    if await _status([*base, "-O", "check", "--", target.host], env) != 0:
        return False
    # without a way of its own this one cannot log in
    argv = [*words, "-o", "ProxyCommand=false", *base[len(words) :], *_quiet(), "-o", "BatchMode=yes"]
    status = await _status([*argv, "-o", "ControlMaster=no", "-T", "--", target.host, "true"], env)
    return status not in (None, SSH_FAILED)


async def _status(argv: Sequence[str], env: Mapping[str, str]) -> int | None:
    """The exit code of an ssh that should not take long; None when it does."""
    null = asyncio.subprocess.DEVNULL
    child = await start(argv, "ssh", stdin=null, stdout=null, env={**env, **variables_without_asking()})
    try:
        await asyncio.wait_for(child.process.communicate(), _CHECK_S)
    except TimeoutError:
        log.warning("the master connection does not answer")
        return None
    finally:
        await child.end()
    return child.process.returncode


def _literal(path: Path) -> str:
    """`path` where ssh would expand %-tokens."""
    return str(path).replace("%", "%%")
