"""/export: the whole session in a file on the laptop."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from ccb.tunnel.errors import CcbError

from ....session.client import Received, SessionClient
from ....terminal.stdio import in_thread
from ...model.blocks import BlockList, Level
from ...model.markdown_export import markdown_of
from ...model.transcript_reducer import TranscriptReducer

_PAGE = 1 << 20
_AFTER_ALL = 1 << 52  # no event has such a number
_PUBLIC = ("message", "input")


class Exporting:
    """Writes the session at `place` to a file. All of it comes from the host, also what is not on the screen."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer, place: str) -> None:
        self._client = client
        self._reducer = reducer
        self._place = place

    async def command(self, argument: str) -> None:
        """Answer `/export [FILE]`: Markdown, or JSON if the name ends so. Nothing is overwritten."""
        session = self._client.hello.session
        path = _target(argument or f"ccb-{session[:8]}.md")
        if path.suffix not in (".md", ".json"):
            self._reducer.notice("/export writes FILE.md or FILE.json.", Level.WARNING)
            return
        try:
            events = await self._events()
            text = _json_of(session, self._place, events) if path.suffix == ".json" else self._markdown_of(events)
            await in_thread(lambda: write_new(path, text))
        except CcbError as error:
            self._reducer.notice(f"Nothing was written: {error.what}.", Level.WARNING)
        except OSError as error:
            self._reducer.notice(f"Nothing was written: {path}: {error.strerror or error}.", Level.WARNING)
        else:
            self._reducer.notice(f"The session is in {path}, on the laptop.")

    async def _events(self) -> list[Received]:
        """Return all events of the session, oldest first. Raise CcbError."""
        pages: list[list[Received]] = []
        before = _AFTER_ALL
        while page := await self._client.earlier(before, _PAGE):
            pages.append(page)
            before = page[0].seq
        return [event for page in reversed(pages) for event in page]

    def _markdown_of(self, events: Sequence[Received]) -> str:
        loaded = BlockList()
        reducer = TranscriptReducer(loaded)
        for event in events:
            reducer.apply_event(event.record, replayed=True)
        return markdown_of(f"A session of ccb on {self._place}", loaded.blocks)


def _target(name: str) -> Path:
    return Path(name).expanduser().absolute()


def _json_of(session: str, place: str, events: Sequence[Received]) -> str:
    messages = [event.body for event in events if event.kind in _PUBLIC]
    return json.dumps({"session": session, "place": place, "messages": messages}, ensure_ascii=False, indent=1) + "\n"


def write_new(path: Path, text: str) -> None:
    """Write a file that nobody else can read. Raise FileExistsError rather than replace one, and other OSError; then
    nothing is left of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except BaseException:
        path.unlink()
        raise
