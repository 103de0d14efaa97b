"""One question of a session that somebody else drives, on its card."""

from __future__ import annotations

from contextlib import suppress

from textual.containers import Vertical

from ccb.tunnel.errors import CcbError, ConnectionLost
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.journal_records import InputRecord
from ccb.tunnel.wire.messages import ControlCancel, ControlRequest, ControlResponse, PublicMessage

from ..session.session_client import EventGap, Item, Json, ReplayEnd, SessionClient, SessionEvent, parse_snapshot
from ..terminal.keymap import Keymap
from ..transcript.questions import OpenQuestions
from .approvals import card_for
from .cards.answer_keys import LOCK_S
from .cards.question_card import Asked, QuestionCard
from .rendering.permission_updates import kept_updates
from .rendering.themes import palette_in
from .widgets.painting import call_once_after

_OF_A_SERVER = "It asks about a tool of an MCP server. Enter opens the session, which knows where that runs."
_NOT_KEPT = "Answered. The rule holds for this session; it is not kept."


class QuestionDesk(Vertical):
    """Shows the first open question of `session`, a viewer that may answer."""

    DEFAULT_CSS = "QuestionDesk { height: auto; }"

    def __init__(self, session: SessionClient, place: str, keymap: Keymap) -> None:
        super().__init__()
        self._session, self._place, self._keymap = session, place, keymap
        self._questions = OpenQuestions()
        self.given: tuple[str, Json] | None = None  # the answer, with the ID of its question; the host may not have it

    async def answered(self) -> str:
        """Return once the question is settled, and say how. Raises CcbError."""
        wanted: ControlRequest | None = None
        async for item in self._session.events():
            public = self._taken(item)
            if wanted is not None:
                if all(each.request_id != wanted.request_id for each in self._questions):
                    return self._settled_by(public)
            elif isinstance(item, ReplayEnd):
                wanted = self._questions.head
                if wanted is None:
                    return "Nothing is asked any more."
                if wanted.subtype != CAN_USE_TOOL.name or wanted.tool_name.startswith("mcp__"):
                    return _OF_A_SERVER
                await self._put_up(wanted)
        raise ConnectionLost("the session has ended")

    def _taken(self, item: Item) -> PublicMessage | None:
        public = None
        if isinstance(item, EventGap):
            self._questions.replace_all(parse_snapshot(item.body).questions)
        elif isinstance(item, SessionEvent):
            content = item.record.content
            public = content.public if isinstance(content, InputRecord) else item.public
            if isinstance(public, ControlRequest):
                self._questions.opened(public)
            elif isinstance(public, ControlResponse | ControlCancel):
                self._questions.closed(public.request_id)
        return public

    def _settled_by(self, public: PublicMessage | None) -> str:
        if not isinstance(public, ControlResponse) or (public.request_id, public.payload) != self.given:
            return "The question was settled elsewhere."
        return _NOT_KEPT if kept_updates(public.payload or {}) else "Answered."

    async def _put_up(self, wanted: ControlRequest) -> None:
        card = card_for(Asked(wanted, self._place, palette_in(self.app), self._keymap, lambda text: None))

        def listen() -> None:
            card.let_settle(False)
            card.come()  # with nothing marked: the person may have gone on typing while it came

        card.let_settle(True)  # the keys so far were for the list
        await self.mount(card)
        call_once_after(card, LOCK_S, listen)

    async def on_question_card_answered(self, event: QuestionCard.Answered) -> None:
        event.stop()
        self.given = event.answer.request_id, event.answer.response
        with suppress(CcbError):  # the session has ended: `answered` says so
            await self._session.answer(*self.given)
