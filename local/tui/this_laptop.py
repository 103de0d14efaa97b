"""/doctor, /config, /tools, /hosts and /bug: what is known of this laptop, the host and the session, in panels."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Protocol

from textual import work
from textual.app import SuspendNotSupported
from textual.widget import Widget

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import RequestFailed
from ccb.tunnel.wire.tool_traits import BUILT_IN, Effect, RunsOn, traits_of

from ..session.session_client import SessionClient
from ..terminal.editor import NoEditor
from ..terminal.stdio import in_thread
from ..transcript.blocks import Level, NoticeBlock
from ..transcript.transcript_reducer import TranscriptReducer
from .about_session import McpServerList, SessionFacts
from .composer.completion_offers import Choices
from .model_and_mode import ModelChoosing
from .panels.list_panel import HelpPanel, HostPanel, RecentHost
from .panels.page_holder import PageHolder
from .repl_shell import ReplShell
from .session_switching import SessionChoosing
from .widgets.session_info import ReplInfo

if TYPE_CHECKING:
    from ..connect.host_sessions import HostSessions
    from ..doctor.doctor_findings import Finding


_FRESH_S = 10.0
_MAX_SAID = 80
_MAX_ANSWERS = 9
_SHORT_ID = 8


class KnownArguments:
    """`now` returns the arguments by command. Some have to be asked for: `ask`. Nothing of that is ever an error."""

    def __init__(
        self,
        reducer: TranscriptReducer,
        shell: ReplShell,
        choosing: SessionChoosing,
        mcp: McpServerList,
        facts: SessionFacts,
        models: ModelChoosing,
    ) -> None:
        self._reducer = reducer
        self._shell = shell
        self._choosing = choosing
        self._mcp = mcp
        self._facts = facts
        self._models = models
        self._asked_at: dict[str, float] = {}
        self._answers: dict[str, Choices] = {}
        self._sources: Mapping[str, Callable[[], Awaitable[Choices]]] = {
            "resume": self._sessions,
            "hosts": self._hosts,
            "permissions": self._rules,
        }

    def now(self) -> dict[str, Choices]:
        """Return what is known, by command."""
        reducer = self._reducer
        tasks = {one_line(task.id): one_line(task.description) for task in reducer.tasks.running}
        answers = [each.strip() for each in reversed(reducer.answers)][:_MAX_ANSWERS]
        tools = reducer.tools or tuple(BUILT_IN)
        return {
            **self._answers,
            "model": dict.fromkeys(map(one_line, self._models.names), ""),
            "tasks": {**tasks, **{f"stop {task_id}": f"ends {task_id}" for task_id in tasks}},
            "mcp": {f"reconnect {one_line(each)}": "" for each in self._mcp.names},
            "theme": dict.fromkeys(self._shell.appearance.names, ""),
            "copy": {str(place): _said(text) for place, text in enumerate(answers, 1)},
            "tools": dict.fromkeys((one_line(each) for each in tools), ""),
        }

    async def ask(self, command: str) -> bool:
        """Bring up to date what may follow a command. Return whether something has changed."""
        source, now = self._sources.get(command), time.monotonic()
        if source is None or now - self._asked_at.get(command, -_FRESH_S) < _FRESH_S:
            return False
        self._asked_at[command] = now
        try:
            found = await source()
        except (CcbError, RequestFailed, ValueError):
            return False
        changed = found != self._answers.get(command)
        self._answers[command] = found
        return changed

    async def _sessions(self) -> Choices:
        sessions = self._choosing.sessions
        rows = await sessions.listed() if sessions is not None else []
        return {
            row.session[:_SHORT_ID]: _said(f"{row.cwd.cell} · {row.prompt.cell}")
            for row in rows
            if row.session != self._choosing.here
        }

    async def _hosts(self) -> Choices:
        from ..ledger.call_ledger import recent_places

        places = await in_thread(lambda: recent_places(self._shell.appearance.environ))
        return {f"{one_line(each.host)}:{one_line(each.directory)}": "" for each in places}

    async def _rules(self) -> Choices:
        return {one_line(each.rule): each.behavior for each in await self._facts.rules()}


def _said(text: str) -> str:
    return one_line(text[: 4 * _MAX_SAID])[:_MAX_SAID]


_EFFECTS = {
    Effect.NONE: "changes nothing",
    Effect.READ: "reads files",
    Effect.WRITE: "writes files",
    Effect.EXECUTE: "runs commands",
    Effect.NETWORK: "reads the network",
}
_MARKS = {"ok": "✓", "warn": "!", "block": "✗", "info": "·"}
_WHERE = {"laptop": "This laptop", "connection": "The connection", "host": "The host"}


class ShowsSessions(Protocol):
    """Lets the person choose another session of the host."""

    async def resume(self, sought: str) -> None: ...


class Insight(Widget):
    """Answers these commands. It is a widget without a place on the screen, so that its work ends with the session."""

    DEFAULT_CSS = "Insight { display: none; }"

    def __init__(
        self,
        client: SessionClient,
        info: ReplInfo,
        reducer: TranscriptReducer,
        reading: PageHolder,
        shell: ReplShell,
        choosing: ShowsSessions,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        super().__init__()
        self._client = client
        self._info = info
        self._reducer = reducer
        self._reading = reading
        self._shell = shell
        self._choosing = choosing
        self._environ = environ
        self.sessions: HostSessions | None = None

    async def doctor(self) -> None:
        """Examine this laptop and the host over the connection of the session; findings come one after the other."""
        panel = self._reading.open_panel(f"Doctor: this laptop and {self._info.host}", [("Examining …", [])])
        self._examine(panel)

    @work(exclusive=True, group="doctor")
    async def _examine(self, panel: HelpPanel) -> None:
        from ..doctor.doctor import attached_findings
        from ..doctor.doctor_findings import summary

        found: list[Finding] = []
        try:
            async for finding in attached_findings(self.sessions, self._environ):
                found.append(finding)
                panel.show(_sections(found), f"Doctor: {len(found)} findings …")
                if self._reading.shown is not panel:
                    return
        except CcbError as error:
            self._reducer.notice(f"The doctor did not come to an end: {error.what}", Level.WARNING)
        bad = [sum(each.state.value == name for each in found) for name in ("block", "warn")]
        panel.show(_sections(found), f"Doctor: {summary(*bad)}")

    async def config(self, argument: str) -> None:
        """Show the settings that are set, with their origin; with `edit`, open the file in the editor."""
        from ..commands.config_show import setting_lines
        from ..config.settings import settings_path
        from ..config.settings_loading import load_settings

        path = settings_path(self._environ)
        if argument == "edit":
            await self._edit(str(path))
            return
        try:
            settings = await in_thread(lambda: load_settings(self._environ))
        except CcbError as error:
            self._reducer.notice([error.what, error.do], Level.ERROR)
            return
        rows = [(name, f"{value}\n{origin}") for name, value, origin in setting_lines(settings)]
        rows = rows or [("nothing", "No setting is set: all have their defaults.")]
        more = [("/config edit", f"opens {path} in your editor; it counts from the next run on")]
        self._reading.open_panel("Settings of this laptop", [("Set", rows), ("Change", more)])

    async def _edit(self, path: str) -> None:
        from ..terminal.editor import edit_file

        try:
            with self._reading.app.batch_update(), self._reading.app.suspend():
                await edit_file(path, self._environ)
        except (NoEditor, SuspendNotSupported, OSError) as error:
            self._reducer.notice(f"{error or 'this terminal cannot be lent to an editor'}.", Level.WARNING)
            return
        from ..config.settings_loading import load_settings

        try:
            await in_thread(lambda: load_settings(self._environ))
        except CcbError as error:
            said = [each for each in (error.what, error.evidence, error.do) if each]
            self._reducer.notice(["The settings cannot be read as they are now.", *said], Level.ERROR)
        else:
            self._reducer.notice("The settings are read from the next run on.", Level.DIM)

    async def tools(self, sought: str) -> None:
        """List the tools of the agent, or those with a name: what each may change, and where it runs."""
        names = self._reducer.tools or tuple(BUILT_IN)
        own = [(name, tool_words(name)) for name in names if not name.startswith("mcp__")]
        mcp = [(name, "of an MCP server: /mcp says where it runs") for name in names if name.startswith("mcp__")]
        sections = [("Built in", own), *([("MCP servers", mcp)] if mcp else [])]
        known = "" if self._reducer.tools else " (before the first turn)"
        self._reading.open_panel(f"Tools of the agent on {self._info.host}{known}", sections, sought)

    async def hosts(self, sought: str) -> None:
        """List the hosts and directories of the last sessions, or take the one that is `sought`."""
        from ..ledger.call_ledger import recent_places

        try:
            places = await in_thread(lambda: recent_places(self._environ))
        except CcbError as error:
            self._reducer.notice(error.what, Level.WARNING)
            return
        here = RecentHost(self._info.host, self._info.path, state=self._client.state.value, here=True)
        others = [
            RecentHost(each.host, each.directory, each.ago_s, "connection kept" if each.kept else "")
            for each in places
            if (each.host, each.directory) != (here.host, here.directory)
        ]
        named = next((each for each in (here, *others) if f"{each.host}:{each.directory}" == sought), None)
        if named is not None:
            self._chosen(named)
        else:
            self._reading.open(HostPanel([here, *others], self._chosen))

    @work
    async def _chosen(self, host: RecentHost) -> None:
        """The person has chosen a host: show the sessions of this one, or the command that leads to another one."""
        self._reading.close()
        if host.host == self._info.host:
            await self._choosing.resume("" if host.here else host.directory)
            return
        said = await self._shell.copied(host.command)
        self._reducer.notice([host.command, f"This command opens it; it was {said}."])

    async def bug(self) -> None:
        """Write a report for the people who make ccb, and say where it is."""
        from ..config.bug_report import write_report

        errors = [
            block.text
            for block in self._reading.conversation
            if isinstance(block, NoticeBlock) and block.level in (Level.ERROR, Level.WARNING)
        ]
        hello = self._client.hello
        facts = {
            "worker": f"Python {hello.python.cell} on {hello.platform.cell}, "
            f"protocol capabilities {len(hello.capabilities)}",
            "journal": hello.storage,
            "connection": self._client.state.value,
            "model": self._reducer.model,
            "permission mode": self._reducer.mode,
            "sandbox": self._reducer.sandbox,
            "terminal": f"{self._environ.get('TERM', '?')}, {self._reading.app.size.width} columns, theme "
            f"{self._shell.theme}",
        }
        try:
            path = await in_thread(lambda: write_report(self._environ, facts, errors))
        except OSError as error:
            self._reducer.notice(f"No report was written: {error.strerror or error}.", Level.WARNING)
            return
        contents = "It has versions, state and the last errors, no prompts, no answers and no secrets."
        self._reducer.notice([f"The report is in {path}, on the laptop.", f"{contents} Read it before you send it."])


def tool_words(name: str) -> str:
    """Return what a tool may change, and where it runs."""
    traits = traits_of(name)
    where = {RunsOn.HOST: "on the host", RunsOn.LAPTOP: "on this laptop", RunsOn.CLIENT: "in the client"}
    asks = ", asks you each time" if traits.asks else ""
    return f"{_EFFECTS[traits.effect]}, {where[traits.runs_on]}{asks}"


def _sections(found: list[Finding]) -> list[tuple[str, list[tuple[str, str]]]]:
    """Return the findings as rows, those that block first within each place."""
    sections: dict[str, list[tuple[str, str]]] = {}
    for each in found:
        fix = f"\n→ {each.fix}" if each.fix and each.state.value != "ok" else ""
        row = (f"{_MARKS[each.state.value]} {each.name}", f"{each.found}{fix}")
        sections.setdefault(_WHERE.get(each.where, each.where), []).append(row)
    return list(sections.items())
