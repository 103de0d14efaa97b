"""One question of a session that somebody else drives, on its card."""

from __future__ import annotations

from contextlib import suppress

from textual.containers import Vertical

from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.journal_records import InputRecord
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse

from ..session.session_client import EventGap, Json, ReplayEnd, SessionClient, SessionEvent, parse_snapshot
from ..terminal.keymap import Keymap
from ..transcript.questions import OpenQuestions
from .approvals import card_for
from .cards.answer_keys import LOCK_S
from .cards.question_card import Asked, QuestionCard
from .rendering.permission_updates import kept_updates
from .rendering.themes import palette_in
from .widgets.painting import call_once_after

_NOTHING = "Nothing is asked any more."
_OF_A_SERVER = "It asks about a tool of an MCP server. Enter opens the session, which knows where that runs."
_NOT_KEPT = "Answered. The rule holds for this session; it is not kept."


class QuestionDesk(Vertical):
    """Shows the first open question of `session`, a viewer that may answer."""

    DEFAULT_CSS = "QuestionDesk { height: auto; }"

    def __init__(self, session: SessionClient, place: str, keymap: Keymap) -> None:
        super().__init__()
        self._session, self._place, self._keymap = session, place, keymap
        self._questions = OpenQuestions()
        self._card: QuestionCard | None = None
        self._given: tuple[str, Json] | None = None  # the answer, with the ID of its question
        self._counts = False  # the host has taken what was given

    async def answered(self) -> str:
        """Return once the question is settled, and say how. Raises CcbError."""
        replayed = False
        async for item in self._session.events():
            if isinstance(item, EventGap):
                self._questions.replace_all(parse_snapshot(item.body).questions)
            elif isinstance(item, SessionEvent):
                self._received(item)
            replayed = replayed or isinstance(item, ReplayEnd)
            if replayed and (said := await self._show()):
                return said
        raise ConnectionLost("the session has ended")

    def _received(self, item: SessionEvent) -> None:
        content = item.record.content
        public = content.public if isinstance(content, InputRecord) else item.public
        if isinstance(public, ControlRequest):
            self._questions.opened(public)
        elif isinstance(public, ControlResponse | ControlCancel):
            self._questions.closed(public.request_id)
            ours = isinstance(public, ControlResponse) and (public.request_id, public.payload) == self._given
            self._counts = self._counts or ours

    async def _show(self) -> str:
        """Put the card up. Return what has become of the question, "" while it is open."""
        wanted = self._questions.head
        if self._card is not None:
            if any(each.request_id == self._card.asked.request.request_id for each in self._questions):
                return ""
            if self._given is None or not self._counts:
                return "The question was settled elsewhere."
            return _NOT_KEPT if kept_updates(self._given[1]) else "Answered."
        if wanted is None:
            return _NOTHING
        if wanted.subtype != CAN_USE_TOOL.name or wanted.tool_name.startswith("mcp__"):
            return _OF_A_SERVER
        asked = Asked(wanted, self._place, palette_in(self.app), self._keymap, lambda text: None)
        self._card = card = card_for(asked)
        card.let_settle(True)  # the keys so far were for the list
        await self.mount(card)
        call_once_after(card, LOCK_S, self._settled)
        return ""

    @property
    def was_answered(self) -> bool:
        """Whether the person has answered, although the host may not have it yet."""
        return self._given is not None

    def _settled(self) -> None:
        if self._card is not None:
            self._card.let_settle(False)
            self._card.come()  # with nothing marked: the person may have gone on typing while it came

    async def on_question_card_answered(self, event: QuestionCard.Answered) -> None:
        event.stop()
        self._given = event.answer.request_id, event.answer.response
        with suppress(CcbError):  # the session has ended: `answered` says so
            await self._session.answer(*self._given)
