"""/rename, /permissions and /diff: the name of a session, the rules that hold in it, the files that it has changed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.commands import CHANGE_RULES, LIST_RULES, RENAME_SESSION
from ccb.tunnel.wire.kinds.rewind import REWIND_FILES, REWIND_POINTS, FileRewind
from ccb.tunnel.wire.requests import Request, RequestFailed

from ....command_line.option_table.tool_names import no_such_tool
from ....session.client import Json, SessionClient
from ...model.blocks import Level
from ...model.transcript_reducer import TranscriptReducer
from ...render.permission_updates import Keep
from ...rewind.answers import PastPrompts
from ...views.diff_page import DiffFile, DiffFiles, DiffPage
from ...views.reading import Reading
from ...views.rule_panel import KEPT, HeldRule, RulePanel
from ...widgets.info import ReplInfo

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


@dataclass(frozen=True)
class ChangedFiles:
    """The files that the agent's tools have changed since the prompt `since`. `why_none` is for when there are none."""

    why_none: str
    since: str = ""
    files: Sequence[DiffFile] = ()


class SessionFacts:
    """Answers these commands. `keep` keeps rules for this host and directory, on the laptop. Failures are shown, never
    raised."""

    def __init__(self, client: SessionClient, info: ReplInfo, reducer: TranscriptReducer, reading: Reading) -> None:
        self.keep: Keep | None = None
        self._client = client
        self._info = info
        self._reducer = reducer
        self._reading = reading

    async def rename(self, title: str) -> None:
        """Give the session a name, under which lists show it."""
        if not title:
            self._show("/rename TITLE gives this session a name, under which /resume and `ccb ps` list it.")
            return

        async def renamed() -> str:
            await self._client.request(Request(RENAME_SESSION, title))
            return f"This session is now called {title}."

        await self._answer(renamed)

    async def permissions(self, sought: str) -> None:
        """Show the rules that hold, the one of this text marked, and let the person add and remove rules of theirs."""

        async def listed() -> str:
            mode = self._reducer.mode
            self._reading.open(RulePanel(self._info.place, mode, await self.rules(), self._change_rule, sought))
            return ""

        await self._answer(listed)

    async def rules(self) -> list[HeldRule]:
        """Return the rules that hold. Raise CcbError, RequestFailed, ValidationError."""
        return await held_rules(self._client)

    async def _change_rule(self, panel: RulePanel, held: HeldRule, adds: bool) -> None:
        """Add a rule or remove one: in the session, and if it holds always, also in what is kept on the laptop."""
        tool, _, content = held.rule.partition("(")
        rule = {"toolName": tool, "ruleContent": content[:-1]} if content else {"toolName": tool}
        kind = "addRules" if adds else "removeRules"
        update: Json = {"type": kind, "rules": [rule], "behavior": held.behavior, "destination": held.source}
        try:
            await self._client.request(Request(CHANGE_RULES, [update]))
            if held.source == KEPT and self.keep is not None:
                await self.keep([update])
            wrong = no_such_tool(tool) if adds else ""
            said = f"{'Added' if adds else 'Removed'}: {held.behavior} {held.rule}" + (
                f", but {wrong}" if wrong else ""
            )
            panel.show(await self.rules(), one_line(said))
        except CcbError as error:
            panel.fail(error.what)
        except RequestFailed as error:
            panel.fail(str(error))
        except ValidationError:
            panel.fail("The worker's answer cannot be read.")

    async def diff(self) -> None:
        """Show what the agent's tools have changed since the first prompt."""

        async def changed() -> str:
            changed = await changed_files(self._client)
            if not changed.files:
                return changed.why_none
            self._reading.open(DiffPage(self._client, self._info.place, changed.since, changed.files))
            return ""

        await self._answer(changed)

    async def _answer(self, text: Callable[[], Awaitable[str]]) -> None:
        try:
            said = await text()
            if said:
                self._show(said)
        except CcbError as error:
            self._show(error.what, Level.ERROR)
        except RequestFailed as error:
            self._show(f"{HostText(str(error))}", Level.ERROR)
        except ValidationError:
            self._show("The worker's answer cannot be read.", Level.ERROR)

    def _show(self, text: str, level: Level = Level.INFO) -> None:
        self._reducer.notice(text, level)


async def held_rules(client: SessionClient) -> list[HeldRule]:
    """Return the rules that hold in a session. Raise CcbError, RequestFailed, ValidationError."""
    state = _read(_HeldRules, await client.request(Request(LIST_RULES, None))).state
    return [HeldRule(each.behavior, each.source, each.rule) for each in state.rules]


async def changed_files(client: SessionClient, path: str = "") -> ChangedFiles:
    """Return the files that a session has changed, or one of them with its lines. Raise CcbError, RequestFailed,
    ValidationError."""
    points = _read(PastPrompts, await client.request(Request(REWIND_POINTS, None)))
    if not points.files_kept:
        return ChangedFiles("This session keeps no versions of files. `! git diff` shows what git knows.")
    none = "The agent's tools have changed no file in this session. `! git status` shows what commands did."
    since = points.points[-1].id if points.points else ""
    if not since:
        return ChangedFiles(none)
    first = FileRewind(since, dry_run=True, path=path)
    return ChangedFiles(none, since, _read(DiffFiles, await client.request(Request(REWIND_FILES, first))).files)


def _read(shape: type[Shape], answer: Json) -> Shape:
    return shape.model_validate(answer)
