"""Asks the worker for the prompts, shows the panel, and lets the session go back."""

from __future__ import annotations

from typing import Protocol, TypeVar

from pydantic import BaseModel, ValidationError
from textual.containers import Vertical

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.kinds.rewind import (
    REWIND_CONVERSATION,
    REWIND_FILES,
    REWIND_POINTS,
    ConversationRewind,
    FileRewind,
)
from ccb.tunnel.wire.requests import A, P, Request, RequestFailed

from ...session.client import SessionClient
from ..model.blocks import Level
from ..model.transcript_reducer import TranscriptReducer
from ..widgets.composer import Composer
from .answers import PastPrompts, RewindPreview
from .panel import RewindPanel, Scope

TWICE_S = 1.5
"""Seconds in which Esc counts as pressed twice."""

Shape = TypeVar("Shape", bound=BaseModel)


class ShowsErrors(Protocol):
    """Shows the error of a request."""

    def show_error(self, error: CcbError | RequestFailed) -> None: ...


class Rewinding(Vertical):
    """Holds the panel while the person goes back."""

    DEFAULT_CSS = "Rewinding { height: auto; }"

    def __init__(
        self, client: SessionClient, reducer: TranscriptReducer, composer: Composer, errors: ShowsErrors
    ) -> None:
        super().__init__()
        self._client = client
        self._reducer = reducer
        self._composer = composer
        self._errors = errors
        self.panel: RewindPanel | None = None
        self._pressed_at = -TWICE_S

    def pressed_twice(self, now: float) -> bool:
        """Note that the person pressed Esc, at `now` in monotonic seconds. Return whether it was the second time."""
        twice = now - self._pressed_at < TWICE_S
        self._pressed_at = -TWICE_S if twice else now
        return twice

    async def open(self) -> None:
        """Let the person pick a prompt."""
        if self.panel is not None:
            return
        listed = await self._asked(Request(REWIND_POINTS, None), PastPrompts)
        if listed is None:
            return
        if not listed.points:
            self._reducer.notice("There is no prompt to go back to yet.")
            return
        if self.panel is None:
            self.panel = RewindPanel(listed.points, self._reducer.notices.cwd, files_kept=listed.files_kept)
            await self.mount(self.panel)
            self.panel.focus()

    async def on_rewind_panel_picked(self, event: RewindPanel.Picked) -> None:
        preview = await self._asked(Request(REWIND_FILES, FileRewind(event.point.id, dry_run=True)), RewindPreview)
        if preview is None:
            await self._close()
        elif self.panel is not None:
            self.panel.show(preview)

    async def on_rewind_panel_chosen(self, event: RewindPanel.Chosen) -> None:
        await self._close()
        point = event.point
        if event.scope is Scope.FILES:
            await self._asked(Request(REWIND_FILES, FileRewind(point.id)), RewindPreview)
            return
        rewind = ConversationRewind(point.id, files=event.scope is Scope.BOTH)
        done = await self._asked(Request(REWIND_CONVERSATION, rewind), RewindPreview)
        if done is not None and done.prompt:
            self._composer.give_back(done.prompt)

    async def on_rewind_panel_closed(self) -> None:
        await self._close()

    async def _close(self) -> None:
        panel, self.panel = self.panel, None
        if panel is not None:
            await panel.remove()
        self._composer.focus()

    async def _asked(self, request: Request[P, A], shape: type[Shape]) -> Shape | None:
        """Send a request. Show what went wrong, and return None."""
        try:
            return shape.model_validate(await self._client.request(request))
        except (CcbError, RequestFailed) as error:
            self._errors.show_error(error)
        except ValidationError:
            self._reducer.notice("The worker's answer about going back cannot be read.", Level.ERROR)
        return None
