"""/model: which model the session uses, from the next model call on."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from textual import work
from textual.widget import Widget

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.client_requests import DEFAULT_THINKING_TOKENS, EFFORTS, SET_EFFORT, SET_MAX_THINKING_TOKENS
from ccb.tunnel.wire.control_protocol import P, Request, RequestFailed
from ccb.tunnel.wire.model_facts import ALIASES, may_be_model

from ..session.session_client import Json, SessionClient
from ..transcript.blocks import Level
from ..transcript.transcript_reducer import TranscriptReducer
from .panels.model_panel import ModelPanel
from .panels.page_holder import PageHolder
from .session_actions import SessionActions

if TYPE_CHECKING:
    from ..providers.known_models import ModelChoice


_MAX_COMPLETED = 200


class ModelChoosing(Widget):
    """Answers /model. It is a widget without a place on the screen, so that its work ends with the session."""

    DEFAULT_CSS = "ModelChoosing { display: none; }"

    def __init__(self, reducer: TranscriptReducer, reading: PageHolder, actions: SessionActions) -> None:
        super().__init__()
        self._reducer = reducer
        self._reading = reading
        self._actions = actions
        self._models: ModelChoice | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the list above the composer offers."""
        known = self._models.names[:_MAX_COMPLETED] if self._models is not None else ()
        return (*ALIASES, *known)

    def use(self, models: ModelChoice | None) -> None:
        """Use what this laptop knows of models."""
        self._models = models
        self._read()

    @work(exclusive=True, group="kept lists of models")
    async def _read(self) -> None:
        if self._models is not None:
            await self._models.kept()

    async def command(self, name: str) -> None:
        """Use a model; without a name, let the person choose one."""
        if name:
            await self._use(name)
        elif self._models is None:
            self._show(f"Model: {self._reducer.model or 'not known before the first turn'}")
        else:
            panel = ModelPanel(await self._models.kept(), self._reducer.model, self._chosen)
            self._reading.open(panel)
            self._refresh(panel)

    @work(exclusive=True, group="lists of models")
    async def _refresh(self, panel: ModelPanel) -> None:
        assert self._models is not None
        offers, notes = await self._models.current()
        if self._reading.shown is panel:
            panel.show(offers, notes)

    @work
    async def _chosen(self, name: str) -> None:
        self._reading.close()
        if name != self._reducer.model:
            await self._use(name)

    async def _use(self, given: str) -> None:
        name = self._models.without_alias(given) if self._models is not None else given
        if not may_be_model(name):
            near = difflib.get_close_matches(name.lower(), ALIASES, n=1)
            meant = f" Did you mean /model {near[0]}?" if near else ""
            takes = f"/model takes {', '.join(ALIASES)}, or the full id of a model as its provider writes it."
            self._show([f"{name} is no model: the model stays.{meant}", takes], Level.WARNING)
            return
        said: list[str] = []
        if self._models is not None:
            try:
                said = await self._models.check(name)
            except CcbError as error:
                texts = (f"{error.what}: the model stays.", error.evidence, error.do)
                self._show([each for each in texts if each], Level.WARNING)
                return
            await self._actions.teach(self._models.known(name))
        known = name in ALIASES or (self._models is not None and name in self._models.names)
        judged = "" if known else ", where the provider refuses it if it does not exist"
        if await self._actions.set_model(name):
            self._show([f"Model: {name}, from the next model call on{judged}", *said])

    def _show(self, text: str | list[str], level: Level = Level.INFO) -> None:
        self._reducer.notice(text, level)


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
