"""/bug: a report for the people who make ccb, in a file of the person. It has no prompts, no answers and no secrets."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from ccb import __version__
from ccb.tunnel.plain_text import neutralise, one_line

from .log import Redactor, state_dir

_PACKAGES = ("asyncssh", "textual", "rich", "anthropic", "mcp")
_LOG_LINES = 60
_MAX_LOG = 64 * 1024
_MAX_ERRORS = 20


def write_report(environ: Mapping[str, str], facts: Mapping[str, str], errors: Sequence[str]) -> Path:
    """Write `facts` about the session, the last of `errors` and the end of this program's log. Return the path. Raise
    OSError."""
    redact = Redactor(environ).public
    lines = ["# ccb: report of a problem", "", "What I did, what I expected, what happened instead:", "", "…", ""]
    lines += ["## Versions", "", f"- ccb {__version__}, Python {platform.python_version()}, {platform.platform()}"]
    lines += [f"- {name} {_version(name)}" for name in _PACKAGES]
    lines += ["", "## Session", "", *(f"- {name}: {one_line(value) or '?'}" for name, value in facts.items())]
    lines += ["", "## Last errors and warnings on the screen", ""]
    for error in errors[-_MAX_ERRORS:]:
        lines += ["```", neutralise(error).replace("```", "'''"), "```"]
    lines += ["", "## End of the log of this program", "", "```", *_log(environ), "```", ""]
    directory = state_dir(environ) / "reports"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / time.strftime("ccb-bug-%Y%m%d-%H%M%S.md")
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(redact("\n".join(lines)))
    return path


def _log(environ: Mapping[str, str]) -> list[str]:
    try:
        with (state_dir(environ) / f"ccb-{os.getpid()}.log").open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _MAX_LOG))
            lines = neutralise(file.read().decode("utf-8", "replace")).splitlines()
    except OSError:
        return ["(nothing was logged)"]
    return [each.replace("```", "'''") for each in lines[-_LOG_LINES:]]


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "is not installed"
