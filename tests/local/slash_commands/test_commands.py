"""Each slash command on the screen, in the lines of `--plain`, and as the result of a headless run: a row each."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
from tests.local.plain.test_line_repl import plain
from tests.support.repl.pilot import desk
from tests.support.repl.scripted_session import MODEL, ScriptedSession

from ccb.local.connect.session_rows import SessionRow
from ccb.local.headless.command_results import command_result
from ccb.local.mcp.mcp_service import ServerState
from ccb.local.ports.port_forwards import PortForwards
from ccb.local.session.session_client import LinkState, SessionEvent, parse_ports
from ccb.local.slash_commands.about_session import write_new
from ccb.local.slash_commands.command_table import COMMANDS, OWN_NAMES, find_command
from ccb.local.slash_commands.session_api import LaptopSide, NextSession, Place, ReplInfo
from ccb.local.slash_commands.typed_line import parse_command
from ccb.local.transcript.blocks import NoticeBlock
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.control_protocol import A, P, Request, RequestRefused, Success
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.session_options import LAPTOP_COMMANDS

INFO = ReplInfo("devbox", "/srv/shop", "", "default", "0.1.0", "ccb ssh x")
EVIL = "\x1b[2J"
_RULES = [
    {"behavior": "allow", "source": "session", "rule": "Bash(make *)"},
    {"behavior": "deny", "source": "userSettings", "rule": f"Read({EVIL}.env)"},
    {"behavior": "allow", "source": "localSettings", "rule": "Edit"},
]
RULES: Json = {"state": {"rules": _RULES}}
POINTS: Json = {"points": [{"id": "p2", "text": f"Repair the {EVIL}total.", "files": 2}, {"id": "p1", "text": "Look."}]}
CHANGED: list[Json] = [
    {"path": "/srv/shop/cart.py", "insertions": 1, "deletions": 2, "does": "change", "changedElsewhere": True},
    {"path": f"/srv/shop/new{EVIL}.py", "deletions": 9, "does": "remove"},
    {"path": "/srv/shop/big.bin", "does": "remove", "why": "it was too large to keep"},
]
HUNKS = [{"oldStart": 11, "oldLines": 1, "newStart": 11, "newLines": 1, "lines": ["-return 1", f"+return 2{EVIL}"]}]
_SERVERS = [
    {"name": "notes", "status": "connected", "transport": "laptop", "tools": [{"name": "add"}, {"name": "b"}]},
    {"name": "far", "status": "failed", "transport": "laptop", "error": "told to the host"},
    {"name": f"db{EVIL}", "status": "failed", "transport": "stdio", "error": "no such file"},
]
SERVERS: Json = {"mcpServers": _SERVERS}
WORKER_COMMANDS = {"commands": [{"name": "lint", "argumentHint": "[FILE]"}, {"name": "status", "builtin": True}]}
_REVIEWER: Json = {
    "name": f"review{EVIL}er", "description": "Reviews.", "source": "project", "path": f"/srv/shop/r{EVIL}.md",
    "model": "opus", "tools": ["Read", "Grep"], "readOnly": True,
}  # fmt: skip
_EXPLORE: Json = {"name": "Explore", "source": "built-in", "model": "small", "disallowedTools": ["Bash"]}
AGENTS: Json = {"list_agents": {"agents": [_REVIEWER, _EXPLORE]}}
ONE_AGENT: Json = {
    "list_agents": {"agents": [{**_REVIEWER, "maxTurns": 7, "prompt": f"Find{EVIL} the bugs.\n\n- all"}]}
}
_GUARD: Json = {"event": "PreToolUse", "matcher": "Bash", "type": "command", "source": "projectSettings",
                "sourceLabel": "/srv/shop/.claude/settings.json", "commandText": f"./guard{EVIL}.sh x",
                "content": "./guard.sh \\\n  x", "timeout": 30.0, "runsOnce": True}  # fmt: skip
_CALLBACK: Json = {"event": "Stop", "type": "callback", "source": "sessionHook", "commandText": "callback 7"}
HOOKS: Json = {"get_hooks_listing": {"hooks": [_GUARD, _CALLBACK], "problems": ["a.json: no such event"]}}
_STYLES = [{"name": "default"}, {"name": "Learning", "description": "Do it."}, {"name": "Terse", "source": "project"}]
STYLES: Json = {"reload_output_styles": {"styles": _STYLES, "output_style": "Terse", "set_by": "project"}}
LISTED: tuple[str, Json] = ("list_permission_rules", {})
ENDED = ("read_task", {"task_id": "b1"})
TASK: Json = {"status": "running", "output": f"epoch 1{EVIL}\n2\n"}
RENAMED = ("rename_session", {"title": f"a{EVIL} name"})


class Servers:
    def states(self) -> dict[str, ServerState]:
        far = ServerState("https://far.example/mcp", "connection refused")
        return {"notes": ServerState("notes-server"), "far": far}

    async def restart(self, name: str) -> None:
        if name == "far":
            raise RequestRefused("the MCP server far cannot be reached")


class Projects:
    ask = tell = None

    async def keep(self, updates: Sequence[Mapping[str, Any]]) -> None:
        pass

    async def command(self, argument: str) -> list[str]:
        return [f"This project is trusted{' no more' if argument == 'revoke' else ''}."]


async def listed() -> list[SessionRow]:
    return [
        SessionRow(session="5e55", cwd=HostText("/srv/shop"), state="idle", prompt=HostText("this one")),
        SessionRow(session="aaaa1111", cwd=HostText("/srv/api"), state="running", prompt=HostText(f"fix {EVIL}it")),
    ]


def laptop() -> LaptopSide:
    sessions = SimpleNamespace(listed=listed, last_said=AsyncMock(return_value=[]))
    ports = PortForwards(cast(Any, SimpleNamespace()), {})
    ports.told(parse_ports({"ports": [{"port": 5173, "name": f"{EVIL}vite"}]}))
    return LaptopSide(cast(Any, Projects()), cast(Any, Servers()), cast(Any, sessions), ports=ports)


class Session(ScriptedSession):
    """A session that tells the lines of a change when it is asked for one file."""

    async def request(self, request: Request[P, A]) -> A:
        path = request.kind.write(request.payload).get("path") if request.kind.name == "rewind_files" else None
        answer = await super().request(request)
        files = [{"path": path, **({"patch": HUNKS} if "cart" in str(path) else {})}]
        return request.kind.read_answer(Success(request.id, {"files": files})) if path else answer


def scripted(case: Case | None = None) -> Session:
    session = Session()
    session.request_bytes = (27_400_000, 430_000)
    session.prompted("count the secrets")
    session.begin()
    session.say({"type": "system", "subtype": "init", "model": MODEL, "tools": ["Bash", "mcp__notes__add"]})
    session.text("There are two.")
    task = {"task_id": "b1", "task_type": "local_bash", "description": f"npm {EVIL}test", "is_backgrounded": True}
    session.say({"type": "system", "subtype": "task_started", "tool_use_id": "t1", **task})
    session.finish(modelUsage={MODEL: {"inputTokens": 1200, "outputTokens": 345, "costUSD": 0.0123}})
    session.control_answers["list_commands"] = WORKER_COMMANDS
    if case is not None:
        session.control_answers.update(case.answers)
        session.refuse_controls = case.refused
    return session


@dataclass(frozen=True)
class Case:
    """A command line, what is said in every rendering (`screen`, `lines`: only there), what the worker answers (or that
    it has `refused`), and the requests that it gets."""

    line: str
    said: Sequence[str] = ()
    answers: Mapping[str, Json] = field(default_factory=dict)
    asked: Sequence[tuple[str, Json]] | None = None
    screen: Sequence[str] | None = None
    lines: Sequence[str] | None = None
    refused: str = ""


def change(kind: str, behavior: str, destination: str, tool: str, content: str = "") -> tuple[str, Json]:
    rule = {"toolName": tool, **({"ruleContent": content} if content else {})}
    update = {"type": kind, "rules": [rule], "behavior": behavior, "destination": destination}
    return ("change_permission_rules", {"updates": [update]})


ASKS = change("addRules", "ask", "session", "WebFetch")
DIFF = {"rewind_points": POINTS, "rewind_files": {"files": CHANGED}}
BACK = {**DIFF, "rewind_conversation": {"prompt": "Repair the total."}}
EDITS = ("set_permission_mode", {"mode": "acceptEdits"})
CAGED = ("set_sandbox", {"sandbox": "workspace"})
HIGH = ("set_effort", {"effort": "high"})
CASES = [
    Case("/status", ["Session     5e55", "Host        devbox:/srv/shop", "pid 4242, Python 3.11.2 on Linux x86_64"]),
    Case("/status", ["connected; journal on disk", "27.4 MB to the model, of which the host sent 430 KB"]),
    Case("/status", [f"Model       {MODEL}", ", permission mode ask", "Used        1.2k tokens in, 345 out, $0.0123"]),
    Case("/cost", ["1.2k tokens in, 345 out, $0.0123"], asked=[]),
    Case("/tools", ["Bash", "runs commands, on the host", "mcp__notes__add", "of an MCP server: /mcp says"]),
    Case("/permissions", answers={"list_permission_rules": RULES},
         screen=["Permission rules on devbox:/srv/shop", "Bash(make *)  this session", "Read(.env)  your settings"],
         lines=["1: allow Bash(make *) (session)", "2: deny Read(.env) (userSettings)", "/permissions allow RULE"]),
    Case("/permissions", lines=["No rule holds"], screen=["No rule holds"]),
    Case("/permissions ask WebFetch", ["Added: ask WebFetch"], asked=[ASKS]),
    Case("/permissions deny Edti", ["Added: deny Edti, but there is no tool 'Edti'; did you mean Edit?"]),
    Case("/permissions remove 1", ["Removed: allow Bash(make *)"], {"list_permission_rules": RULES},
         [change("removeRules", "allow", "session", "Bash", "make *")]),
    Case("/permissions remove 2", ["it comes from userSettings"], {"list_permission_rules": RULES}, [LISTED]),
    Case("/permissions", ["The worker's answer cannot be read"], {"list_permission_rules": {"state": {"rules": [7]}}},
         lines=["the worker's answer cannot be read"]),
    Case("/diff", ["The agent's tools have changed no file in this session."]),
    Case("/diff", ["This session keeps no versions of files."], {"rewind_points": {"points": [], "files_kept": False}}),
    Case("/diff", ["/srv/shop/cart.py: changed, +2 -1", "/srv/shop/new.py: new, +9 -0", "/diff N shows"], DIFF,
         screen=["3 files +11 -1, changed in this session", "~ /srv/shop/cart.py", "+ /srv/shop/new.py"]),
    Case("/diff 1", ["@@ -11,1 +11,1 @@", "-return 1", "+return 2"], DIFF),
    Case("/diff 2", ["The lines of this file are not known."], DIFF),
    Case("/diff 9", ["There is no file 9: /diff lists them."], DIFF),
    Case("/mcp", ["notes: connected, 2 tools, on this laptop: notes-server", "/mcp reconnect NAME tries again.",
                  "far: failed, on this laptop: https://far.example/mcp (connection refused)",
                  "failed, on the host (no such file)"], {"mcp_status": SERVERS}, [("mcp_status", {})]),
    Case("/mcp", ["not used by the agent, on this laptop"], {"mcp_status": {"mcpServers": []}}),
    Case("/mcp reconnect far", ["the MCP server far cannot be reached: connection refused"], asked=[]),
    Case("/mcp reconnect notes", ["is being connected again"], asked=[("mcp_reconnect", {"serverName": "notes"})]),
    Case("/mcp what", ["/mcp lists the servers, /mcp reconnect NAME connects one again."]),
    Case("/rename", ["/rename TITLE gives this session a name"], asked=[]),
    Case(f"/rename a{EVIL} name", ["This session is now called a"], asked=[RENAMED]),
    Case("/rename x", ["not now"], refused="not now"),
    Case("/add-dir", ["/add-dir PATH lets"], asked=[]),
    Case('/add-dir "../my lib"', ["The agent may work in “/srv/my lib”, too."],
         {"add_directory": {"path": "/srv/my lib"}}, [("add_directory", {"path": "../my lib"})]),
    Case("/add-dir gone", ["there is no directory"], refused="there is no directory /srv/shop/gone on the host"),
    Case("/btw", ["/btw QUESTION asks"], asked=[]),
    Case("/btw why 3?", ["It is the limit."], {"side_question": {"response": f"It is {EVIL}the limit."}},
         [("side_question", {"question": "why 3?"})]),
    Case("/btw why 3?", ["Before the first answer of the session"], {"side_question": {"response": None}}),
    Case("/btw why 3?", ["No answer: the API is overloaded"], refused="the API is overloaded"),
    Case("/skills", ["/pdf", "reads forms"],
         {"reload_skills": {"skills": [{"name": "pdf", "description": "reads forms"}]}}, [("reload_skills", {})]),
    Case("/skills", ["There is no skill."]),
    Case("/login openai", ["No key was given. `ccb auth login openai`"], asked=[]),
    Case("/login sk-ant-api03-0123456789abcdef", ["/login takes the name of a provider"], asked=[]),
    Case("/agents", ["reviewer", "the project · opus · Read, Grep, only reads", "all tools without Bash"],
         AGENTS, [("list_agents", {"name": ""})]),
    Case("/agents", ["Explore", "What a project brings counts once you trust it: /trust."],
         {"list_agents": {"agents": [_EXPLORE]}}),
    Case("/agents reviewer", ["from            the project: /srv/shop/r.md on the host", "maxTurns        7",
                              "Find the bugs.", "- all"], ONE_AGENT, [("list_agents", {"name": "reviewer"})]),
    Case("/agents nobody", ["There is no agent nobody. /agents lists them."]),
    Case("/hooks", ["PreToolUse Bash", "the project · command ./guard.sh x", "the client · callback callback 7",
                    "Not used: a.json: no such event"], HOOKS),
    Case("/hooks", ["No hooks run on this host."]),
    Case("/hooks 1", ["matcher         Bash", "from            the project: /srv/shop/.claude/settings.json",
                      "at most         30 s", "runs            once", "./guard.sh \\", "  x"], HOOKS),
    Case("/hooks 3", ["There is no hook 3: /hooks lists them."], HOOKS),
    Case("/hooks ²", ["There is no hook ²: /hooks lists them."], HOOKS),
    Case("/output-style", ["Terse", "the project", "built in · Do it."], STYLES,
         screen=["Style of answers", "› Terse  now"]),
    Case("/output-style loud", ["There is no style loud: it stays."], STYLES),
    Case("/output-style", ["too old to list its styles"]),
    Case("/trust", ["This project is trusted."]),
    Case("/trust revoke", ["This project is trusted no more."]),
    Case("/model", [f"Model: {MODEL}"]),
    Case("/model nonsense", ["nonsense is no model: the model stays.", "/model takes"], asked=[]),
    Case("/model opus", ["Model: opus"], asked=[("set_model", {"model": "opus"})]),
    Case("/model opus high", ["Model: opus · effort high, from the next model call on"], asked=[HIGH]),
    Case("/model opus loud", ["loud is no level: the effort stays."], asked=[]),
    Case(f"/model {MODEL} high", [f"Model: {MODEL} · effort high, from the next turn on"], asked=[HIGH]),
    Case("/mode", ["Permission mode: ask"], asked=[]),
    Case("/mode accept edits", ["Permission mode: accept edits"], asked=[EDITS]),
    Case("/mode caged", ["Permission mode: caged"], asked=[CAGED, ("set_permission_mode", {"mode": "default"})]),
    Case("/sandbox workspace", ["Sandbox: workspace cage"], asked=[CAGED]),
    Case("/sandbox x", ["x is no cage: it stays. /sandbox takes read-only, workspace, off."], asked=[]),
    Case("/mode plan", ["Permission mode: plan"], asked=[("set_permission_mode", {"mode": "plan"})]),
    Case("/effort max", [f"Effort: max; {MODEL} knows high at most"], {"set_effort": {"applied": "high"}}),
    Case("/effort high", ["Effort: high, from the next turn on"], {"set_effort": {"applied": "high"}}),
    Case("/effort high", [f"{MODEL} has none"], asked=[HIGH]),
    Case("/effort default", ["Effort: the model's own"], asked=[("set_effort", {"effort": None})]),
    Case("/effort huge", ["huge is no level: the effort stays."], asked=[]),
    Case("/thinking on", ["Thinking: on, with at most 10,000 tokens"], {"set_max_thinking_tokens": {"can_think": True}},
         [("set_max_thinking_tokens", {"max_thinking_tokens": 10_000})]),
    Case("/thinking off", ["Thinking: off"], asked=[("set_max_thinking_tokens", {"max_thinking_tokens": 0})]),
    Case("/thinking 500", ["is not known to think"]),
    Case("/thinking loud", ["/thinking takes on, off, or a number"], asked=[]),
    Case("/tasks", ["b1: ", " s  npm test", "/tasks ID shows the output of one"], asked=[],
         screen=["Tasks: 1 running, 0 ended   devbox:/srv/shop", "b1        npm test"]),
    Case("/tasks b1", ["b1, running:", "epoch 1"], {"read_task": TASK}, [ENDED]),
    Case("/tasks b1", ["(no output yet)"]),
    Case("/tasks stop b1", ["b1 is being stopped"], asked=[("stop_task", {"task_id": "b1"})]),
    Case("/ports", asked=[], lines=["5173 (vite): not forwarded", "/ports [LOCAL:]PORT forwards one"],
         screen=["Ports of the host ", "5173 (vite)  not forwarded"]),
    Case("/ports printer", ["printer is no port."]),
    Case("/ports stop 5173", ["port 5173 is not forwarded. /ports lists what is."]),
    Case("/queue", ["no prompt waits for the agent"]),
    Case("/queue drop 7", ["No prompt 7 waits"], asked=[]),
    Case("/resume", lines=["1: this one (idle, 5e55) (this one)", "2: fix it (running, /srv/api, aaaa1111)"],
         screen=["Sessions on devbox", "fix it"]),
    Case("/resume zz", lines=["zz is not the number or the ID of a session"], screen=["0 of 2 sessions"]),
    Case("/rewind 1", ["change cart.py, +1 -2, changed by something else since", "/rewind 1 both",
                       "remove big.bin, +0 -0, not possible: it was too large to keep"], BACK),
    Case("/rewind 1", ["To sum up this prompt and what follows: /compact --from p2, what is before it: /compact --up"],
         {**BACK, "rewind_points": {**POINTS, "summaries": True}}),
    Case("/rewind 7", ["There is no prompt 7"], BACK),
    Case("/rewind 1 conversation", ["The prompt was:", "Repair the total."], BACK),
    Case("/hosts", ["ccb ssh devbox:/srv/shop", "No other host: sessions leave their trace with their first answer."],
         screen=["Hosts of your last sessions", "devbox:/srv/shop  here, connected", "No other host"]),
    Case("/config", ["model", '"opus"', "line 1"]),
    Case("/output-style learning", ["Learning is in your settings, but the project counts more here: Terse."], STYLES),
    Case("/output-style terse", ["Output style: Terse, in new sessions. /new begins one."], STYLES),
    Case("/doctor", ["Python"]),
    Case("/bug", ["The report is in", "Read it before you send it."]),
    Case("/export session.txt", ["/export writes FILE.md or FILE.json."]),
    Case("/export there.md", ["Nothing was written"]),
    Case("/export new.md", ["The session is in", "new.md, on the laptop."]),
    Case("/get x", ["There is no connection for files here."]),
    Case("/put x", ["There is no connection for files here."]),
    Case("/open x", ["There is no connection for files here."]),
    Case("/help", ["/diff [N]", "/lint [FILE]"], screen=["Help: type to search", "Ctrl+B"]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ccb").mkdir()
    (tmp_path / "ccb/settings.json").write_text('{"model": "opus"}')
    (tmp_path / "there.md").write_text("mine")
    return tmp_path


def there(case: Case, place: Place) -> bool:
    typed = parse_command(case.line)
    command = find_command(typed.name) if typed is not None else None
    return command is not None and place in command.places


def reads(shown: Callable[[], str], said: Sequence[str]) -> bool:
    return all(each in shown() for each in said)


def ids(case: Case) -> str:
    return case.line.replace(EVIL, "")


async def test_on_the_screen(home: Path) -> None:
    session = scripted()
    async with desk(session, size=(130, 44), laptop=laptop()) as at:
        view = at.app.view
        await at.sees("There are two.", "1 task in the background")
        for case in CASES:
            (home / "new.md").unlink(missing_ok=True)
            session.control_answers = {"list_commands": WORKER_COMMANDS, **case.answers}
            session.refuse_controls = case.refused
            session.controls.clear()
            known = len(view.transcript.blocks)
            typed = parse_command(case.line)
            assert typed is not None
            await view.replies.answer(typed)

            def shown(known: int = known) -> str:
                new = [each.text for each in view.transcript.blocks[known:] if isinstance(each, NoticeBlock)]
                rest = at.screen if view.reading.shown or at.app.focused is not at.app.composer else at.status
                return "\n".join([*new, rest])

            said = case.said if case.screen is None else case.screen
            await at.until(partial(reads, shown, said))
            assert case.asked is None or session.controls[-1:] == [*case.asked][-1:], case
            assert "\x1b" not in shown(), case
            view.reducer.facts.model, view.reducer.facts.mode = MODEL, "default"
            await at.pilot.press(*["escape"] * (at.app.focused is not at.app.composer))
        session.link(LinkState.RECONNECTING, "the network is down")
        await at.sees("reconnecting")
        await view.replies.run("reconnect")
        assert session.retries == 1
        assert not session.prompts and (home / "there.md").read_text() == "mine"


@pytest.mark.parametrize("case", [case for case in CASES if there(case, Place.LINES)], ids=ids)
async def test_in_lines(case: Case) -> None:
    session = scripted(case)
    async with plain(session, laptop=laptop()) as at:
        await at.reads("There are two.", "waits for you")
        at.types(case.line)
        await at.reads(*(case.said if case.lines is None else case.lines))
        assert case.asked is None or session.controls[-1:] == [*case.asked][-1:]
        assert not session.prompts and "\x1b" not in at.text


@pytest.mark.parametrize("case", [case for case in CASES if there(case, Place.HEADLESS)], ids=ids)
async def test_as_the_result_of_a_headless_run(case: Case) -> None:
    session = scripted(case)
    while not session._events.empty():
        event = session._events.get_nowait()
        assert isinstance(event, SessionEvent)
        session.past.append(event)
    session.page = len(session.past)
    text = await command_result(case.line, session, INFO, laptop())
    assert text is not None and all(each in text for each in (case.said if case.lines is None else case.lines))
    assert case.asked is None or session.controls[-1:] == [*case.asked][-1:]


def test_each_command_has_a_row_and_the_worker_knows_its_name() -> None:
    only_screen = {each.name for each in COMMANDS if each.places == {Place.SCREEN}}
    elsewhere = {"new", "branch", "stop", "quit", "move", "revoke", "reconnect"}  # below
    tested = {case.line[1:].split()[0] for case in CASES}
    assert tested | only_screen | elsewhere == {each.name for each in COMMANDS}
    in_tui = {"keys", "vim", "theme", "statusline", "paste", "transcript", "copy", "shell"}
    assert only_screen == in_tui, "tests/local/tui has these"
    assert {*LAPTOP_COMMANDS.split(), "clear"} == OWN_NAMES, "/clear has a meaning on the host, too"


@pytest.mark.parametrize(
    "line", ["/mode plan", "/permissions allow Bash", "/export x.md", "/get /etc/x", "/vim", "text", "/doctor"]
)
async def test_what_a_prompt_of_somebody_else_must_not_do_goes_to_the_worker(line: str) -> None:
    session = scripted()
    if line == "/doctor":  # a command of the project goes before one of the laptop
        session.control_answers["list_commands"] = {"commands": [{"name": "doctor"}]}
    assert await command_result(line, session, INFO, laptop()) is None
    assert not session.controls or line == "/doctor"


@pytest.mark.parametrize(
    ("typed", "following"),
    [
        (["/new"], NextSession("", MODEL, "default")),
        (["/clear"], NextSession("", MODEL, "default")),
        (["/branch"], NextSession("5e55", copied=True)),
        (["/resume", "2"], NextSession("aaaa1111")),
        (["/sessions AAAA1111"], NextSession("aaaa1111")),
        (["/quit"], None),
        (["/exit"], None),
        (["/resume 1", "/stop"], None),
        (["/move nowhere", "/move devbox:/srv"], None),
    ],
)
async def test_lines_lead_to_another_session_or_away(typed: list[str], following: NextSession | None) -> None:
    async with plain(scripted(), laptop=laptop()) as at:
        await at.reads("waits for you")
        at.types(*typed)
        assert at.running is not None and await at.running is None
        assert at.repl.following == following and at.session.stops == (typed[-1] == "/stop")
        assert at.repl.moves_to == ("devbox:/srv" if typed[-1].startswith("/move") else "")
        assert not at.session.prompts


async def test_a_number_chooses_a_row_of_the_list_above_and_is_a_prompt_else_which_can_be_dropped() -> None:
    async with plain(scripted(), laptop=laptop()) as at:
        await at.reads("waits for you")
        at.session.control_answers.update(DIFF)
        at.types("/diff", "1")
        await at.reads("+return 2")
        at.types("1")
        await at.until(lambda: at.session.prompts == ["1"])
        at.session.begin()
        at.types("second", "third", "/queue")
        await at.reads("1: second", "2: third")
        at.session.control_answers["cancel_async_message"] = {"cancelled": True}
        at.types("/queue drop 1")
        await at.reads("The prompt was dropped.")
        del at.session.control_answers["cancel_async_message"]
        at.types("/queue drop 1")
        await at.reads("The agent has taken this prompt already.")


async def test_lines_revoke_connect_again_and_leave_to_the_worker_what_only_the_screen_has(home: Path) -> None:
    (home / "ccb/settings.json").write_text("{")
    async with plain() as at:
        revoked: list[int] = []
        at.repl._api.info = replace(INFO, revoke=lambda: revoked.append(1))
        at.types("/revoke", "/reconnect", "/config", "/theme dark")
        await at.until(lambda: revoked and at.session.retries == 1 and at.session.prompts == ["/theme dark"])
        await at.reads("ccb: error: ", "settings.json")


async def test_a_report_has_the_last_problems_and_no_prompts(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    async with plain() as at:
        at.types("my secret plan")
        await at.until(lambda: at.session.prompts)
        at.session.begin()
        at.session.finish(subtype="error_during_execution", is_error=True, errors=["Gone: sk-ant-abcdefghijk123456."])
        await at.reads("Gone:")
        at.types("/bug")
        await at.reads("The report is in")
        (report,) = (home / "ccb/reports").iterdir()
        text = report.read_text()
        assert "Gone: [redacted]" in text and "connection: connected" in text and "secret plan" not in text
        assert report.stat().st_mode & 0o777 == 0o600


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_new(tmp_path / "a.md", "text")
    assert (tmp_path / "a.md").read_text() == "text" and (tmp_path / "a.md").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "a.md", "other")
    with pytest.raises(FileNotFoundError):
        write_new(tmp_path / "missing" / "a.md", "text")

    def full(descriptor: int, *_: object, **__: object) -> None:
        os.close(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(OSError, match="No space left"):
        write_new(tmp_path / "b.md", "text")
    assert (tmp_path / "a.md").read_text() == "text" and not (tmp_path / "b.md").exists()
