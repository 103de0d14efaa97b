"""The log file, without secrets; exceptions lose texts that ccb did not write, libraries all but their first line."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shlex
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote

from ccb import __version__
from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.secret import SECRET_VARIABLES

from .settings import xdg_dir

_MAX_BYTES = 8 * 1024 * 1024
_MAX_FILES = 20
_QUIET = ("asyncio", "asyncssh", "textual", "markdown_it", "aiohttp.access", "urllib3")
_MARK = "[redacted]"
_MAX_FOREIGN = 200
_MAX_OWN = 2000
_OURS = "ccb"
_URL_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "ANTHROPIC_BASE_URL")
_MIN_SECRET = 6
_SECRET_NAME = re.compile(r"(?i)(key|token|secret|password|passphrase|credentials?)$")
_NO_SECRETS = {"CCB_CLIENT_KEY"}  # a path
_PATTERNS = (
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), _MARK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {_MARK}"),
    (
        re.compile(
            r"(?i)\b(x-api-key|authorization|nonce|passwords?|passphrase|secret|token)"
            r"([^\w(…]{1,4})(?!\s)([^\s\"',]{6,})"
        ),
        rf"\1\2{_MARK}",
    ),
    (re.compile(r"(?i)\b(https?://)[^/\s]+@"), rf"\1{_MARK}@"),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), f"://{_MARK}@"),
)
_PACKAGES = ("asyncssh", "textual", "rich", "anthropic", "mcp")
_LOG_LINES = 60
_MAX_LOG = 64 * 1024
_MAX_ERRORS = 20


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    return xdg_dir(environ, "XDG_STATE_HOME", ".local/state")


class _OnDemand(RotatingFileHandler):
    """Opens its file with the first record. What cannot be written is not logged: a log must not end the program."""

    def __init__(self, path: Path, *, keeps_others: bool) -> None:
        super().__init__(path, maxBytes=_MAX_BYTES, backupCount=1, encoding="utf-8", delay=True)
        self._keeps_others = keeps_others

    def handleError(self, record: logging.LogRecord) -> None:
        """Say nothing: the terminal may belong to the REPL."""

    def close(self) -> None:
        with contextlib.suppress(OSError):  # the rest of a record, on a full disk
            super().close()

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs = [] if self._keeps_others else list(path.parent.glob("ccb-*.log*"))
        with contextlib.suppress(FileNotFoundError):  # another ccb removes them, too
            logs.sort(key=lambda path: path.stat().st_mtime)
            for old in logs[:-_MAX_FILES]:
                old.unlink()
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600))
        return super()._open()


@contextlib.contextmanager
def logging_to_file(
    *, debug: bool, environ: Mapping[str, str] = os.environ, commands: Iterable[str] = (), own_file: str | None = None
) -> Iterator[Path]:
    """Write the program's log to its file while the context is open, and yield the path: `own_file` if the person names
    one. `commands` lead to the host; the log shows only their programs, because their arguments may hold passwords."""
    path = Path(own_file).expanduser() if own_file else state_dir(environ) / f"ccb-{os.getpid()}.log"
    handler = _OnDemand(path, keeps_others=own_file is not None)
    handler.setFormatter(PublicFormatter(environ, commands))
    root = logging.getLogger()
    levels = {root: logging.DEBUG if debug else logging.WARNING}
    levels |= {logging.getLogger(name): logging.INFO if debug else logging.ERROR for name in _QUIET}
    before = {logger: logger.level for logger in levels}
    root.addHandler(handler)
    for logger, level in levels.items():
        logger.setLevel(level)
    try:
        yield path
    finally:
        root.removeHandler(handler)
        for logger, level in before.items():
            logger.setLevel(level)
        handler.close()


_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def is_secret_name(name: str) -> bool:
    """Return whether a variable of this name holds a secret, as far as the name tells."""
    return name in SECRET_VARIABLES or (name not in _NO_SECRETS and bool(_SECRET_NAME.search(name)))


class Redactor:
    """Replaces what is or looks like a secret: values of secret variables, and all of `commands` but the programs."""

    def __init__(self, environ: Mapping[str, str], commands: Iterable[str] = ()) -> None:
        texts: set[str] = set()  # the forms of a command in a text: as written, as shown, and its words joined again
        for command in map(str.strip, commands):
            with contextlib.suppress(ValueError):
                texts |= {" ".join(words := shlex.split(command)), shlex.join(words)}
            texts |= {command, neutralise(command)}
        texts = {text for text in texts if " " in text}
        self._commands = {text: f"{text.partition(' ')[0]} {_MARK}" for text in sorted(texts, key=len, reverse=True)}
        values = {value.strip() for name, value in environ.items() if is_secret_name(name)}
        for name in (each for upper in _URL_VARIABLES for each in (upper, upper.lower())):
            login = environ.get(name, "").rpartition("@")[0].rpartition("://")[2]
            values |= {login, login.partition(":")[2], unquote(login.partition(":")[2])}
        values |= {json.dumps(value)[1:-1] for value in values}
        self._values = sorted((value for value in values if len(value) >= _MIN_SECRET), key=len, reverse=True)

    def public(self, text: str) -> str:
        for command, shown in self._commands.items():
            text = text.replace(command, shown)
        for value in self._values:
            text = text.replace(value, _MARK)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text


class PublicFormatter(logging.Formatter):
    """Formats a log record as one line, with the origin of an exception below it."""

    def __init__(self, environ: Mapping[str, str], commands: Iterable[str] = ()) -> None:
        super().__init__()
        self._redact = Redactor(environ, commands).public

    def format(self, record: logging.LogRecord) -> str:
        when = f"{self.formatTime(record)} {record.levelname} {record.name}: "
        text = self._redact(when + _message(record))
        if record.exc_info:
            text += "\n" + self._redact(self.formatException(record.exc_info))
        return text

    def formatException(self, ei: _ExcInfo) -> str:
        """Return the classes, code locations and ccb's own texts of an exception and its causes."""
        lines: list[str] = []
        error, seen = ei[1], set[int]()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            lines.append(f"  {public_error(error)}")
            frames = traceback.extract_tb(error.__traceback__)
            lines += [f"    {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n".join(lines)


def public_error(error: BaseException) -> str:
    """Describe an exception without texts from other sources: they may quote an input or the host."""
    name = type(error).__name__
    if isinstance(error, CcbError):
        return f"{name}: {_one_line(error.what, _MAX_OWN)}{' (its evidence is not logged)' if error.evidence else ''}"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return name


def _message(record: logging.LogRecord) -> str:
    args = record.args
    if isinstance(args, tuple):
        args = tuple(public_error(each) if isinstance(each, BaseException) else each for each in args)
    try:
        text = str(record.msg) % args if args else str(record.msg)
    except (TypeError, ValueError):  # wrong arguments, as a library may give them
        text = str(record.msg)
    return _one_line(text, _MAX_OWN if record.name.partition(".")[0] == _OURS else _MAX_FOREIGN)


def _one_line(text: str, limit: int) -> str:
    """Return the first line, cut at `limit`. Below it, libraries print the objects that a message is about."""
    first = text.strip("\n").partition("\n")[0]
    return first if len(first) <= limit else first[:limit] + " …"


def write_report(environ: Mapping[str, str], facts: Mapping[str, str], errors: Sequence[str]) -> Path:
    """Write a report of `/bug` for the people who make ccb, without prompts, answers and secrets. Raise OSError."""
    import platform
    from importlib import metadata  # 15 ms, and only a report needs it

    redact = Redactor(environ).public
    lines = ["# ccb: report of a problem", "", "What I did, what I expected, what happened instead:", "", "…", ""]
    lines += ["## Versions", "", f"- ccb {__version__}, Python {platform.python_version()}, {platform.platform()}"]
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            lines.append(f"- {name} {metadata.version(name)}")
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
