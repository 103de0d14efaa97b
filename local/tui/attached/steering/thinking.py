"""/effort and /thinking: how much the model thinks, from the next turn on."""

from __future__ import annotations

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.kinds.reasoning import DEFAULT_THINKING_TOKENS, EFFORTS, SET_EFFORT, SET_MAX_THINKING_TOKENS
from ccb.tunnel.wire.requests import P, Request, RequestFailed

from ....session.client import Json, SessionClient
from ...model.blocks import Level
from ...model.transcript_reducer import TranscriptReducer
from ..session_actions import SessionActions

_THINKING = "/thinking takes on, off, or a number of tokens."


class ThinkingSteering:
    """Answers /effort and /thinking. Failures are shown, never raised."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer, actions: SessionActions) -> None:
        self._client = client
        self._reducer = reducer
        self._actions = actions

    async def effort(self, level: str) -> None:
        """Set the effort; "" or `default` leaves it to the model."""
        if level not in (*EFFORTS, "", "default"):
            text = f"{level} is no level: the effort stays. /effort takes {', '.join(EFFORTS)} or default."
            self._reducer.notice(text, Level.WARNING)
            return
        wanted = level if level in EFFORTS else None
        answer = await self._ask(Request(SET_EFFORT, wanted))
        if answer is None:
            return
        applied, model = str(answer.get("applied") or ""), self._reducer.model or "the model"
        if wanted is None:
            self._reducer.notice("Effort: the model's own, from the next turn on")
        elif not applied:
            self._reducer.notice(f"Effort: {wanted}, for models that have levels; {model} has none", Level.WARNING)
        elif applied != wanted:
            self._reducer.notice(f"Effort: {wanted}; {model} knows {applied} at most")
        else:
            self._reducer.notice(f"Effort: {wanted}, from the next turn on")

    async def thinking(self, argument: str) -> None:
        """Switch thinking on or off, or set its budget."""
        tokens = {"on": DEFAULT_THINKING_TOKENS, "off": 0}.get(argument)
        if tokens is None and argument.isascii() and argument.isdigit() and len(argument) < 8:
            tokens = int(argument)
        if tokens is None:
            self._reducer.notice(_THINKING, Level.WARNING if argument else Level.INFO)
            return
        answer = await self._ask(Request(SET_MAX_THINKING_TOKENS, tokens))
        if answer is None:
            return
        if tokens and answer.get("can_think") is not True:
            model = self._reducer.model or "the model"
            self._reducer.notice(f"Thinking: on, for models that can; {model} is not known to think", Level.WARNING)
        else:
            how = f"on, with at most {tokens:,} tokens" if tokens else "off"
            self._reducer.notice(f"Thinking: {how}, from the next turn on")

    async def _ask(self, request: Request[P, Json]) -> Json | None:
        try:
            return await self._client.request(request)
        except (CcbError, RequestFailed) as error:
            self._actions.show_error(error)
            return None
