"""The ways to a host: which one the command line asks for, whether its options fit it, and its transport."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.errors import UsageError
from ccb.tunnel.transports.environment import without_secrets

if TYPE_CHECKING:
    from ccb.tunnel.login.prompter import Prompts
    from ccb.tunnel.ssh_config.resolve import SshTarget
    from ccb.tunnel.transports.pipe import Transport

    from .arguments import Arguments


class Way(Enum):
    """How the host is reached."""

    HERE = "here"  # this machine
    ASYNCSSH = "asyncssh"
    OPENSSH = "ssh"
    WRAPPER = "wrapper"  # a program that takes a host and a command, as ssh does
    COMMAND = "command"  # a command that leads to a shell


def way_of(arguments: Arguments) -> Way:
    """The way `arguments` ask for. Raises UsageError when a command cannot be read."""
    from ccb.tunnel.transports.command_line import is_openssh, words_of

    if arguments.ssh_command is not None:
        return Way.OPENSSH if is_openssh(words_of(arguments.ssh_command, "--ssh-command")) else Way.WRAPPER
    if arguments.transport not in (None, Way.ASYNCSSH.value):
        return Way.OPENSSH if arguments.transport == Way.OPENSSH.value else Way.COMMAND
    return Way.ASYNCSSH if arguments.target is not None and not arguments.local else Way.HERE


def shown_host(arguments: Arguments) -> str:
    """How the person called the host."""
    host = arguments.target.login if arguments.target else "local"
    if way_of(arguments) is Way.COMMAND and arguments.target is None:
        host = str(arguments.transport).strip()
    return f"{arguments.container} on {host}" if arguments.container else host


def needs_host(arguments: Arguments) -> bool:
    """Whether a host must be named: a command leads to one place only."""
    return arguments.transport in (None, Way.ASYNCSSH.value, Way.OPENSSH.value)


def check_way(arguments: Arguments) -> None:
    """Raise UsageError for options that do not go together."""
    way = way_of(arguments)
    given = arguments.transport is not None or arguments.ssh_command is not None or arguments.container is not None
    if given and arguments.command in ("", "auth", "help"):
        raise UsageError("--transport, --ssh-command and --container belong to `ccb ssh`", do="Write `ccb ssh HOST …`.")
    if arguments.local and (arguments.transport is not None or arguments.ssh_command is not None):
        raise UsageError("--local excludes --transport and --ssh-command", do="Give one of them.")
    if arguments.ssh_command is not None and arguments.transport not in (None, Way.OPENSSH.value):
        raise UsageError("--ssh-command goes with --transport ssh only", do="Leave out --transport.")
    if way in (Way.OPENSSH, Way.WRAPPER) and arguments.target is None:
        raise UsageError(f"ccb {arguments.command} needs a host", do=f"Write `ccb {arguments.command} [user@]host …`.")
    if arguments.container is not None:
        from ccb.tunnel.openssh.container import container_name

        container_name(arguments.container)
    if way is Way.COMMAND:
        from ccb.tunnel.transports.command_line import words_of

        words_of(str(arguments.transport), "--transport")
    if way in (Way.COMMAND, Way.WRAPPER):
        option = "--transport" if way is Way.COMMAND else "--ssh-command"
        for name, value in (
            ("-i", arguments.identities),
            ("-P", arguments.port),
            ("-o", arguments.ssh_options),
            ("user@", arguments.target.user if way is Way.COMMAND and arguments.target else None),
        ):
            if value:
                raise UsageError(
                    f"{name} is for ssh: it does not go with {option} '…'", do=f"Write it into the command of {option}."
                )


async def open_way(
    arguments: Arguments, prompts: Prompts, environ: Mapping[str, str], busy: Callable[[], None] = lambda: None
) -> Transport:
    """Connect; `busy` is called once there is time for other work. Raises CcbError."""
    transport = await _open(arguments, prompts, environ, busy)
    if arguments.container is None:
        return transport
    from ccb.tunnel.openssh.container import ContainerTransport

    return ContainerTransport(transport, arguments.container)


async def _open(
    arguments: Arguments, prompts: Prompts, environ: Mapping[str, str], busy: Callable[[], None]
) -> Transport:
    env = without_secrets(environ)
    way = way_of(arguments)
    if way is not Way.ASYNCSSH:
        busy()
    match way:
        case Way.HERE:
            from ccb.tunnel.transports.local import LocalTransport

            return LocalTransport(env)
        case Way.ASYNCSSH:
            from ccb.tunnel.ssh import transport as ssh

            return await ssh.connect(_target(arguments), prompts, busy)
        case Way.OPENSSH:
            from ccb.tunnel.openssh import transport as openssh
            from ccb.tunnel.transports.command_line import words_of

            words = words_of(arguments.ssh_command or "ssh", "--ssh-command")
            return await openssh.connect(_target(arguments), prompts, env=env, words=words)
        case Way.WRAPPER:
            return await _wrapper(arguments, prompts, env)
        case Way.COMMAND:
            return await _command(arguments, prompts, env)


async def _wrapper(arguments: Arguments, prompts: Prompts, env: Mapping[str, str]) -> Transport:
    from ccb.tunnel.login.asking import AskingTransport
    from ccb.tunnel.login.command_failures import wrapper_failure
    from ccb.tunnel.transports.command_line import words_of, wrapper_argv

    target = _target(arguments)
    text = str(arguments.ssh_command)
    words = words_of(text, "--ssh-command")
    return await AskingTransport.open(
        target.shown,
        f"{text} {target.shown}",
        lambda line: wrapper_argv(words, target.shown, line),
        partial(wrapper_failure, target.shown, f"{text} {target.shown}"),
        prompts,
        env,
        lost_status=255,
    )


async def _command(arguments: Arguments, prompts: Prompts, env: Mapping[str, str]) -> Transport:
    from ccb.tunnel.login.asking import AskingTransport
    from ccb.tunnel.login.command_failures import command_failure
    from ccb.tunnel.transports.command_line import shell_argv, words_of

    text = str(arguments.transport).strip()
    words = words_of(text, "--transport")
    name = arguments.target.login if arguments.target else text
    return await AskingTransport.open(
        name, text, lambda line: shell_argv(words, line), partial(command_failure, name, text), prompts, env
    )


def _target(arguments: Arguments) -> SshTarget:
    from ccb.tunnel.ssh_config.resolve import SshTarget

    assert arguments.target is not None
    return SshTarget(
        arguments.target.host,
        arguments.target.user,
        arguments.port,
        tuple(arguments.identities),
        tuple(arguments.ssh_options),
    )
