"""Choose the transport, and write the command lines that lead back to a session."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.secret import without_secrets
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.command_transport import is_openssh, words_of
from ccb.tunnel.transports.pipe import NOTHING_SHARED, THIS_MACHINE, Sharing, Transport

from .arguments import OPTIONS, Arguments, ConnectionOptions, Group, OptionKind
from .target import Target

if TYPE_CHECKING:
    from ccb.tunnel.ssh.past_logins import PastLogins
    from ccb.tunnel.transports.login_prompts import Prompts


_MAX_PATH = 1_000
_NOTHING = Arguments()
LOCAL_HOST = "local"


def resume_command(arguments: Arguments, session_id: str, *, directory: str | None = None) -> str:
    """Return the command line that continues a session the same way; `directory` only if it is a plain path."""
    if arguments.host_command.view:
        return host_command(arguments, "attach", session_id, "--view")
    connection = arguments.connection
    path = arguments.directory if directory is None else directory
    if directory is not None:
        plain = directory.startswith("/") and len(directory) <= _MAX_PATH and one_line(directory) == directory
        path = directory if plain else None
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


def _options(connection: ConnectionOptions) -> list[str]:
    return option_words(Arguments(connection=connection), Group.CONNECTION)


def option_words(arguments: Arguments, *groups: Group) -> list[str]:
    """Return the options of these groups that were given, as words of a command line that mean the same."""
    words: list[str] = []
    for option in OPTIONS:
        value, name = arguments.value(option), min(option.names, key=len)
        if option.group not in groups or value == _NOTHING.value(option):
            continue
        if value is True or (option.kind is OptionKind.OPTIONAL and not value):
            words.append(name)
            continue
        for each in map(str, (value or ("",)) if isinstance(value, tuple) else (value,)):
            words += [f"{name}={each}"] if each.startswith("-") and name.startswith("--") else [name, each]
    return words


def _place(target: Target | None, path: str | None) -> list[str]:
    if target is None:
        return [path] if path else []
    host = f"[{target.host}]" if ":" in target.host else target.host
    login = f"{target.user}@{host}" if target.user else host
    return [f"{login}:{path}" if path else login]


class TransportKind(Enum):
    LOCAL = "local"  # this machine
    ASYNCSSH = "asyncssh"
    OPENSSH = "ssh"
    WRAPPER = "wrapper"  # a program that takes a host and a command, as ssh does
    COMMAND = "command"  # a command that leads to a shell


def transport_kind(connection: ConnectionOptions) -> TransportKind:
    """Return the transport that the options ask for. Raises UsageError if a command in them cannot be parsed."""
    if connection.ssh_command is not None:
        words = words_of(connection.ssh_command, "--ssh-command")
        return TransportKind.OPENSSH if is_openssh(words) else TransportKind.WRAPPER
    if connection.transport not in (None, TransportKind.ASYNCSSH.value):
        is_ssh = connection.transport == TransportKind.OPENSSH.value
        return TransportKind.OPENSSH if is_ssh else TransportKind.COMMAND
    return TransportKind.ASYNCSSH if connection.target is not None and not connection.local else TransportKind.LOCAL


def host_key(connection: ConnectionOptions) -> str:
    """Return the name under which records and settings know the host: that of `host_label`, `local` for this one."""
    return host_label(connection, LOCAL_HOST)


def shown_host(key: str) -> str:
    return THIS_MACHINE if key == LOCAL_HOST else key


def host_label(connection: ConnectionOptions, this_machine: str = THIS_MACHINE) -> str:
    """Return the host as the person wrote it: `ann@devbox`, `this machine`, or `web on devbox` for a container."""
    host = connection.target.login if connection.target else this_machine
    if transport_kind(connection) is TransportKind.COMMAND and connection.target is None:
        host = str(connection.transport).strip()
    return f"{connection.container} on {host}" if connection.container else host


def public_host(connection: ConnectionOptions) -> str:
    """Return the host as others may read it: a command that leads to it may hold a password."""
    is_command = transport_kind(connection) is TransportKind.COMMAND and connection.target is None
    return "a command" if is_command else host_key(connection)


def needs_host(connection: ConnectionOptions) -> bool:
    """Return whether the command line must name a host: a `--transport` command leads to one place."""
    return connection.transport in (None, TransportKind.ASYNCSSH.value, TransportKind.OPENSSH.value)


def private_texts(connection: ConnectionOptions) -> list[str]:
    return [text for text in (connection.transport, connection.ssh_command, *connection.ssh_options) if text]


def ssh_target(connection: ConnectionOptions) -> SshTarget:
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
    env, kind = without_secrets(environ), transport_kind(connection)
    if kind is TransportKind.ASYNCSSH:
        from ccb.tunnel.ssh import asyncssh_transport as ssh

        target = ssh_target(connection)
        opened: Transport = await ssh.connect(target, prompts, on_wait, past, sharing or NOTHING_SHARED)
    else:
        on_wait()
        opened = await _open_program(kind, connection, prompts, env)
    if connection.container is None:
        return opened
    from ccb.tunnel.transports.container import ContainerTransport

    return ContainerTransport(opened, connection.container, connection.container_env)


async def _open_program(
    kind: TransportKind, connection: ConnectionOptions, prompts: Prompts, env: Mapping[str, str]
) -> Transport:
    from ccb.tunnel.transports import login_failures
    from ccb.tunnel.transports.askpass import AskingTransport
    from ccb.tunnel.transports.command_transport import LocalTransport, PipeCommand, shell_argv, wrapper_argv

    if kind is TransportKind.LOCAL:
        return LocalTransport(env, sys.executable)
    if kind is TransportKind.COMMAND:
        text = str(connection.transport).strip()
        words = words_of(text, "--transport")
        name = connection.target.login if connection.target else text
        failure = partial(login_failures.command_failure, name, text)
        command = PipeCommand(name, text, lambda line: shell_argv(words, line), failure)
        return await AskingTransport.open(command, prompts, env)
    words = words_of(connection.ssh_command or "ssh", "--ssh-command")
    if kind is TransportKind.OPENSSH:
        from ccb.tunnel.openssh import openssh_transport as openssh

        return await openssh.connect(ssh_target(connection), prompts, env=env, words=words)
    host = ssh_target(connection).shown
    shown = f"{connection.ssh_command} {host}"
    failure, lost = partial(login_failures.wrapper_failure, host, shown), login_failures.SSH_FAILED
    command = PipeCommand(host, shown, lambda line: wrapper_argv(words, host, line), failure, lost_status=lost)
    return await AskingTransport.open(command, prompts, env)
