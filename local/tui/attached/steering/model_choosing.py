"""/model: which model the session uses, from the next model call on."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from textual import work
from textual.widget import Widget

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.models import ALIASES, may_be_model

from ...model.blocks import Level
from ...model.transcript_reducer import TranscriptReducer
from ...views.model_panel import ModelPanel
from ...views.reading import Reading
from ..session_actions import SessionActions

if TYPE_CHECKING:
    from ....providers.model_choice import ModelChoice

_MAX_COMPLETED = 200


class ModelChoosing(Widget):
    """Answers /model. It is a widget without a place on the screen, so that its work ends with the session."""

    DEFAULT_CSS = "ModelChoosing { display: none; }"

    def __init__(self, reducer: TranscriptReducer, reading: Reading, actions: SessionActions) -> None:
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
