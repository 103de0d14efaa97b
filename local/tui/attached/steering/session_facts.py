"""/rename, /permissions and /diff: the name of a session, the rules that hold in it, the files that it has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.kinds.commands import LIST_RULES, RENAME_SESSION
from ccb.tunnel.wire.kinds.rewind import REWIND_FILES, REWIND_POINTS, FileRewind
from ccb.tunnel.wire.requests import Request, RequestFailed

from ....session.client import Json, SessionClient
from ...model.blocks import Level
from ...model.transcript_reducer import TranscriptReducer
from ...rewind.answers import ChangedFile, PastPrompts, RewindPreview

_MAX_SHOWN = 200
_SIGNS = {"change": "~", "create": "+", "remove": "-"}
_BEHAVIORS = {"deny": "Denied", "ask": "Asked", "allow": "Allowed"}
_SOURCES = {
    "userSettings": "your settings",
    "projectSettings": "the project",
    "localSettings": "the project, for this machine",
    "policySettings": "the organisation",
    "cliArg": "the command line",
    "session": "this session",
}

Shape = TypeVar("Shape", bound=BaseModel)


class _FactsAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _HeldRule(_FactsAnswer):
    behavior: str
    source: str = ""
    rule: str


class _RuleState(_FactsAnswer):
    rules: list[_HeldRule] = []


class _HeldRules(_FactsAnswer):
    state: _RuleState = _RuleState()


class SessionFacts:
    """Answers these commands. Failures are shown, never raised."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer) -> None:
        self._client = client
        self._reducer = reducer

    async def rename(self, title: str) -> None:
        """Give the session a name, under which lists show it."""
        if not title:
            self._show("/rename TITLE gives this session a name, under which /resume and `ccb ps` list it.")
            return

        async def renamed() -> str:
            await self._client.request(Request(RENAME_SESSION, title))
            return f"This session is now called {one_line(title)}."

        await self._answer(renamed)

    async def permissions(self) -> None:
        """Show the rules that hold, those that deny first."""

        async def listed() -> str:
            rules = _read(_HeldRules, await self._client.request(Request(LIST_RULES, None))).state.rules
            lines = [f"Permission mode: {one_line(self._reducer.mode)}"]
            for behavior, word in _BEHAVIORS.items():
                held = [each for each in rules if each.behavior == behavior]
                lines += [f"{word}:"] if held else []
                lines += [f"  {one_line(each.rule)}  ({_source(each)})" for each in held[:_MAX_SHOWN]]
            if len(lines) == 1:
                lines.append("No rule holds: what is not harmless is asked.")
            return "\n".join(
                [*lines, "Your settings hold rules (`permissions`), /trust shows those kept for a project."]
            )

        await self._answer(listed)

    async def diff(self) -> None:
        """Show which files the agent has changed since the first prompt."""

        async def changed() -> str:
            points = _read(PastPrompts, await self._client.request(Request(REWIND_POINTS, None)))
            if not points.files_kept:
                return "This session keeps no versions of files. `! git diff` shows what git knows."
            files: list[ChangedFile] = []
            if points.points:
                first = FileRewind(points.points[-1].id, dry_run=True)
                files = _read(RewindPreview, await self._client.request(Request(REWIND_FILES, first))).files
            if not files:
                return "The agent's tools have changed no file in this session. `! git status` shows what commands did."
            shown = [_line(each) for each in files[:_MAX_SHOWN]]
            more = [f"… and {len(files) - _MAX_SHOWN} more"] if len(files) > _MAX_SHOWN else []
            last = "`! git diff` shows the lines, also what commands have changed; /rewind takes changes back."
            return "\n".join(["Changed by the agent's tools in this session:", *shown, *more, last])

        await self._answer(changed)

    async def _answer(self, text: Callable[[], Awaitable[str]]) -> None:
        try:
            self._show(await text())
        except CcbError as error:
            self._show(neutralise(error.what), Level.ERROR)
        except RequestFailed as error:
            self._show(neutralise(str(error)), Level.ERROR)
        except ValidationError:
            self._show("The worker's answer cannot be read.", Level.ERROR)

    def _show(self, text: str, level: Level = Level.INFO) -> None:
        self._reducer.notice(text, level)


def _read(shape: type[Shape], answer: Json) -> Shape:
    return shape.model_validate(answer)


def _source(rule: _HeldRule) -> str:
    return _SOURCES.get(rule.source, one_line(rule.source) or "ccb")


def _line(each: ChangedFile) -> str:
    sign = {"create": "remove", "remove": "create"}.get(each.does, each.does)  # going back does the contrary
    text = f"  {_SIGNS.get(sign, '~')} {one_line(each.path)}"
    counts = f"  +{each.deletions} -{each.insertions}" if each.insertions or each.deletions else ""
    return text + counts + ("  changed by something else since" if each.changedElsewhere else "")
