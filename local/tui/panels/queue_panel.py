"""The prompts that wait for the agent.

A prompt that is edited leaves the queue, so that the agent does not take it meanwhile; what is sent in its place says
before which prompts it goes. The worker decides: a prompt that a turn has taken stays as it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from rich.text import Text
from textual import events

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.client_requests import CANCEL_ASYNC_MESSAGE, MOVE_ASYNC_MESSAGE, QueueMove
from ccb.tunnel.wire.control_protocol import P, Request

from ...session.session_client import Json, SessionClient
from ...slash_commands.session_api import ErrorDisplay
from ...transcript.prompt_tracker import PromptTracker, WaitingPrompt
from ..composer.composer import Composer
from .list_panel import ListPanel

_TAKEN = "the agent has taken this prompt already"
_STEERS = "{queue-steer!} steers · "
_KEYS = f"{{queue-edit!}} edits · {_STEERS}{{queue-up!}}, {{queue-down!}} move · {{queue-drop!}} drops · Esc closes"


@dataclass
class _Row:
    prompt: WaitingPrompt
    taken: bool = False


class QueuePanel(ListPanel):
    """Hidden until it is opened. A prompt that the agent takes keeps its line, so that no key meets another one."""

    DEFAULT_CSS = "QueuePanel { max-height: 14; display: none; }"
    MAX_ROWS = 8

    def __init__(self, client: SessionClient, prompts: PromptTracker, composer: Composer, says: ErrorDisplay) -> None:
        super().__init__()
        self.keymap = composer.keymap
        self._client = client
        self._prompts = prompts
        self._composer = composer
        self._says = says
        self._rows: list[_Row] = []
        self._doing: dict[str, str] = {}  # what is under way with a prompt, by its id
        self._shown_doing: dict[str, str] = {}
        composer.around.steer_next = lambda: self.run_worker(self.steer_next())

    def open(self) -> None:
        if self.display:
            return
        self._rows = [_Row(each) for each in self._prompts.waiting]
        if not self._rows:
            self._says.hint("no prompt waits for the agent")
            return
        self._at = len(self._rows) - 1
        self.display = True
        self._draw()
        self.focus()

    def _close(self) -> None:
        self.display = False
        self._composer.focus()

    def refresh_panel(self) -> None:
        waiting = self._prompts.waiting
        ids = {each.id for each in waiting}
        gone = [_Row(row.prompt, taken=True) for row in self._rows if row.prompt.id not in ids]
        rows = [row for row in gone if row.prompt.id not in self._prompts.dropped] + [_Row(each) for each in waiting]
        if not self.display or (rows == self._rows and self._doing == self._shown_doing):
            return
        marked = self._rows[self._at].prompt.id if self._rows else ""
        self._rows, self._shown_doing = rows, dict(self._doing)
        places = [row.prompt.id for row in rows]
        self._at = places.index(marked) if marked in places else min(self._at, max(0, len(rows) - 1))
        self._draw()

    # Keys.

    def _pressed(self, event: events.Key) -> None:
        acts: dict[str, Callable[[WaitingPrompt], Awaitable[object]]] = {
            "edit": self._edit,
            "drop": lambda prompt: self._take_back(prompt, "dropping"),
            "up": lambda prompt: self._move(prompt, -1),
            "down": lambda prompt: self._move(prompt, 1),
            "steer": self._steer,
        }
        keys = event.key, event.character or ""
        act = next((each for each in acts if any(self.keymap.has(f"queue-{each}", key) for key in keys)), "")
        row = self._rows[self._at] if self._rows else None
        if event.key in ("escape", "q"):
            self._close()
        elif act and row is not None and not row.taken and row.prompt.id not in self._doing:
            self.run_worker(acts[act](row.prompt))
        else:
            self._step(event.key, len(self._rows))

    async def edit_newest(self) -> None:
        """Put the newest prompt that waits at the worker into the composer again."""
        at_worker = [each for each in self._prompts.waiting if not each.unsent]
        if at_worker:
            await self._edit(at_worker[-1])

    async def steer_next(self) -> None:
        """Let the next prompt that waits for the end of the turn steer the agent."""
        await self._steer(next((each for each in self._prompts.waiting if not each.facts.steers), None))

    async def _edit(self, prompt: WaitingPrompt) -> None:
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
            self._close()

    async def _take_back(self, prompt: WaitingPrompt, doing: str) -> bool:
        """Take a prompt out of the queue. Return False if the agent has it."""
        if not await self._asked(prompt, doing, Request(CANCEL_ASYNC_MESSAGE, prompt.id), "cancelled"):
            return False
        self._prompts.taken_back(prompt.id)
        self.refresh_panel()
        return True

    async def _steer(self, prompt: WaitingPrompt | None) -> None:
        if not self._prompts.can_steer():
            self._says.hint("this agent takes a prompt only at the end of its turn")
        elif prompt is None:
            self._says.hint(f"{self.keymap.name('steer')} sends what is typed to the agent while it works")
        elif prompt.facts.steers:
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
        at = ids.index(prompt.id) + by if prompt.id in ids else -1
        if not 0 <= at < len(ids):
            return
        if MOVE_ASYNC_MESSAGE.name not in self._client.hello.capabilities:
            self._says.hint("the worker of this session is too old to move a prompt: /stop, then start again")
            return
        ids.remove(prompt.id)
        await self._moved(prompt, QueueMove(prompt.id, ids[at:]))

    async def _moved(self, prompt: WaitingPrompt, move: QueueMove) -> None:
        if await self._asked(prompt, "moving", Request(MOVE_ASYNC_MESSAGE, move), "moved"):
            self._prompts.moved(prompt.id, move.before, steers=move.steers)
            self.refresh_panel()

    async def _asked(self, prompt: WaitingPrompt, doing: str, request: Request[P, Json], done: str) -> bool:
        self._doing[prompt.id] = doing
        self.refresh_panel()
        answer = await self._says.ask(request)
        del self._doing[prompt.id]
        self.refresh_panel()
        if answer is not None and answer.get(done) is not True:
            self._says.hint(_TAKEN)
        return answer is not None and answer.get(done) is True

    def _draw(self) -> None:
        palette = self._palette
        waiting = sum(not row.taken for row in self._rows)
        count = f"{waiting} prompt{'' if waiting == 1 else 's'} for the agent, the next one first"
        none = "The agent has every prompt" if self._rows else "No prompt waits any more"
        text = Text(count if waiting else none, style="bold", no_wrap=True, overflow="ellipsis")
        for at in self._window(len(self._rows), self.MAX_ROWS):
            text.append("\n").append_text(self._line(self._rows[at], marked=at == self._at))
        more = f"\n  … {len(self._rows)} in all" if len(self._rows) > self.MAX_ROWS else ""
        text.append(more, style=f"not bold {palette.dim}")
        taken = "What it has taken cannot be changed any more · " if self._rows else ""
        keys = _KEYS if self._prompts.can_steer() else _KEYS.replace(_STEERS, "")
        keys = self.keymap.filled(keys) if waiting else f"{taken}Esc closes"
        self.update(text.append(f"\n{keys}", style=f"not bold {palette.dim}"))

    def _line(self, row: _Row, *, marked: bool) -> Text:
        palette, line = self._palette, self._row(marked=marked)
        state = self._doing.get(row.prompt.id, "")
        if row.taken:
            state = "the agent has it"
        elif row.prompt.unsent and not state:
            state = "waiting to be sent"
        elif row.prompt.facts.steers and not state:
            state = "steers"
        line.append(f"{state}  " if state else "", style=palette.warn if not row.taken else palette.dim)
        shown = one_line(row.prompt.text)[:200] or "(no text)"
        return line.append(shown, style=palette.dim if row.taken else "bold" if marked else "")
