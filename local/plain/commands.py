"""The slash commands of a session as lines: what the full REPL shows in panels is printed, with numbers to choose."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.client_requests import CANCEL_ASYNC_MESSAGE, CHANGE_RULES, RENAME_SESSION
from ccb.tunnel.wire.control_protocol import Request, RequestFailed
from ccb.tunnel.wire.tool_traits import BUILT_IN

from ..command_line.option_rules import no_such_tool
from ..session.session_client import SessionClient
from ..terminal.stdio import in_thread
from ..transcript.transcript_reducer import TranscriptReducer
from ..tui.widgets.session_info import ReplInfo
from .session_commands import SESSION_HELP, LineSessionCommands

if TYPE_CHECKING:
    from ..connect.host_sessions import HostSessions

COMMAND_HELP = (
    ("/diff [N]", "the files that the agent has changed; the lines of the Nth"),
    ("/tools", "the tools of the agent: what each may change, and where it runs"),
    ("/permissions [allow RULE, deny RULE, remove N]", "the rules that hold; change them for this session"),
    ("/queue [drop N]", "the prompts that wait for the agent"),
    ("/cost", "the tokens and the cost of this session"),
    ("/rename TITLE", "give this session a name for the lists"),
    ("/export [FILE]", "write the session to FILE.md or FILE.json on the laptop"),
    ("/doctor", "examine this laptop and the host"),
    ("/hosts", "the hosts of your last sessions, with the command for each"),
    ("/config", "the settings of this laptop with their origin"),
    *SESSION_HELP,
)
_MARKS = {"ok": "ok", "warn": "warning", "block": "problem", "info": "note"}
_BACK = {"create": "removed", "remove": "new"}  # going back does the contrary of what the agent has done
_OWN_RULES = "session"


class PlainCommands:
    """Runs them for one session, and prints with `write`. `problems` are what went wrong so far, in words. Failures are
    printed, never raised."""

    def __init__(
        self,
        client: SessionClient,
        info: ReplInfo,
        reducer: TranscriptReducer,
        write: Callable[[str], None],
        problems: Collection[str] = (),
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self.of_session = LineSessionCommands(client, reducer, write, problems, environ)
        self._client = client
        self._info = info
        self._reducer = reducer
        self._write = write
        self._sessions: HostSessions | None = None
        self._environ = environ
        self._run: Mapping[str, Callable[[str], Awaitable[None]]] = {
            "/diff": self._diff,
            "/tools": self._tools,
            "/permissions": self._permissions,
            "/queue": self._queue,
            "/cost": self._cost,
            "/rename": self._rename,
            "/export": self._export,
            "/doctor": self._doctor,
            "/hosts": self._hosts,
            "/config": self._config,
            **self.of_session.commands,
        }

    def use(self, sessions: HostSessions) -> None:
        """Know the sessions of the host from now on."""
        self._sessions = self.of_session.sessions = sessions

    async def command(self, word: str, rest: str) -> bool:
        """Run a command. Return False for any other line."""
        run = self._run.get(word)
        if run is None:
            return False
        try:
            await run(rest.strip())
        except CcbError as error:
            self._say(f"error: {error.what}. {error.do}".rstrip())
        except RequestFailed as error:
            self._say(f"error: {HostText(str(error))}")
        except ValidationError:
            self._say("error: the worker's answer cannot be read")
        return True

    def _say(self, text: str) -> None:
        self._write(f"ccb: {text}")

    def _list(self, rows: Sequence[str], none: str) -> None:
        for number, row in enumerate(rows, 1):
            self._write(f"{number}: {row}")
        if not rows:
            self._say(none)

    async def _diff(self, argument: str) -> None:
        from ..tui.about_session import changed_files
        from ..tui.rendering.diffs import gutter, is_patch, number_width, patch_lines, shown_line

        changed = await changed_files(self._client)
        if not argument.isdigit():
            rows = [
                f"{each.path}, {_BACK.get(each.does, 'changed')}, +{each.deletions} -{each.insertions}"
                for each in changed.files
            ]
            self._list(rows, changed.why_none)
            if rows:
                self._say("/diff N prints the lines of one")
            return
        place = int(argument)
        if not 0 < place <= len(changed.files):
            self._say(f"there is no file {place}: /diff lists them")
            return
        found = await changed_files(self._client, changed.files[place - 1].path)
        patch = found.files[0].patch if found.files else None
        if patch is None or not is_patch(patch):
            self._say("the lines of this file are not known")
            return
        lines = list(patch_lines(patch))
        width = number_width(lines)
        for line in lines:
            self._write(f"{gutter(line, width)}{shown_line(line)}".rstrip())

    async def _tools(self, _: str) -> None:
        from ..tui.this_laptop import tool_words

        for name in self._reducer.tools or tuple(BUILT_IN):
            self._write(f"{name}: {tool_words(name)}")

    async def _permissions(self, argument: str) -> None:
        from ..tui.about_session import held_rules

        word, _, rest = argument.partition(" ")
        rules = await held_rules(self._client)
        if word in ("allow", "ask", "deny") and rest.strip():
            await self._change_rule("addRules", word, rest.strip())
        elif word == "remove" and rest.strip().isdigit() and 0 < int(rest) <= len(rules):
            held = rules[int(rest) - 1]
            if held.source != _OWN_RULES:
                self._say(f"only rules of this session can be removed here, and this one is of {held.source}")
                return
            await self._change_rule("removeRules", held.behavior, held.rule)
        elif argument:
            self._say("/permissions lists the rules; allow RULE, ask RULE, deny RULE and remove N change them")
        else:
            rows = [f"{each.behavior} {each.rule} ({each.source})" for each in rules]
            self._list(rows, "no rule holds: what is not harmless is asked")

    async def _change_rule(self, kind: str, behavior: str, rule: str) -> None:
        tool, _, content = rule.partition("(")
        body = {"toolName": tool, "ruleContent": content[:-1]} if content else {"toolName": tool}
        update = {"type": kind, "rules": [body], "behavior": behavior, "destination": _OWN_RULES}
        await self._client.request(Request(CHANGE_RULES, [update]))
        wrong = no_such_tool(tool) if kind == "addRules" else ""
        said = f"{'added' if kind == 'addRules' else 'removed'}, for this session: {behavior} {rule}"
        self._say(f"{said}, but {wrong}" if wrong else said)

    async def _queue(self, argument: str) -> None:
        waiting = self._reducer.prompts.waiting
        word, _, rest = argument.partition(" ")
        if word != "drop" or not rest.strip().isdigit():
            self._list([each.text[:200] for each in waiting], "no prompt waits for the agent")
            return
        place = int(rest)
        if not 0 < place <= len(waiting):
            self._say(f"no prompt {place} waits: /queue lists them")
            return
        answer = await self._client.request(Request(CANCEL_ASYNC_MESSAGE, waiting[place - 1].id))
        if answer.get("cancelled") is True:
            self._reducer.prompts.taken_back(waiting[place - 1].id)
            self._say("dropped")
        else:
            self._say("the agent has this prompt already")

    async def _cost(self, _: str) -> None:
        from ..transcript.session_facts import used_text

        used = used_text(self._reducer.totals) or "nothing was used yet"
        context = self._reducer.totals.context_text
        self._say(", ".join(filter(None, (used, context))))

    async def _rename(self, title: str) -> None:
        if not title:
            self._say("/rename TITLE gives this session a name, under which the lists show it")
            return
        await self._client.request(Request(RENAME_SESSION, title))
        self._say(f"this session is now called {title}")

    async def _export(self, argument: str) -> None:
        from ..tui.about_session import Exporting

        await Exporting(self._client, self._reducer, self._info.place).command(argument)

    async def _doctor(self, _: str) -> None:
        from ..doctor.doctor import attached_findings

        async for each in attached_findings(self._sessions, self._environ):
            fix = f" To do: {each.fix}" if each.fix and each.state.value != "ok" else ""
            self._write(f"{_MARKS[each.state.value]}: {each.name}: {each.found}{fix}")

    async def _hosts(self, _: str) -> None:
        from ..ledger.call_ledger import recent_places
        from ..tui.panels.list_panel import RecentHost

        places = await in_thread(lambda: recent_places(self._environ))
        rows = [RecentHost(each.host, each.directory).command for each in places]
        self._list(rows, "no other host: sessions leave their trace with their first answer")

    async def _config(self, _: str) -> None:
        from ..commands.config_show import setting_lines
        from ..config.settings_loading import load_settings

        settings = await in_thread(lambda: load_settings(self._environ))
        rows = [f"{name} = {value}  ({origin})" for name, value, origin in setting_lines(settings)]
        for row in rows or ["no setting is set: all have their defaults"]:
            self._write(row)
