"""The transport over the OpenSSH client: a master connection logs in once, and each command is a client of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from ..errors import CcbError
from ..ssh_config.config_files import resolve, ssh_says
from ..ssh_config.ssh_target import SshTarget
from ..transports.askpass import NO_ASKING, askpass_in
from ..transports.command_transport import CommandTransport, Notice, PipeCommand
from ..transports.login_failures import SSH_FAILED, session_failure, ssh_failure
from ..transports.login_prompts import NobodyToAsk, Prompts, is_told
from ..transports.pipe import Transport
from .control_master import Master, MasterCommand, log_in
from .shared_master import over_master, usable_master

KEEPALIVE_S = 5
KEEPALIVE_COUNT = 60
"""ssh also gives up a login in which the server is silent for this long: 5 minutes, in which the person may fetch their
phone. Silence after the login is noticed by the link, much earlier."""
_QUIET = (
    "-a", "-x", "-o", "ClearAllForwardings=yes",
    "-o", f"ServerAliveInterval={KEEPALIVE_S}", "-o", f"ServerAliveCountMax={KEEPALIVE_COUNT}",
)  # fmt: skip

_CONNECT_S = 10
_INDIRECT_CONNECT_S = 300
"""ConnectTimeout behind a jump host or proxy command: it asks its own questions before the host can greet."""

NO_COMMAND = ("-o", "RemoteCommand=none")  # in front of the person's options: the first value counts
_RUN_COMMAND = ("SessionType=default", "StdinNull=no")  # an old ssh does not know these
_OWN_MULTIPLEXING = ("controlmaster", "controlpath", "controlpersist")

_LOGGED_IN_ALREADY = ("-o", "ProxyCommand=false")
"""For clients of a master: if it is gone, they must not log in themselves, so their own way leads nowhere. It must
stand before a ProxyJump, which would count instead."""


async def connect(
    target: SshTarget, prompts: Prompts, *, env: Mapping[str, str], words: Sequence[str] = ("ssh",)
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
            return over_master(master, config, target, prompts, log_in)
    return await log_in()


async def _log_in(
    target: SshTarget,
    prompts: Prompts,
    env: Mapping[str, str],
    words: Sequence[str],
    configured: Mapping[str, Sequence[str]],
) -> OpenSshTransport:
    base = [*words, *NO_COMMAND, *target.flags()]
    async with AsyncExitStack() as stack:
        askpass = await askpass_in(stack, prompts, env)
        asking = {**env, **askpass.variables}
        first = [*base, *login_options(configured, prompts)]
        if _decides_on_multiplexing(target):
            argv = [*first, *_run_options(configured), "-T", "--", target.host]
            failure = partial(ssh_failure, told=is_told(prompts))
            command = _command(target, words, argv, failure)  # over a master of theirs, or each logs in by itself
            return OpenSshTransport(command, None, env=asking, notice=prompts.banner, stack=stack.pop_all())
        socket = askpass.directory / "m"
        argv = [*first, "-S", literal(socket), "-M", "-N", "-T", "-o", "ControlPersist=no", "--", target.host]
        login = MasterCommand(argv, socket, target.shown, target.shell_command(words))
        master = await log_in(login, env=asking, prompts=prompts, gave_up=askpass.gave_up)
        stack.push_async_callback(master.end)
        argv = [*words, *_LOGGED_IN_ALREADY, *NO_COMMAND, *_run_options(configured), *target.flags(), *_QUIET]
        argv += ["-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", "ControlMaster=no", "-S", literal(socket)]
        argv += ["-T", "--", target.host]
        command = _command(target, words, argv, session_failure)
        env = {**env, **NO_ASKING}
        return OpenSshTransport(command, master, env=env, stack=stack.pop_all())


def _decides_on_multiplexing(target: SshTarget) -> bool:
    return any(option.strip().lower().startswith(_OWN_MULTIPLEXING) for option in target.options)


class OpenSshTransport(CommandTransport):
    """Commands over one login. `master` is None if the person decides about multiplexing. `stack` ends ours."""

    def __init__(
        self,
        command: PipeCommand,
        master: Master | None,
        *,
        env: Mapping[str, str],
        notice: Notice | None = None,
        stack: AsyncExitStack | None = None,
    ) -> None:
        super().__init__(command, env=env, notice=notice, stack=stack)
        self._master = master
        self.warm = master is not None

    @property
    def alive(self) -> bool:
        if self._given_up or self._master is None:
            return super().alive
        return self._master.alive


def _command(
    target: SshTarget, words: Sequence[str], argv: Sequence[str], failure: Callable[..., CcbError | None]
) -> PipeCommand:
    shown = target.shell_command(words)
    reading = partial(failure, target.shown, by_hand=shown)
    return PipeCommand(target.shown, shown, lambda line: [*argv, line], reading, lost_status=SSH_FAILED)


def login_options(configured: Mapping[str, Sequence[str]], prompts: Prompts) -> list[str]:
    options = [*_QUIET, *(["-o", "BatchMode=yes"] if isinstance(prompts, NobodyToAsk) else []), "-o", "LogLevel=INFO"]
    direct = all(configured.get(key, ["none"]) == ["none"] for key in ("proxyjump", "proxycommand"))
    if configured.get("connecttimeout", ["none"])[0] in ("none", "0"):
        options += ["-o", f"ConnectTimeout={_CONNECT_S if direct else _INDIRECT_CONNECT_S}"]
    return options


def _run_options(configured: Mapping[str, Sequence[str]]) -> list[str]:
    known = [option for option in _RUN_COMMAND if option.partition("=")[0].lower() in configured]
    return [word for option in known for word in ("-o", option)]


def literal(path: Path) -> str:
    return str(path).replace("%", "%%")
