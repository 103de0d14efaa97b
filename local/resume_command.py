"""The command line that comes back to a session."""

from __future__ import annotations

import shlex

from .arguments import Arguments
from .target import Target
from .way import needs_host


def resume_command(arguments: Arguments, session_id: str, *, directory: str | None = None) -> str:
    """What to type to go on with `session_id`, with the connection options of `arguments`; quoted for a shell. `directory` is
    the session's on its host."""
    words = ["ccb"]
    path = directory if directory is not None else arguments.directory
    if arguments.target is None and needs_host(arguments):
        words += [path] if path else []
    else:
        words += ["ssh", *_where(arguments.target, path)]
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
    return shlex.join([*words, "--resume", session_id])


def _where(target: Target | None, path: str | None) -> list[str]:
    if target is None:
        return [path] if path else []
    host = f"[{target.host}]" if ":" in target.host else target.host
    login = f"{target.user}@{host}" if target.user else host
    return [f"{login}:{path}" if path else login]
