"""What runs beside the agent, and what it puts out: the panel of `/tasks`, and the whole output of a command."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from rich.console import Group
from rich.text import Text
from textual import events, work

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import age_text, as_line, one_line
from ccb.tunnel.wire.client_requests import STOP_TASK
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.tool_traits import TASK

from ...commands.session_table import cut
from ...session.session_client import OutputPiece, SessionClient
from ...slash_commands.session_api import ErrorDisplay
from ...transcript.blocks import AgentRun, Level, NoticeBlock, ToolBlock, ToolState
from ...transcript.session_facts import BackgroundTask
from ...transcript.tool_calls import agent_label
from ...transcript.transcript_reducer import TranscriptReducer
from ..rendering.block_renderer import agent_row, agent_summary
from .list_panel import FOR_THE_INPUT, FRAME_CELLS, TYPING_S, ListPanel, PanelClosed
from .page_holder import PageHolder
from .pages import ReadingPage

_EVERY_S = 1.0  # between two questions about the output of one task
_PATIENCE_S = 4.0  # from then on the status line says, too, that the host is silent
_SLOW = 16 * 1024  # bytes a second of a slow link
_MAX_STATUS = 40
_GONE = "the host does not keep its output any more"


class OutputTail:
    """The newest `lines` of what a task has put out, read piece by piece, and the line that has `begun`. `problem` says
    why they are not up to date."""

    def __init__(self, task_id: str, most_bytes: int, most_lines: int) -> None:
        self.lines: deque[str] = deque(maxlen=most_lines)
        self.begun = self.problem = ""
        self.left_out = 0  # bytes before the first line
        self._task_id, self._most = task_id, most_bytes
        self._newest: OutputPiece | None = None
        self._next = 0
        self._read_at = 0.0  # monotonic

    @property
    def is_due(self) -> bool:
        """Whether it has not been read lately, and may have grown since."""
        goes_on = self._newest is None or self._newest.runs or bool(self.problem)
        return goes_on and time.monotonic() - self._read_at >= _EVERY_S

    @property
    def age_s(self) -> float | None:
        """For how long the task runs, or has run, as its host says; None before it has said so."""
        newest = self._newest
        return None if newest is None else newest.seconds + (time.monotonic() - self._read_at if newest.runs else 0.0)

    @property
    def state(self) -> str:
        status = one_line(self._newest.status[:_MAX_STATUS]) if self._newest is not None else ""
        return f"{status} {age_text(self.age_s or 0)}".strip()

    @property
    def last_line(self) -> str:
        return self.begun or next((each for each in reversed(self.lines) if each.strip()), "")

    async def read(self, client: SessionClient) -> list[str]:
        """Read once, and return the new lines."""
        newest = await self._ask(client, self._next)
        self._read_at = time.monotonic()
        if newest is None:
            return []
        new = _lines(newest.text[-self._most :])
        if self._newest is None:
            self.left_out = newest.start
        elif new and newest.start > self._next:
            new.insert(0, f"… {newest.start - self._next:,} bytes came too fast to be shown")
        self._newest, self._next = newest, newest.next
        self.begun = "".join(_lines(newest.begun[-self._most :] + "\n"))
        self.lines.extend(new)
        return new

    async def read_earlier(self, client: SessionClient) -> list[str]:
        """Read what comes before the first line, and return its lines, the last of which may go on in that."""
        earlier = await self._ask(client, 0, self.left_out)
        if earlier is None or not (earlier.start < self.left_out and earlier.text + earlier.begun):
            return [""]
        self.left_out = earlier.start
        return _lines(f"{earlier.text}{earlier.begun}"[-self._most :] + "\n")

    async def _ask(self, client: SessionClient, after: int, before: int | None = None) -> OutputPiece | None:
        try:
            async with asyncio.timeout(_PATIENCE_S + self._most / _SLOW):
                found = await client.output(self._task_id, after, self._most, before)
        except TimeoutError:
            self.problem = "the host does not answer now"
        except CcbError as error:
            self.problem = error.what
        else:
            self.problem = "" if found is not None else _GONE
            return found
        return None


def _lines(text: str) -> list[str]:
    """Return whole lines as a terminal shows them, in which a carriage return goes back to the start."""
    return [as_line(each.rstrip("\r").rpartition("\r")[2]) for each in text.split("\n")[:-1]]


_LINES = 200  # of a block
_WHOLE = 256 * 1024  # bytes of the output that a page asks for at once
_PAGE_KEYS = (
    "Esc goes back · {view-search!} searches · {view-start!}, {view-end!} · {page-up!}, {page-down!}"
    " · {view-copy!} copies · {view-pager!} pager"
)


class TaskPage(ReadingPage):
    """All output of a command that is kept on the host, as it grows."""

    KEYS = _PAGE_KEYS

    def __init__(self, client: SessionClient, task: BackgroundTask, place: str) -> None:
        super().__init__(f"{one_line(task.id)}: {one_line(task.description)}")
        self._name, self._place, self._client = self.heading, place, client
        self._command = task
        self._tail = OutputTail(task.id, _WHOLE, 1)
        self._earlier = NoticeBlock(level=Level.DIM)  # in place of what is not loaded
        self._block: NoticeBlock | None = None  # the last one
        self._whole: list[str] = []  # the whole lines in it

    async def fill(self) -> None:
        self.say("loading …")
        await self._read()
        self.say("" if self.body.blocks else "It has put out nothing yet.")
        self._follow()

    def _count_earlier(self, but: str) -> None:
        self._earlier.text = f"… the first {self._tail.left_out:,} bytes are not loaded: {but}"
        self.body.update_block(self._earlier)

    async def load_all(self) -> None:
        layout = self.body.block_layout
        while (left_out := self._tail.left_out) and self._earlier in layout and layout.has_room_for_earlier:
            *lines, begun = await self._tail.read_earlier(self._client)
            if self._tail.left_out == left_out:
                break
            below = self.body.blocks[1]
            below.text = begun + below.text
            self.body.update_block(below)
            if below is self._block and self._whole:
                self._whole[0] = begun + self._whole[0]
            parts = [lines[at : at + _LINES] for at in range(0, len(lines), _LINES)]
            self.body.insert([NoticeBlock(text="\n".join(part), tight=True) for part in parts], after=self._earlier)
            self._count_earlier("loading …")
            self.body.settle()
        if self._tail.left_out:
            self._count_earlier(f"they are in {one_line(self._command.output_file) or 'no file'} on the host")
        else:
            self.body.take_away(self._earlier)

    @work(exclusive=True, group="output")
    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            if self._tail.is_due:
                await self._read()

    async def _read(self) -> None:
        for line in await self._tail.read(self._client):
            count = len(self._whole)
            if count >= 2 * _LINES or (count >= _LINES and line.strip()):  # a block does not draw blank lines first
                self._show("\n".join(self._whole))
                self._block, self._whole = None, []
            self._whole.append(line)
        self._show("\n".join([*self._whole, *filter(None, [self._tail.begun])]))
        if self._tail.left_out and self.body.blocks and not self._earlier.text:
            self.body.add(self._earlier, before=self.body.blocks[0])
            self._count_earlier(f"{self.keymap.name('view-start')} loads them")
        state = f"not live: {self._tail.problem}" if self._tail.problem else self._tail.state
        self.heading = f"{self._name} · {state} · {self._place}"
        self._draw()

    def _show(self, text: str) -> None:
        if self._block is None and text:
            self._block = NoticeBlock(text=text, tight=True)
            self.body.add(self._block)
        elif self._block is not None and text != self._block.text:
            self._block.text = text
            self.body.update_block(self._block)

    def own_key(self, event: events.Key) -> bool:
        if self._is(event, "view-copy"):
            self.post_message(self.CopyWanted(self._text))
            return True
        return False

    async def as_text(self) -> str:
        await self._filled.wait()
        return self._text

    @property
    def _text(self) -> str:
        return "\n".join(each.text for each in self.body.blocks) + "\n"


@dataclass(frozen=True)
class TaskRow:
    """A task in the background, or a sub-agent, or both. `end` is "" while it runs."""

    id: str
    label: str
    since: float  # monotonic
    end: str = ""
    ended_at: float = 0.0
    failed: bool = False
    task: BackgroundTask | None = None
    call: ToolBlock | None = None

    @property
    def agent(self) -> AgentRun | None:
        return self.call.agent if self.call is not None else None


_MAX_ENDED = 20


def task_rows(reducer: TranscriptReducer) -> list[TaskRow]:
    """Return what runs beside the agent, and then what has ended, the last one first."""
    calls = {each.tool_id: each for each in reducer.agent_calls}
    tasks = [*reducer.tasks.running, *reducer.tasks.ended]
    rows = [_task_row(each, calls.pop(each.id, None)) for each in tasks]
    rows += [_agent_row(each, each.agent) for each in calls.values() if each.agent is not None]
    ended = sorted((each for each in rows if each.end), key=lambda row: row.ended_at, reverse=True)
    return [*(each for each in rows if not each.end), *ended[:_MAX_ENDED]]


def _task_row(task: BackgroundTask, call: ToolBlock | None) -> TaskRow:
    if call is None and task.is_agent:  # the event that has started it is not loaded
        run = AgentRun(agent_id=task.agent_id or task.id, in_background=True, ended=bool(task.end), since=task.since)
        call = ToolBlock(tool_id=task.id, name=TASK.name, tool_input={"description": task.description}, agent=run)
    label = agent_label(call.tool_input) if call is not None else one_line(task.description)
    since = call.agent.since if call is not None and call.agent is not None else task.since
    return TaskRow(task.id, label, since, task.end, task.ended_at, task.failed, task, call)


def _agent_row(call: ToolBlock, run: AgentRun) -> TaskRow:
    ends = {ToolState.FAILED: "failed", ToolState.UNKNOWN: "its end is not known here"}
    end = "completed" if run.ended and call.state is not ToolState.FAILED else ends.get(call.state, "")
    label, failed = agent_label(call.tool_input), call.state is ToolState.FAILED
    return TaskRow(call.tool_id, label, run.since, end, run.since + run.seconds, failed, call=call)


def _age(row: TaskRow, known_s: float | None) -> str:
    """Return how long a task runs or has run; "" for one that had ended before this terminal came."""
    age_s = (row.ended_at if row.end else time.monotonic()) - row.since if known_s is None else known_s
    return age_text(age_s) if age_s >= 1 or not row.end else ""


_KEYS = "{task-open!} shows all · {task-stop!} stops it · Up, Down · Esc closes"
_FRAME = 14  # lines of the screen beside the rows and the output of one
_MAX_TAIL, _TAIL_BYTES = 10, 8 * 1024  # lines and bytes
_AGE_CELLS, _KIND_CELLS = 5, 8


class TaskPanel(ListPanel):
    """Lists what runs beside the agent. What the marked one puts out is shown below, and brought up to date once a
    second."""

    DEFAULT_CSS = """
    TaskPanel { border: round $border-blurred; }
    TaskPanel:focus { border: round $accent; }
    """
    MAX_ROWS = 8

    def __init__(
        self, client: SessionClient, reducer: TranscriptReducer, says: ErrorDisplay, reading: PageHolder, place: str
    ) -> None:
        super().__init__()
        self._client, self._reducer, self._says, self._reading, self._place = client, reducer, says, reading, place
        self._rows = task_rows(reducer)
        self._tails: dict[str, OutputTail] = {}
        self._stopping: set[str] = set()
        self._moved = asyncio.Event()
        self._typed_at = 0.0
        self._shape = 0, ""  # the number of lines, and the hint, which may be folded
        self._hint = ""

    def on_mount(self) -> None:
        super().on_mount()
        self._follow()

    @work(exclusive=True, group="output")
    async def _follow(self) -> None:
        while True:
            for row in self._by_interest if self.display else ():
                tail = self._tails.setdefault(row.id, OutputTail(row.id, _TAIL_BYTES, 2 * _MAX_TAIL))
                if tail.is_due:
                    await tail.read(self._client)
                    self._draw()
            self._moved.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(_EVERY_S):
                    await self._moved.wait()
            self._draw()

    @property
    def _by_interest(self) -> list[TaskRow]:
        marked = self._marked
        commands = [each for each in self._rows if each.call is None]
        return sorted((each for each in commands if each is marked or not each.end), key=lambda row: row is not marked)

    @property
    def _marked(self) -> TaskRow | None:
        return self._rows[self._at] if self._rows else None

    # Keys.

    def _pressed(self, event: events.Key) -> None:
        self._hint, row, now = "", self._marked, time.monotonic()
        if event.key in ("escape", "q"):
            self.post_message(PanelClosed())
        elif row is not None and self.keymap.pressed("task-open", event.key, event.character):
            self._open(row)
        elif row is not None and self.keymap.pressed("task-stop", event.key, event.character):
            self._hint = self._stopped(row) if now - self._typed_at >= TYPING_S else FOR_THE_INPUT
        elif not self._step(event.key, len(self._rows)) and event.is_printable:
            self._typed_at, self._hint = now, FOR_THE_INPUT
        self._moved.set()

    def _open(self, row: TaskRow) -> None:
        if row.call is not None:
            self._reading.open_agent(row.call)
        elif row.task is not None:
            self._reading.open(TaskPage(self._client, row.task, self._place), over=True)

    def _stopped(self, row: TaskRow) -> str:
        """Stop a task. Return why not, "" if it is being stopped."""
        if row.end:
            return "It has ended already."
        if row.id not in self._stopping:
            self._ask_to_stop(row.id)
        return ""

    @work
    async def _ask_to_stop(self, task_id: str) -> None:
        self._stopping.add(task_id)
        if await self._says.ask(Request(STOP_TASK, task_id)) is None:
            self._stopping.discard(task_id)

    # What is drawn.

    def _draw(self) -> None:
        marked = self._marked.id if self._marked is not None else ""
        self._rows = rows = task_rows(self._reducer)
        ids = [each.id for each in rows]
        self._at = ids.index(marked) if marked in ids else max(0, min(self._at, len(rows) - 1))
        self._tails = {task_id: tail for task_id, tail in self._tails.items() if task_id in ids}
        palette, width = self._palette, max(20, self.size.width or self.app.size.width - FRAME_CELLS)
        room = max(4, self.app.size.height - _FRAME)
        shown = self._window(len(rows), min(self.MAX_ROWS, max(2, room // 2)))
        runs = sum(not each.end for each in rows)
        head = Text(f"Tasks: {runs} running, {len(rows) - runs} ended", "bold", no_wrap=True, overflow="ellipsis")
        head.append(f"   {self._place}", style=f"not bold {palette.dim}")
        lines = [self._line(rows[at], width, marked=at == self._at) for at in shown]
        below = self._below(min(_MAX_TAIL, room - len(lines)))
        keys = Text(self._hint or self.keymap.filled(_KEYS), style=palette.warn if self._hint else palette.dim)
        drawn = [head, *lines, Text("─" * width, style=palette.dim), *below, keys]
        shape, self._shape = self._shape, (len(drawn), self._hint)
        self.update(Group(*drawn), layout=shape != self._shape)  # else the whole screen is laid out once a second

    def _line(self, row: TaskRow, width: int, *, marked: bool) -> Text:
        palette, tail, line = self._palette, self._tails.get(row.id), self._row(marked=marked)
        mark, style = ("◐", palette.accent) if not row.end else ("✗", palette.bad) if row.failed else ("●", palette.dim)
        if row.agent is not None and row.agent.asks:
            mark, style = "?", f"bold {palette.warn}"
        line.append(f"{mark} ", style=style)
        age = _age(row, tail.age_s if tail is not None else None)
        kind = "agent" if row.call is not None else cut(one_line(row.id), _KIND_CELLS)
        line.append(f"{age:>{_AGE_CELLS}}  {kind:<{_KIND_CELLS}}  ", style=f"not bold {palette.dim}")
        line.append(cut(row.label, max(12, width // 2)), style=palette.dim if row.end else "bold" if marked else "")
        said, style = self._last(row, tail), palette.dim
        if not row.end and row.id in self._stopping:
            said, style = "being stopped", palette.warn
        return line.append(f"  {said}" if said else "", style=f"not bold {style}")

    def _last(self, row: TaskRow, tail: OutputTail | None) -> str:
        if row.end or row.agent is None:
            return row.end or (tail.last_line if tail is not None else "")
        if row.agent.asks or not row.agent.rows:
            return "asks you" if row.agent.asks else "starting"
        return agent_row(row.agent.rows[-1], self._palette, self._cwd).plain

    @property
    def _cwd(self) -> str:
        return self._reducer.notices.cwd

    def _below(self, count: int) -> list[Text]:
        """Draw the end of what the marked one has put out, always with as many lines."""
        palette, row, lines = self._palette, self._marked, []
        if row is not None and row.call is not None and row.agent is not None:
            lines = [Text(agent_summary(row.call, row.agent), style=palette.dim)]
            lines += [agent_row(each, palette, self._cwd) for each in list(row.agent.rows)[1 - count :]]
        elif row is not None and (tail := self._tails.get(row.id)) is not None:
            texts = list(filter(str.strip, (*tail.lines, tail.begun)))
            problem = [Text(f"not live: {tail.problem}", style=palette.warn)] if tail.problem else []
            lines = [*problem, *map(Text, texts[len(problem) - count :])]
            nothing = "It has put out nothing." if row.end else "It has put out nothing yet."
            lines = lines or [Text(nothing, style=palette.dim)]
        for each in lines:
            each.no_wrap, each.overflow = True, "ellipsis"
        return [*lines, *(Text() for _ in range(count - len(lines)))]
