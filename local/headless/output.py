"""The stdout of a headless run in its formats. Nothing else writes there.

A pipe or a file gets every character as it is. A terminal would obey some of them, so there text is neutralised as in
the REPL, and JSON has them as escapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from ccb.tunnel.plain_text import escaped_json, neutralise
from ccb.tunnel.wire.ndjson import dump_line, to_bytes

from ..terminal.stdio import Writer
from .line_limit import limited_line
from .results import has_answer, result_text
from .stderr_reports import report

if TYPE_CHECKING:
    from ..session.client import Json


class HeadlessOutput(Protocol):
    """Prints the messages of a session in order. A result ends each turn."""

    async def message(self, body: Json) -> None:
        """Print a message that is not a result."""

    async def progress(self, body: Json) -> None:
        """Print a message that is not in the journal, such as a streaming event."""

    async def result(self, body: Json) -> None:
        """Print the result of a turn."""

    async def finish(self) -> None:
        """Print what comes at the end of the run."""


class LastResultOutput:
    """Prints only the last result, in the form that `text_of` gives it."""

    def __init__(self, writer: Writer, text_of: Callable[[Json], str]) -> None:
        self._writer = writer
        self._text_of = text_of
        self._last: Json | None = None

    async def message(self, body: Json) -> None:
        pass

    async def progress(self, body: Json) -> None:
        pass

    async def result(self, body: Json) -> None:
        self._last = body

    async def finish(self) -> None:
        if self._last is not None:
            text = self._text_of(self._last)
            await self._writer.write(to_bytes(text if text.endswith("\n") else text + "\n"))


class AnswerOutput(LastResultOutput):
    """Prints the answer of the last result. Why there is none goes to stderr: a script takes stdout for the answer."""

    async def finish(self) -> None:
        if self._last is not None and not has_answer(self._last):
            for line in result_text(self._last).splitlines():
                report(line)
        elif self._last is not None and result_text(self._last).strip():
            await super().finish()


class JsonArrayOutput:
    """Prints all messages as one array, each as soon as it comes, in the form that `text_of` gives it."""

    def __init__(self, writer: Writer, text_of: Callable[[Json], str]) -> None:
        self._writer = writer
        self._text_of = text_of
        self._started = False

    async def message(self, body: Json) -> None:
        await self._writer.write(to_bytes((",\n" if self._started else "[") + self._text_of(body)))
        self._started = True

    async def progress(self, body: Json) -> None:
        pass

    async def result(self, body: Json) -> None:
        await self.message(body)

    async def finish(self) -> None:
        await self._writer.write(b"]\n" if self._started else b"[]\n")


class StreamOutput:
    """Prints every message on a line of its own, as soon as it comes, in the form that `text_of` gives it."""

    def __init__(self, writer: Writer, text_of: Callable[[Json], str]) -> None:
        self._writer = writer
        self._text_of = text_of

    async def message(self, body: Json) -> None:
        await self._writer.write(to_bytes(self._text_of(body) + "\n"))

    async def progress(self, body: Json) -> None:
        await self.message(body)

    async def result(self, body: Json) -> None:
        await self.message(body)

    async def finish(self) -> None:
        pass


def make_output(output_format: str, writer: Writer, *, verbose: bool, terminal: bool) -> HeadlessOutput:
    """Return the output for a value of `--output-format`. `terminal`: stdout is a terminal."""
    json_of = _terminal_json if terminal else dump_line
    if output_format == "stream-json":
        return StreamOutput(writer, _terminal_json if terminal else limited_line)
    if output_format == "json":
        return JsonArrayOutput(writer, json_of) if verbose else LastResultOutput(writer, json_of)
    return AnswerOutput(writer, _terminal_text if terminal else result_text)


def _terminal_json(body: Json) -> str:
    return escaped_json(dump_line(body))


def _terminal_text(body: Json) -> str:
    return neutralise(result_text(body))
