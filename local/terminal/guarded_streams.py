"""What ccb prints without drawing a screen: plain lines that cannot drive a terminal.

`print_line` and `say` are the ways to stdout and stderr (the linter refuses others), whatever the text. The guarded
streams are for what is no line, such as an answer.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, TextIO, cast

from ccb.tunnel.plain_text import as_line, neutralise

_LINE_START = "\r\x1b[K"


class _GuardedStream:
    """A text stream to a terminal that neutralises what is written."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        self.stream.write(neutralise(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


@contextlib.contextmanager
def guarded_streams() -> Iterator[None]:
    """While the context is open, text on stdout and stderr cannot drive a terminal. Pipes and files get every character
    as it is."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = map(_guarded, before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


def print_line(*lines: str) -> None:
    """Write lines to stdout at once: the next one may take a while. Each stays one line, whatever is in it."""
    _write(sys.stdout, lines)


def say(*lines: str) -> None:
    """Write lines to stderr at once. Each stays one line, whatever is in it."""
    _write(sys.stderr, lines)


def _write(stream: TextIO, lines: Iterable[str]) -> None:
    stream.write("".join(f"{as_line(line)}\n" for line in lines))
    stream.flush()


def write_over(text: str) -> None:
    """Write a text on stderr, which is a terminal, in place of what is on its line."""
    stream = sys.stderr.stream if isinstance(sys.stderr, _GuardedStream) else sys.stderr
    stream.write(_LINE_START + as_line(text))
    stream.flush()


def _guarded(stream: TextIO) -> TextIO:
    # A process without a stdout has None here.
    return cast("TextIO", _GuardedStream(stream)) if stream is not None and stream.isatty() else stream
