"""Blocks and questions as lines."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable

from ccb.tunnel.plain_text import HostText, as_line
from ccb.tunnel.wire.control_protocol import TRUST_PROJECT
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import ControlRequest
from ccb.tunnel.wire.tool_traits import View, traits_of

from ..transcript.blocks import Block, HoleBlock, Level, MarkdownBlock, NoticeBlock, PromptBlock, ToolBlock, ToolState
from ..transcript.questions import REVERSE_PORT, FormField, ReversedPort, read_questions
from ..transcript.session_facts import READING
from ..tui.rendering.approval_text import bounded, circumstances, subject_lines, trust_lines
from ..tui.rendering.permission_updates import (
    KEPT,
    READS,
    can_be_kept,
    describe_update,
    kept_in,
    reads_services,
    session_updates,
)
from ..tui.rendering.tool_output import error_lines, headline
from ..tui.rendering.untrusted_text import escaped_name

_MAX_LINES = 12  # lines of a tool's result; of a longer one, half from each end
_MAX_CALLS = 256  # the newest tool calls, which may still get a result
_MAX_PROBLEMS = 20
_LEVELS = {Level.INFO: "ccb: ", Level.DIM: "ccb: ", Level.WARNING: "ccb: warning: ", Level.ERROR: "ccb: error: "}
_OURS = re.compile(r"\W*ccb\W*:")
_SIGNS = {"completed": "done", "in_progress": "in progress", "pending": "open", "deleted": "removed"}
_DENIED = "The user denied this; it was not done."
_CANNOT = "This question needs the full interface; only a refusal is possible here."


def quoted(text: str) -> list[str]:
    """Return a text of the agent or the host as lines, none of which begins as one of ccb does."""
    lines = map(as_line, text.strip().split("\n"))
    return [f"  {line}" if _OURS.match(line) else line for line in lines]


class LinePrinter:
    """A `BlockContainer` that prints whole lines. `own_prompts` are texts that are not printed again."""

    def __init__(self, write: Callable[..., None], cwd: str = "") -> None:
        self.own_prompts: list[str] = []
        self.problems: deque[str] = deque(maxlen=_MAX_PROBLEMS)  # the last warnings and errors
        self._write = write
        self._cwd = cwd
        self._printed: set[Block] = set()
        self._begun: set[Block] = set()  # calls whose headline is printed
        self._calls: deque[ToolBlock] = deque(maxlen=_MAX_CALLS)  # the reducer keeps calls only while a container does

    def add(self, block: Block, *, before: Block | None = None) -> None:
        if isinstance(block, PromptBlock) and block.text in self.own_prompts:
            self.own_prompts.remove(block.text)
        elif isinstance(block, PromptBlock):
            self._once(block, *quoted(f"Prompt: {block.text.strip()}"))
        elif isinstance(block, NoticeBlock):
            self._once(block, *self._notice(block))
            if block.level in (Level.WARNING, Level.ERROR):
                self.problems.append(block.text)
        else:
            if isinstance(block, ToolBlock):
                self._calls.append(block)
            self.update_block(block)

    def update_block(self, block: Block) -> None:
        if isinstance(block, MarkdownBlock) and not block.live and block.text.strip():
            self._once(block, *quoted(block.text))
        elif isinstance(block, ToolBlock):
            self._call(block)
        elif isinstance(block, NoticeBlock) and block in self._printed:
            self._write(*self._notice(block))

    def take_away(self, block: Block) -> None:
        if block in self._printed:
            self._printed.remove(block)
            if isinstance(block, MarkdownBlock):
                self._write("ccb: the model begins this answer again; the text above does not count.")

    def cut(self, first: Block, before: Block | None) -> list[Block]:
        return []  # what is printed stays

    def _once(self, block: Block, *lines: str) -> None:
        if block not in self._printed:
            self._printed.add(block)
            self._write(*lines)

    def _notice(self, block: NoticeBlock) -> list[str]:
        if isinstance(block, HoleBlock):
            return ["ccb: earlier events of this session are not shown."]
        text = block.text.strip()
        first, *more = error_lines(text) if block.level is Level.ERROR else text.split("\n")
        return [f"{_LEVELS[block.level]}{first}", *(f"  {line}" for line in more)]  # no other line begins as one of ccb

    def _call(self, block: ToolBlock) -> None:
        name = block.shown_name
        if block.state is not ToolState.WAITING and block not in self._begun and block.tool_input:
            self._begun.add(block)
            self._write(f"{name}: {headline(block.name, block.tool_input, self._cwd)}".rstrip(": "))
            self._write(*_todos(block))
        if block.state in (ToolState.DONE, ToolState.FAILED):
            failed = block.state is ToolState.FAILED
            if failed or not traits_of(block.name).view.shows_todos:
                self._once(block, *_result(block, failed=failed) or [f"{name} is done."])


def _result(block: ToolBlock, *, failed: bool) -> list[str]:
    lines = block.unmarked(block.result).strip().splitlines()
    if traits_of(block.name).view is View.FILE_LINES and not failed:
        return [f"  {len(lines)} line{'s' if len(lines) != 1 else ''}"]
    left = len(lines) - _MAX_LINES
    if left > 0:
        half = _MAX_LINES // 2
        lines = [*lines[:half], f"({left} lines are not shown)", *lines[-half:]]
    head = [f"{block.shown_name} failed:"] if failed else []
    return head + [f"  {line}" for line in lines]


def _todos(block: ToolBlock) -> list[str]:
    todos = block.tool_input.get("todos") if traits_of(block.name).view.shows_todos else None
    listed = [each for each in todos if isinstance(each, dict)] if isinstance(todos, list) else []
    return [f"  {_SIGNS.get(str(each.get('status')), 'open')}: {each.get('content')}" for each in listed]


Reply = Json | str | None
"""A typed line: the answer for the worker, the reason why the line is refused, or None to ask the next question."""


class PlainQuestion:
    def __init__(self, request: ControlRequest, place: str) -> None:
        self.request = request
        self._fields: tuple[FormField, ...] = ()
        self._answers: dict[str, str] = {}
        self._place = place
        self._readable = True
        self._updates = session_updates(request)
        if traits_of(request.tool_name).view is View.QUESTIONS:
            form = read_questions(request.input)
            self._fields = form.fields if form is not None else ()

    @property
    def lines(self) -> list[str]:
        if self._fields:
            return self._field_lines(self._fields[len(self._answers)])
        if self.request.subtype == TRUST_PROJECT.name:
            directory = HostText(str(self.request.input.get("directory"))).path
            shown = [f"  {line.gutter}{line.picture}" for line in trust_lines(self.request.input)]
            return [f"Do you trust the files of {directory}?", *shown, "1: trust them", "2: do not trust them"]
        if self.request.subtype == REVERSE_PORT.name:
            asked = ReversedPort(**self.request.input)
            return [asked.question, *(f"  {each}" for each in asked.facts), "1: yes, in this session", "2: no"]
        if self.request.subtype != "can_use_tool":
            return [_CANNOT, "n: refuse"]
        call, self._readable = bounded(subject_lines(self.request))
        lines = [f"The agent asks to use {escaped_name(self.request.tool_name)} on {self._place}:"]
        lines += [f"  {line.gutter}{line.picture}" for line in call]
        return [*lines, *map("".join, circumstances(self.request)), *self._choices()]

    def reply(self, text: str) -> Reply:
        text = text.strip()
        word, _, rest = text.partition(" ")
        if self._fields:
            return self._field_reply(text)
        if self.request.subtype == TRUST_PROJECT.name:
            return {"trusted": word == "1"} if word in ("1", "2") else "Type 1 or 2."
        if self.request.subtype == REVERSE_PORT.name:
            return {"allowed": word == "1"} if word in ("1", "2") else "Type 1 or 2."
        if self.request.subtype != "can_use_tool":
            return {"action": "decline"} if word == "n" else "Type n."
        return self._call_reply(word, rest)

    def _call_reply(self, word: str, rest: str) -> Reply:
        if word in ("4", "n"):
            return {"behavior": "deny", "message": _DENIED + (f" The user says: {rest}" if rest else "")}
        if not self._readable:
            return "This call is too long to be read, so it can only be denied: type 4."
        if word in ("1", "y"):
            return {"behavior": "allow", "updatedInput": self.request.input}
        if (word == "2" and self._updates) or (word == "3" and can_be_kept(self._updates)):
            destination = "session" if word == "2" else KEPT
            updates = [{**each, "destination": destination} for each in self._updates]
            return {"behavior": "allow", "updatedInput": self.request.input, "updatedPermissions": updates}
        if word == "5" and reads_services(self.request):
            return {"behavior": "allow", "updatedInput": self.request.input, "updatedPermissions": [READS]}
        return "Type the number of an answer. What you say to the agent waits until this is answered."

    def _choices(self) -> list[str]:
        deny = "4: No, and say why (a reason may follow)"
        if not self._readable:
            return [deny]
        rules = "; ".join(rule for each in self._updates for rule in describe_update(each))
        session = [f"2: Yes, and {rules} in this session"] if rules else []
        always = [f"3: Yes, and always here: {rules.removeprefix('allow ')}, in {kept_in()}"]
        reads = [f"5: Yes, and always here: {READING}, in {kept_in()}"] if reads_services(self.request) else []
        return ["1: Yes, once", *session, *(always if can_be_kept(self._updates) else ()), deny, *reads]

    def _field_lines(self, field: FormField) -> list[str]:
        lines = [f"The agent asks: {field.question}"]
        for number, option in enumerate(field.options, 1):
            said = f": {option.description}" if option.description else ""
            lines.append(f"{number}: {option.label}{said}")
        several = "Type one number or several with commas" if field.several else "Type a number"
        return [*lines, f"{several}{', or an answer of your own' if field.own_text else ''}; n alone declines."]

    def _field_reply(self, text: str) -> Reply:
        field = self._fields[len(self._answers)]
        if text == "n":
            return {"behavior": "deny", "message": "The user declined to answer the questions."}
        numbers = text.replace(",", " ").split()
        if numbers and all(each.isdigit() and 0 < int(each) <= len(field.options) for each in numbers):
            if len(numbers) > 1 and not field.several:
                return "Only one answer is possible."
            self._answers[field.key] = ", ".join(field.options[int(each) - 1].label for each in numbers)
        elif text and field.own_text:
            self._answers[field.key] = text
        else:
            return "Type the number of an answer."
        if len(self._answers) < len(self._fields):
            return None
        return {"behavior": "allow", "updatedInput": {**self.request.input, "answers": dict(self._answers)}}
