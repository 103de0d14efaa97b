"""The command line that comes back to a session."""

from __future__ import annotations

import shlex

from .arguments import Arguments


def resume_command(arguments: Arguments, session_id: str, *, directory: str | None = None) -> str:
    """What to type to go on with `session_id`, with the connection options of `arguments`; quoted for a shell. `directory` is
    the session's on its host."""
    words = ["ccb"]
    path = directory if directory is not None else arguments.directory
    if arguments.target is None:
        words += [path] if path else []
    else:
        target = arguments.target
        host = f"[{target.host}]" if ":" in target.host else target.host
        login = f"{target.user}@{host}" if target.user else host
        words += ["ssh", f"{login}:{path}" if path else login]
        if arguments.local:
            words.append("--local")
        if arguments.port is not None:
            words += ["-P", str(arguments.port)]
        for identity in arguments.identities:
            words += ["-i", identity]
        for option in arguments.ssh_options:
            words += ["-o", option]
    return shlex.join([*words, "--resume", session_id])
