"""Choose the transport, and write the command lines that lead back to a session."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.plain_text import one_line

from .arguments import Arguments, ConnectionOptions
from .option_declaration import Group
from .options import OPTIONS
from .target import Target

if TYPE_CHECKING:
    from ccb.tunnel.ssh.past_logins import PastLogins
    from ccb.tunnel.ssh_config.ssh_target import SshTarget
    from ccb.tunnel.transports.login_prompts import Prompts
    from ccb.tunnel.transports.pipe import Sharing, Transport


_MAX_PATH = 1_000


def resume_command(arguments: Arguments, session_id: str, *, directory: str | None = None) -> str:
    """Return the command line that continues `session_id` over the same connection, quoted for a shell.

    `directory` is the session's directory on its host, as the host says. It is left out if it would not be one plain
    word of a path: the session is found by its ID, too. A viewer gets the command that watches again, so that it does
    not take the session from the driver.
    """
    if arguments.host_command.view:
        return host_command(arguments, "attach", session_id, "--view")
    connection = arguments.connection
    path = arguments.directory if directory is None else directory if _is_plain(directory) else None
    if connection.target is None and needs_host(connection):
        # A word with blanks that is no directory here would be read as a prompt.
        words = [path] if path and (path == arguments.directory or " " not in path) else []
    else:
        words = ["ssh", *_place(connection.target, path), *_options(connection)]
    return shlex.join(["ccb", *words, "--resume", session_id])


def host_command(arguments: Arguments, command: str, session_id: str, *options: str) -> str:
    """Return the command line `ccb COMMAND HOST ID` for the same connection, quoted for a shell."""
    connection = arguments.connection
    if connection.local or (connection.target is None and needs_host(connection)):
        container = ["--container", connection.container] if connection.container is not None else []
        words = ["--local", session_id, *container]
    else:
        words = [*_place(connection.target, None), session_id, *_options(connection)]
    return shlex.join(["ccb", command, *words, *options])


def _is_plain(directory: str) -> bool:
    """Whether a directory that the host names is a path, and the command shows it as it is, on one line."""
    return directory.startswith("/") and len(directory) <= _MAX_PATH and one_line(directory) == directory


def _options(connection: ConnectionOptions) -> list[str]:
    """Return the options that lead to the host."""
    words: list[str] = []
    for option in OPTIONS:
        value = getattr(connection, option.field) if option.group is Group.CONNECTION else None
        name = min(option.names, key=len)
        if value is True:
            words.append(name)
        elif value:
            for each in value if isinstance(value, tuple) else (value,):
                words += [name, str(each)]
    return words


def _place(target: Target | None, path: str | None) -> list[str]:
    """Return host and path as one word, or no word if there is neither."""
    if target is None:
        return [path] if path else []
    host = f"[{target.host}]" if ":" in target.host else target.host
    login = f"{target.user}@{host}" if target.user else host
    return [f"{login}:{path}" if path else login]


class TransportKind(Enum):
    """The way to reach the host."""

    LOCAL = "local"  # this machine
    ASYNCSSH = "asyncssh"
    OPENSSH = "ssh"
    WRAPPER = "wrapper"  # a program that takes a host and a command, as ssh does
    COMMAND = "command"  # a command that leads to a shell


def transport_kind(connection: ConnectionOptions) -> TransportKind:
    """Return the transport that the options ask for. Raises UsageError if a command in them cannot be parsed."""
    from ccb.tunnel.transports.command_transport import is_openssh, words_of

    if connection.ssh_command is not None:
        words = words_of(connection.ssh_command, "--ssh-command")
        return TransportKind.OPENSSH if is_openssh(words) else TransportKind.WRAPPER
    if connection.transport not in (None, TransportKind.ASYNCSSH.value):
        is_ssh = connection.transport == TransportKind.OPENSSH.value
        return TransportKind.OPENSSH if is_ssh else TransportKind.COMMAND
    return TransportKind.ASYNCSSH if connection.target is not None and not connection.local else TransportKind.LOCAL


def host_label(connection: ConnectionOptions) -> str:
    """Return the host as the person wrote it, for messages: `ann@devbox`, `local`, or `web on devbox` for a
    container."""
    host = connection.target.login if connection.target else "local"
    if transport_kind(connection) is TransportKind.COMMAND and connection.target is None:
        host = str(connection.transport).strip()
    return f"{connection.container} on {host}" if connection.container else host


def needs_host(connection: ConnectionOptions) -> bool:
    """Return whether the command line must name a host. A `--transport` command leads to one place, so it needs
    none."""
    return connection.transport in (None, TransportKind.ASYNCSSH.value, TransportKind.OPENSSH.value)


def ssh_target(connection: ConnectionOptions) -> SshTarget:
    """Return the host with the options for SSH. The options must have a target."""
    from ccb.tunnel.ssh_config.ssh_target import SshTarget

    target = connection.target
    assert target is not None
    return SshTarget(target.host, target.user, connection.port, connection.identities, connection.ssh_options)


async def open_chosen_transport(
    connection: ConnectionOptions,
    prompts: Prompts,
    environ: Mapping[str, str],
    on_wait: Callable[[], None] = lambda: None,
    past: PastLogins | None = None,
    sharing: Sharing | None = None,
) -> Transport:
    """Connect to the host, and enter its container if one is named.

    `on_wait` is called as soon as the network is busy and this process has time for other work. `past` is what the
    built-in SSH may know of earlier logins, `sharing` says which connections it may use instead of a login. Raises
    CcbError.
    """
    transport = await _open(connection, prompts, environ, on_wait, past, sharing)
    if connection.container is None:
        return transport
    from ccb.tunnel.transports.container import ContainerTransport

    return ContainerTransport(transport, connection.container)


async def _open(
    connection: ConnectionOptions,
    prompts: Prompts,
    environ: Mapping[str, str],
    on_wait: Callable[[], None],
    past: PastLogins | None,
    sharing: Sharing | None,
) -> Transport:
    from ccb.tunnel.secret import without_secrets
    from ccb.tunnel.transports.pipe import NOTHING_SHARED

    env = without_secrets(environ)
    kind = transport_kind(connection)
    if kind is not TransportKind.ASYNCSSH:
        on_wait()
    match kind:
        case TransportKind.LOCAL:
            from ccb.tunnel.transports.command_transport import LocalTransport

            return LocalTransport(env, sys.executable)
        case TransportKind.ASYNCSSH:
            from ccb.tunnel.ssh import asyncssh_transport as ssh

            return await ssh.share_or_connect(ssh_target(connection), prompts, on_wait, past, sharing or NOTHING_SHARED)
        case TransportKind.OPENSSH:
            from ccb.tunnel.openssh import openssh_transport as openssh
            from ccb.tunnel.transports.command_transport import words_of

            words = words_of(connection.ssh_command or "ssh", "--ssh-command")
            return await openssh.connect(ssh_target(connection), prompts, env=env, words=words)
        case TransportKind.WRAPPER:
            return await _open_wrapper(connection, prompts, env)
        case TransportKind.COMMAND:
            return await _open_command(connection, prompts, env)


async def _open_wrapper(connection: ConnectionOptions, prompts: Prompts, env: Mapping[str, str]) -> Transport:
    from ccb.tunnel.transports.askpass import AskingTransport
    from ccb.tunnel.transports.command_transport import PipeCommand, words_of, wrapper_argv
    from ccb.tunnel.transports.login_failures import SSH_FAILED, wrapper_failure

    host = ssh_target(connection).shown
    text = str(connection.ssh_command)
    words = words_of(text, "--ssh-command")
    shown = f"{text} {host}"
    failure = partial(wrapper_failure, host, shown)
    command = PipeCommand(host, shown, lambda line: wrapper_argv(words, host, line), failure, lost_status=SSH_FAILED)
    return await AskingTransport.open(command, prompts, env)


async def _open_command(connection: ConnectionOptions, prompts: Prompts, env: Mapping[str, str]) -> Transport:
    from ccb.tunnel.transports.askpass import AskingTransport
    from ccb.tunnel.transports.command_transport import PipeCommand, shell_argv, words_of
    from ccb.tunnel.transports.login_failures import command_failure

    text = str(connection.transport).strip()
    words = words_of(text, "--transport")
    name = connection.target.login if connection.target else text
    command = PipeCommand(name, text, lambda line: shell_argv(words, line), partial(command_failure, name, text))
    return await AskingTransport.open(command, prompts, env)
