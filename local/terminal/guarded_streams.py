"""What ccb prints on a terminal without drawing a screen: plain lines that cannot drive it.

Whoever prints remote text makes it harmless, and shows what was in it. This is for the one who forgets to.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any, TextIO, cast

from ccb.tunnel.plain_text import neutralise

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


def write_over(text: str) -> None:
    """Write a text on stderr, which is a terminal, in place of what is on its line."""
    stream = sys.stderr
    if isinstance(stream, _GuardedStream):
        stream.stream.write(_LINE_START)
        stream.write(text)
    else:
        stream.write(_LINE_START + neutralise(text))
    stream.flush()


def _guarded(stream: TextIO) -> TextIO:
    # A process without a stdout has None here.
    return cast("TextIO", _GuardedStream(stream)) if stream is not None and stream.isatty() else stream
