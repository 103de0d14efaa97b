"""Asks the worker to take a waiting prompt back or to give it another place, and shows what came of it.

A prompt that is edited leaves the queue, so that the agent does not take it meanwhile; what is sent in its place says
before which prompts it goes. The worker decides: a prompt that a turn has taken stays as it is.
"""

from __future__ import annotations

from typing import Protocol

from textual.containers import Vertical

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.kinds.tasks import CANCEL_ASYNC_MESSAGE, MOVE_ASYNC_MESSAGE, QueueMove
from ccb.tunnel.wire.requests import P, Request, RequestFailed

from ...session.client import Json, SessionClient
from ..model.prompt_tracker import PromptTracker, WaitingPrompt
from ..widgets.composer import Composer
from .panel import QueueAct, QueuePanel

_TAKEN = "the agent has taken this prompt already"


class Says(Protocol):
    """Shows what came of a request."""

    def show_error(self, error: CcbError | RequestFailed) -> None: ...

    def hint(self, text: str) -> None: ...


class QueueEditing(Vertical):
    """Holds the panel while the person looks at the queue."""

    DEFAULT_CSS = "QueueEditing { height: auto; }"

    def __init__(self, client: SessionClient, prompts: PromptTracker, composer: Composer, says: Says) -> None:
        super().__init__()
        self._client = client
        self._prompts = prompts
        self._composer = composer
        self._says = says
        composer.around.steer_next = lambda: self.run_worker(self.steer_next())
        self._doing: dict[str, str] = {}
        self.panel: QueuePanel | None = None

    async def open(self) -> None:
        """Show the prompts that wait."""
        waiting = self._prompts.waiting
        if self.panel is not None:
            return
        if not waiting:
            self._says.hint("no prompt waits for the agent")
            return
        self.panel = QueuePanel(waiting, self._composer.keymap)
        await self.mount(self.panel)
        self.panel.focus()

    def refresh_panel(self) -> None:
        """Show what has changed."""
        if self.panel is not None and self.panel.is_mounted:
            self.panel.show(self._prompts.waiting, self._doing, self._prompts.dropped)

    async def edit_newest(self) -> None:
        """Put the newest prompt that waits at the worker into the composer again."""
        at_worker = [each for each in self._prompts.waiting if not each.unsent]
        if at_worker:
            await self._edit(at_worker[-1])

    async def steer_next(self) -> None:
        """Let the next prompt that waits for the end of the turn steer the agent."""
        prompt = next((each for each in self._prompts.waiting if not each.facts.steers), None)
        if prompt is None:
            self._says.hint(f"{self._composer.keymap.name('steer')} sends what is typed to the agent while it works")
        else:
            await self._steer(prompt)

    async def on_queue_panel_queue_closed(self) -> None:
        await self._close()

    async def on_queue_panel_wanted(self, event: QueuePanel.Wanted) -> None:
        if event.act is QueueAct.EDIT:
            await self._edit(event.prompt)
        elif event.act is QueueAct.DROP:
            await self._take_back(event.prompt, "dropping")
        elif event.act is QueueAct.STEER:
            await self._steer(event.prompt)
        else:
            await self._move(event.prompt, -1 if event.act is QueueAct.UP else 1)

    async def _edit(self, prompt: WaitingPrompt) -> None:
        """Take a prompt out of the queue and into the composer, unless it could not be sent again as it was."""
        files = self._composer.attachments.named_in(prompt.text)
        ids = [each.id for each in self._prompts.waiting]
        followers = ids[ids.index(prompt.id) + 1 :] if prompt.id in ids else []
        if self._composer.text:
            self._says.hint("send or clear first what is typed, then edit this prompt")
        elif not prompt.facts.whole:
            self._says.hint("only the beginning of this prompt is known here: it can be moved or dropped")
        elif prompt.facts.files > len(files):
            self._says.hint("the files of this prompt are not here any more: it can be moved or dropped")
        elif await self._take_back(prompt, "taking it back"):
            self._composer.edit_again(prompt.editable_text, followers)
            await self._close()

    async def _take_back(self, prompt: WaitingPrompt, doing: str) -> bool:
        """Take a prompt out of the queue. Return False if the agent has it."""
        answer = await self._asked(prompt, doing, Request(CANCEL_ASYNC_MESSAGE, prompt.id))
        if answer is None:
            return False
        if answer.get("cancelled") is not True:
            self._says.hint(_TAKEN)
            return False
        self._prompts.taken_back(prompt.id)
        self.refresh_panel()
        return True

    async def _steer(self, prompt: WaitingPrompt) -> None:
        """Let a prompt that waits for the end of the turn go to the agent with the next tool results."""
        if prompt.facts.steers:
            self._says.hint("the agent gets this prompt with its next tool results already")
        elif prompt.text.startswith(("!", "/")):
            self._says.hint("a command has a turn of its own: it waits for the end of this one")
        elif "steer" not in self._client.hello.capabilities:
            self._says.hint("the worker of this session is too old for this: /stop, then start again")
        else:
            followers = [each.id for each in self._prompts.waiting if not each.facts.steers and each.id != prompt.id]
            await self._moved(prompt, QueueMove(prompt.id, followers, steers=True))

    async def _move(self, prompt: WaitingPrompt, by: int) -> None:
        ids = [each.id for each in self._prompts.waiting]
        if prompt.id not in ids or not 0 <= ids.index(prompt.id) + by < len(ids):
            return
        if MOVE_ASYNC_MESSAGE.name not in self._client.hello.capabilities:
            self._says.hint("the worker of this session is too old to move a prompt: /stop, then start again")
            return
        at = ids.index(prompt.id) + by
        ids.remove(prompt.id)
        await self._moved(prompt, QueueMove(prompt.id, ids[at:]))

    async def _moved(self, prompt: WaitingPrompt, move: QueueMove) -> None:
        answer = await self._asked(prompt, "moving", Request(MOVE_ASYNC_MESSAGE, move))
        if answer is None:
            return
        if answer.get("moved") is True:
            self._prompts.moved(prompt.id, move.before, steers=move.steers)
            self.refresh_panel()
        else:
            self._says.hint(_TAKEN)

    async def _asked(self, prompt: WaitingPrompt, doing: str, request: Request[P, Json]) -> Json | None:
        self._doing[prompt.id] = doing
        self.refresh_panel()
        try:
            return await self._client.request(request)
        except (CcbError, RequestFailed) as error:
            self._says.show_error(error)
            return None
        finally:
            del self._doing[prompt.id]
            self.refresh_panel()

    async def _close(self) -> None:
        panel, self.panel = self.panel, None
        if panel is not None:
            await panel.remove()
        self._composer.focus()
