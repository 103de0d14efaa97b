"""Log lines that can be shown to anybody: no secret, no prompt, no content of files, no output of tools.

Our own messages are written that way. What is not ours to word is cut down here: exceptions lose the texts that somebody else
put into them, messages of libraries their tails, and what looks like a secret is struck out everywhere.
"""

from __future__ import annotations

import logging
import re
import shlex
import traceback
from collections.abc import Iterable, Mapping
from types import TracebackType
from urllib.parse import unquote

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.transports.environment import SECRET_VARIABLES

_STRUCK = "[struck out]"
_MOST_FOREIGN = 200
_MOST_OWN = 2000
_OURS = "ccb"
_URL_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "ANTHROPIC_BASE_URL")
_LEAST_SECRET = 6
_PATTERNS = (
    (re.compile(r"\bsk-[A-Za-z0-9_-]{8,}"), _STRUCK),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"), rf"\1 {_STRUCK}"),
    (
        re.compile(
            r"(?i)\b(x-api-key|authorization|nonce|passwords?|passphrase|secret|token)([^\w(…]{1,4})(?!\s)([^\s\"',]{6,})"
        ),
        rf"\1\2{_STRUCK}",
    ),
    (re.compile(r"(?i)\b(https?://)[^/\s]+@"), rf"\1{_STRUCK}@"),
    (re.compile(r"://[^/\s:@]+:[^/\s@]+@"), f"://{_STRUCK}@"),
)
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class Striker:
    """Takes out what is, or looks like, a secret. `environ` names secrets by their values; of `commands` the programs may be
    shown, and nothing behind them: people write passwords there."""

    def __init__(self, environ: Mapping[str, str], commands: Iterable[str] = ()) -> None:
        texts = {text for command in commands for text in _spellings(command.strip()) if " " in text}
        self._commands = {text: f"{text.partition(' ')[0]} {_STRUCK}" for text in sorted(texts, key=len, reverse=True)}
        values = {environ.get(name, "").strip() for name in SECRET_VARIABLES}
        for name in (each for upper in _URL_VARIABLES for each in (upper, upper.lower())):
            login = environ.get(name, "").rpartition("@")[0].rpartition("://")[2]
            values |= {login, login.partition(":")[2], unquote(login.partition(":")[2])}
        self._values = sorted((value for value in values if len(value) >= _LEAST_SECRET), key=len, reverse=True)

    def public(self, text: str) -> str:
        """`text` with a mark in their place."""
        for command, shown in self._commands.items():
            text = text.replace(command, shown)
        for value in self._values:
            text = text.replace(value, _STRUCK)
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text


class PublicFormatter(logging.Formatter):
    """One line for each record, and under it where an exception came from; `environ` and `commands` as for Striker."""

    def __init__(self, environ: Mapping[str, str], commands: Iterable[str] = ()) -> None:
        super().__init__()
        self._strike = Striker(environ, commands).public

    def format(self, record: logging.LogRecord) -> str:
        when = f"{self.formatTime(record)} {record.levelname} {record.name}: "
        text = self._strike(when + _message(record))
        if record.exc_info:
            text += "\n" + self._strike(self.formatException(record.exc_info))
        return text

    def formatException(self, ei: _ExcInfo) -> str:
        """Types, our own words and places of the exception and of what led to it; no texts of others."""
        lines: list[str] = []
        error, seen = ei[1], set[int]()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            lines.append(f"  {public_error(error)}")
            lines += [
                f"    {frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(error.__traceback__)
            ]
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n".join(lines)


def _spellings(command: str) -> set[str]:
    """A command as it was written, as it is shown, and as its words put together again."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    return {command, neutralise(command), " ".join(words), shlex.join(words)}


def public_error(error: BaseException) -> str:
    """An exception without what others put into it: a validation error quotes its input, a host's error the host."""
    name = type(error).__name__
    if isinstance(error, CcbError):
        return f"{name}: {_one_line(error.what, _MOST_OWN)}{' (its evidence is not logged)' if error.evidence else ''}"
    if isinstance(error, OSError) and error.strerror:
        return f"{name}: {error.strerror}"
    return name


def _message(record: logging.LogRecord) -> str:
    ours = record.name == _OURS or record.name.startswith(_OURS + ".")
    args = record.args
    if isinstance(args, tuple):
        args = tuple(public_error(each) if isinstance(each, BaseException) else each for each in args)
    try:
        text = str(record.msg) % args if args else str(record.msg)
    except (TypeError, ValueError):
        text = str(record.msg)
    return _one_line(text, _MOST_OWN if ours else _MOST_FOREIGN)


def _one_line(text: str, most: int) -> str:
    """The first line: what libraries add below it are the objects they speak of."""
    first = text.strip("\n").partition("\n")[0]
    return first if len(first) <= most else first[:most] + " …"
