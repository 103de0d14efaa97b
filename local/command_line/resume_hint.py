"""The command lines that come back to a session, or do something to it."""

from __future__ import annotations

import shlex

from .arguments import Arguments
from .target import Target
from .transport_choice import needs_host


def resume_command(arguments: Arguments, session_id: str, *, directory: str | None = None) -> str:
    """What to type to go on with `session_id`, with the connection options of `arguments`; quoted for a shell. `directory` is
    the session's on its host. Who came to watch only watches again: nothing is taken from the driver."""
    if arguments.view:
        return host_command(arguments, "attach", session_id, "--view")
    path = directory if directory is not None else arguments.directory
    if arguments.target is None and needs_host(arguments):
        words = [path] if path else []
    else:
        words = ["ssh", *_where(arguments.target, path), *_way(arguments)]
    return shlex.join(["ccb", *words, "--resume", session_id])


def host_command(arguments: Arguments, command: str, session_id: str, *options: str) -> str:
    """What to type for `ccb COMMAND HOST ID`, with the connection options of `arguments`; quoted for a shell."""
    if arguments.local or (arguments.target is None and needs_host(arguments)):
        container = ["--container", arguments.container] if arguments.container is not None else []
        words = ["--local", session_id, *container]
    else:
        words = [*_where(arguments.target, None), session_id, *_way(arguments)]
    return shlex.join(["ccb", command, *words, *options])


def _way(arguments: Arguments) -> list[str]:
    """The options that lead to the host."""
    words = []
    for name, value in (
        ("--transport", arguments.transport),
        ("--ssh-command", arguments.ssh_command),
        ("--container", arguments.container),
    ):
        words += [name, value] if value is not None else []
    if arguments.local:
        words.append("--local")
    if arguments.port is not None:
        words += ["-P", str(arguments.port)]
    for identity in arguments.identities:
        words += ["-i", identity]
    for option in arguments.ssh_options:
        words += ["-o", option]
    return words


def _where(target: Target | None, path: str | None) -> list[str]:
    if target is None:
        return [path] if path else []
    host = f"[{target.host}]" if ":" in target.host else target.host
    login = f"{target.user}@{host}" if target.user else host
    return [f"{login}:{path}" if path else login]
