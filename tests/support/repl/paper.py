"""A scripted session whose transcript is drawn without an application."""

from __future__ import annotations

import asyncio
import io
from typing import Any

from rich.console import Console
from rich.text import Text
from tests.support.repl.pilot import WHO
from tests.support.repl.scripted_session import ScriptedSession

from ccb.local.session.session_client import EventGap, SessionEvent, parse_snapshot
from ccb.local.transcript.blocks import BlockList
from ccb.local.transcript.transcript_reducer import TranscriptReducer
from ccb.local.tui.rendering.block_renderer import BlockRenderer
from ccb.local.tui.rendering.diffs import edit_parts
from ccb.local.tui.rendering.themes import DARK, palette_of
from ccb.local.tui.widgets.drawing import draw_lines, line_text
from ccb.tunnel.wire.journal_records import MAIN_AGENT, agent_of_message

PALETTE = palette_of(DARK.to_color_system().generate(), dark=True)


def edit_text(*args: Any, **kwargs: Any) -> Text:
    """What `edit_parts` gives for a screen that is not wide, in one text."""
    parts = edit_parts(*args, **kwargs)
    return Text("\n").join(part if isinstance(part, Text) else part.unified() for part in parts)


class Paper(ScriptedSession):
    """What it says goes to a reducer at once, and `screen` are its blocks as the transcript draws them. A turn has
    begun."""

    def __init__(self, width: int = 97) -> None:
        super().__init__()
        self.container = BlockList()
        self.reducer = TranscriptReducer(self.container, own_name=WHO, cwd="/srv/shop")
        self.details = False
        self._width = width
        self.begin()

    def apply(self) -> None:
        while not self._events.empty():
            item = self._events.get_nowait()
            if isinstance(item, EventGap):
                self.reducer.skipped(parse_snapshot(item.body), running=self.hello.state != "idle")
            elif isinstance(item, SessionEvent) and item.kind != "progress":
                self.reducer.apply_event(item.record, replayed=item.replayed)
            elif isinstance(item, SessionEvent) and agent_of_message(item.body) == MAIN_AGENT:
                self.reducer.apply_progress(item.public)

    @property
    def screen(self) -> str:
        self.apply()
        console = Console(file=io.StringIO(), width=self._width, color_system="truecolor")
        renderer = BlockRenderer(PALETTE, self.details, "/srv/shop")
        lines: list[str] = []
        for block in self.container.blocks:
            drawn = [line_text(line) for line in draw_lines(console, renderer, block, self._width)]
            lines += [*([] if block.tight and not self.details else [""]), *drawn]
        return "\n".join(f" {line}".rstrip() for line in lines)

    def sees(self, *texts: str) -> None:
        shown = self.screen
        assert [text for text in texts if text not in shown] == [], shown

    def loses(self, *texts: str) -> None:
        shown = self.screen
        assert [text for text in texts if text in shown] == [], shown

    def ask(self, request_id: str, tool_name: str, tool_input: dict[str, Any], **fields: Any) -> asyncio.Future[Any]:
        raise NotImplementedError("nobody answers here")
