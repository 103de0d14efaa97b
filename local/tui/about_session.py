"""/rename, /permissions and /diff: the name of a session, the rules that hold in it, the files that it has changed."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.client_requests import (
    CHANGE_RULES,
    LIST_RULES,
    RENAME_SESSION,
    REWIND_FILES,
    REWIND_POINTS,
    FileRewind,
)
from ccb.tunnel.wire.control_protocol import Request, RequestFailed, RequestRefused
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.mcp_messages import MCP_RECONNECT, MCP_STATUS

from ..command_line.option_rules import no_such_tool
from ..session.session_client import Json, SessionClient, SessionEvent
from ..terminal.stdio import in_thread
from ..transcript.blocks import BlockList, Level
from ..transcript.markdown_export import markdown_of
from ..transcript.transcript_reducer import TranscriptReducer
from .panels.page_holder import PageHolder
from .panels.pages import DiffFile, DiffFiles, DiffPage
from .panels.rewind_panel import PastPrompts
from .panels.rule_panel import KEPT, HeldRule, RulePanel
from .rendering.permission_updates import Keep
from .widgets.session_info import ReplInfo

if TYPE_CHECKING:
    from ..mcp.mcp_service import LaptopServers, ServerState


_PAGE = 1 << 20
_AFTER_ALL = 1 << 52  # no event has such a number
_PUBLIC = ("message", "input")


class Exporting:
    """Writes the session at `place` to a file. All of it comes from the host, also what is not on the screen."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer, place: str) -> None:
        self._client = client
        self._reducer = reducer
        self._place = place

    async def command(self, argument: str) -> None:
        """Answer `/export [FILE]`: Markdown, or JSON if the name ends so. Nothing is overwritten."""
        session = self._client.hello.session
        path = _target(argument or f"ccb-{session[:8]}.md")
        if path.suffix not in (".md", ".json"):
            self._reducer.notice("/export writes FILE.md or FILE.json.", Level.WARNING)
            return
        try:
            events = await self._events()
            text = _json_of(session, self._place, events) if path.suffix == ".json" else self._markdown_of(events)
            await in_thread(lambda: write_new(path, text))
        except CcbError as error:
            self._reducer.notice(f"Nothing was written: {error.what}.", Level.WARNING)
        except OSError as error:
            self._reducer.notice(f"Nothing was written: {path}: {error.strerror or error}.", Level.WARNING)
        else:
            self._reducer.notice(f"The session is in {path}, on the laptop.")

    async def _events(self) -> list[SessionEvent]:
        """Return all events of the session, oldest first. Raise CcbError."""
        pages: list[list[SessionEvent]] = []
        before = _AFTER_ALL
        while page := await self._client.earlier(before, _PAGE):
            pages.append(page)
            before = page[0].seq
        return [event for page in reversed(pages) for event in page]

    def _markdown_of(self, events: Sequence[SessionEvent]) -> str:
        loaded = BlockList()
        reducer = TranscriptReducer(loaded)
        for event in events:
            reducer.apply_event(event.record, replayed=True)
        return markdown_of(f"A session of ccb on {self._place}", loaded.blocks)


def _target(name: str) -> Path:
    return Path(name).expanduser().absolute()


def _json_of(session: str, place: str, events: Sequence[SessionEvent]) -> str:
    messages = [event.body for event in events if event.kind in _PUBLIC]
    return json.dumps({"session": session, "place": place, "messages": messages}, ensure_ascii=False, indent=1) + "\n"


def write_new(path: Path, text: str) -> None:
    """Write a file that nobody else can read. Raise FileExistsError rather than replace one, and other OSError; then
    nothing is left of it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except BaseException:
        path.unlink()
        raise


_MAX_SHOWN = 50
_NONE = "There is no MCP server. `ccb mcp add NAME -- COMMAND` adds one to your settings; /help says more about /mcp."
_WHERE = {"laptop": "on this laptop", "client": "in the client", "sdk": "in the client", "stdio": "on the host"}


class McpServerList:
    """Answers /mcp. `laptop` holds the servers of this laptop, None without any. Failures are shown, never
    raised."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer) -> None:
        self._client = client
        self._reducer = reducer
        self.laptop: LaptopServers | None = None

    @property
    def own_names(self) -> list[str]:
        """The servers of this laptop."""
        return [each.name for each in self.laptop.states()] if self.laptop is not None else []

    @property
    def names(self) -> list[str]:
        """The servers of which something is known here: those of this laptop, and those with tools."""
        others = [tool.split("__")[1] for tool in self._reducer.tools if tool.startswith("mcp__")]
        return list(dict.fromkeys((*self.own_names, *others)))

    async def command(self, argument: str) -> None:
        """/mcp lists the servers, /mcp reconnect NAME connects one again."""
        word, _, name = argument.partition(" ")
        try:
            if not argument:
                await self._list()
            elif word == "reconnect" and name.strip():
                await self._reconnect(name.strip())
            else:
                self._show("/mcp lists the servers, /mcp reconnect NAME connects one again.", Level.WARNING)
        except (CcbError, RequestFailed) as error:
            self._show(error.what if isinstance(error, CcbError) else f"{HostText(str(error))}", Level.ERROR)

    async def _list(self) -> None:
        listed = (await self._client.request(Request(MCP_STATUS, None))).get("mcpServers")
        servers = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        own = {each.name: each for each in self.laptop.states()} if self.laptop is not None else {}
        lines = [_line(each, own) for each in servers[:_MAX_SHOWN]]
        missing = [state for name, state in own.items() if name not in {each.get("name") for each in servers}]
        lines += [f"{each.name}: not used by the agent, on this laptop: {each.shown}" for each in missing]
        if any(each.get("status") in ("failed", "needs-auth") for each in servers):
            lines.append("/mcp reconnect NAME tries again.")
        self._show(lines or _NONE)

    async def _reconnect(self, name: str) -> None:
        own = {each.name for each in self.laptop.states()} if self.laptop is not None else set()
        if self.laptop is not None and name in own:
            try:
                await self.laptop.restart(name)
            except RequestRefused as refused:
                why = next((each.why for each in self.laptop.states() if each.name == name), "")
                self._show(f"{refused}{f': {why}' if why else ''}", Level.ERROR)
                return
        await self._client.request(Request(MCP_RECONNECT, name))
        self._show(f"{name} is being connected again. Its tools count from the next turn.")

    def _show(self, text: str | list[str], level: Level = Level.INFO) -> None:
        self._reducer.notice(text, level)


def _line(server: Json, own: Mapping[str, ServerState]) -> str:
    """Return a line about a server: the host says what the agent sees of it, the laptop why one of its own fails."""
    name, status = (HostText(str(server.get(each))).line(most) for each, most in (("name", 64), ("status", 20)))
    tools = server.get("tools")
    offers = _counted(tools) if isinstance(tools, list) else ""
    transport = str(server.get("transport"))
    state = own.get(str(server.get("name"))) if transport == "laptop" else None
    where = _WHERE.get(transport, HostText(transport).line(20)) + (f": {state.shown}" if state is not None else "")
    why = (state.why if state is not None else "") or str(server.get("error") or "")
    wait = server.get("retryInSeconds")
    again = f"; next try in {wait} s" if isinstance(wait, int) else ""
    reason = f" ({HostText(why).line(300)}{again})" if why and status != "connected" else ""
    return f"{name}: {status}{offers}, {where}{reason}"


def _counted(tools: Sequence[object]) -> str:
    return f", {len(tools)} tool{'' if len(tools) == 1 else 's'}"


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

    def __init__(self, client: SessionClient, info: ReplInfo, reducer: TranscriptReducer, reading: PageHolder) -> None:
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
