"""Command lines to show the person: the one that returns to a session, and those that act on it."""

from __future__ import annotations

import shlex

from ccb.tunnel.plain_text import one_line

from .model import Arguments, ConnectionOptions
from .target import Target
from .transport_choice import needs_host

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
    words = []
    for name, value in (
        ("--transport", connection.transport),
        ("--ssh-command", connection.ssh_command),
        ("--container", connection.container),
    ):
        words += [name, value] if value is not None else []
    if connection.local:
        words.append("--local")
    if connection.plain_login:
        words.append("--no-pipelined-login")
    if connection.port is not None:
        words += ["-P", str(connection.port)]
    for identity in connection.identities:
        words += ["-i", identity]
    for option in connection.ssh_options:
        words += ["-o", option]
    return words


def _place(target: Target | None, path: str | None) -> list[str]:
    """Return host and path as one word, or no word if there is neither."""
    if target is None:
        return [path] if path else []
    host = f"[{target.host}]" if ":" in target.host else target.host
    login = f"{target.user}@{host}" if target.user else host
    return [f"{login}:{path}" if path else login]
