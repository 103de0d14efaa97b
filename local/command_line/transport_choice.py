"""Choose the transport that the connection options ask for, and open it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from ccb.tunnel.openssh.sharing import NOTHING_SHARED, Sharing
from ccb.tunnel.transports.environment import without_secrets

if TYPE_CHECKING:
    from ccb.tunnel.login.prompter import Prompts
    from ccb.tunnel.ssh.pipelining.past_logins import PastLogins
    from ccb.tunnel.ssh_config.target import SshTarget
    from ccb.tunnel.transports.pipe import Transport

    from .model import ConnectionOptions


class TransportKind(Enum):
    """The way to reach the host."""

    LOCAL = "local"  # this machine
    ASYNCSSH = "asyncssh"
    OPENSSH = "ssh"
    WRAPPER = "wrapper"  # a program that takes a host and a command, as ssh does
    COMMAND = "command"  # a command that leads to a shell


def transport_kind(connection: ConnectionOptions) -> TransportKind:
    """Return the transport that the options ask for. Raises UsageError if a command in them cannot be parsed."""
    from ccb.tunnel.transports.command_line import is_openssh, words_of

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
    from ccb.tunnel.ssh_config.target import SshTarget

    target = connection.target
    assert target is not None
    return SshTarget(target.host, target.user, connection.port, connection.identities, connection.ssh_options)


async def open_chosen_transport(
    connection: ConnectionOptions,
    prompts: Prompts,
    environ: Mapping[str, str],
    on_wait: Callable[[], None] = lambda: None,
    past: PastLogins | None = None,
    sharing: Sharing = NOTHING_SHARED,
) -> Transport:
    """Connect to the host, and enter its container if one is named.

    `on_wait` is called as soon as the network is busy and this process has time for other work. `past` is what the
    built-in SSH may know of earlier logins, `sharing` says which connections it may use instead of a login. Raises
    CcbError.
    """
    transport = await _open(connection, prompts, environ, on_wait, past, sharing)
    if connection.container is None:
        return transport
    from ccb.tunnel.openssh.container import ContainerTransport

    return ContainerTransport(transport, connection.container)


async def _open(
    connection: ConnectionOptions,
    prompts: Prompts,
    environ: Mapping[str, str],
    on_wait: Callable[[], None],
    past: PastLogins | None,
    sharing: Sharing,
) -> Transport:
    env = without_secrets(environ)
    kind = transport_kind(connection)
    if kind is not TransportKind.ASYNCSSH:
        on_wait()
    match kind:
        case TransportKind.LOCAL:
            from ccb.tunnel.transports.local import LocalTransport

            return LocalTransport(env, sys.executable)
        case TransportKind.ASYNCSSH:
            from ccb.tunnel.ssh import transport as ssh

            return await ssh.share_or_connect(ssh_target(connection), prompts, on_wait, past, sharing)
        case TransportKind.OPENSSH:
            from ccb.tunnel.openssh import transport as openssh
            from ccb.tunnel.transports.command_line import words_of

            words = words_of(connection.ssh_command or "ssh", "--ssh-command")
            return await openssh.connect(ssh_target(connection), prompts, env=env, words=words)
        case TransportKind.WRAPPER:
            return await _open_wrapper(connection, prompts, env)
        case TransportKind.COMMAND:
            return await _open_command(connection, prompts, env)


async def _open_wrapper(connection: ConnectionOptions, prompts: Prompts, env: Mapping[str, str]) -> Transport:
    from ccb.tunnel.login.asking import AskingTransport
    from ccb.tunnel.login.command_failures import SSH_FAILED, wrapper_failure
    from ccb.tunnel.transports.command import PipeCommand
    from ccb.tunnel.transports.command_line import words_of, wrapper_argv

    host = ssh_target(connection).shown
    text = str(connection.ssh_command)
    words = words_of(text, "--ssh-command")
    shown = f"{text} {host}"
    failure = partial(wrapper_failure, host, shown)
    command = PipeCommand(host, shown, lambda line: wrapper_argv(words, host, line), failure, lost_status=SSH_FAILED)
    return await AskingTransport.open(command, prompts, env)


async def _open_command(connection: ConnectionOptions, prompts: Prompts, env: Mapping[str, str]) -> Transport:
    from ccb.tunnel.login.asking import AskingTransport
    from ccb.tunnel.login.command_failures import command_failure
    from ccb.tunnel.transports.command import PipeCommand
    from ccb.tunnel.transports.command_line import shell_argv, words_of

    text = str(connection.transport).strip()
    words = words_of(text, "--transport")
    name = connection.target.login if connection.target else text
    command = PipeCommand(name, text, lambda line: shell_argv(words, line), partial(command_failure, name, text))
    return await AskingTransport.open(command, prompts, env)
