"""Hooks of one event: which of them run, what they are told, what they decide, and what they leave behind."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.remote.tools_kit import until
from tests.support.worker.cages import sandbox

from ccb.remote.hooks.hook_outcome import NOTHING, HookOutcome, read_output
from ccb.remote.hooks.hook_runner import HookContext, HookRunner, HookTurn
from ccb.remote.hooks.hook_table import Hook, client_hooks, read_hooks
from ccb.remote.permissions.engine import LaunchRules, PermissionEngine
from ccb.remote.settings.worker_settings import Layer, Sourced
from ccb.remote.system.deadline import within_while
from ccb.remote.system.host import Host
from ccb.remote.system.process import marked
from ccb.tunnel.wire.control_protocol import Request, RequestFailed
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Content, HookRecord, MessageRecord, Record, record_of
from ccb.tunnel.wire.settings_text import lines_in, load_settings


class Client:
    """Stands for the program that drives: answers callbacks from a table."""

    def __init__(self) -> None:
        self.answers: dict[str, Json | None] = {}
        self.asked: list[Json] = []

    def can_ask(self, kind: object) -> bool:
        return True

    async def request(self, request: Request[Any, Any]) -> Any:
        self.asked.append(request.public()["request"])
        answer = self.answers.get(request.payload.callback_id, {"error": "no such callback"})
        if answer is None:
            await asyncio.Event().wait()
        if answer and "error" in answer:
            raise RequestFailed(answer["error"])
        return answer


class Desk:
    """A runner on this machine, and all that it has written to the journal."""

    def __init__(self, cwd: Path) -> None:
        self.host = Host()
        self.client = Client()
        self.records: list[tuple[Content, str]] = []
        self.durable = 0
        self.session_id, self.journal = "s-1", SimpleNamespace(path="/j")
        self.reminded: dict[str, str] = {}
        permissions = PermissionEngine(LaunchRules(sandbox(), "plan"), cwd=str(cwd), home="/nowhere")
        broker, log = cast(Any, self.client), cast(Any, self)
        self.runner = HookRunner(HookContext(str(cwd), self.host, broker, log, permissions, self.reminded.__setitem__))

    def emit(self, content: Content, agent_id: str = "") -> Record:
        self.records.append((content, agent_id))
        return record_of(content)

    async def commit(self) -> None:
        self.durable = len(self.records)

    def use(self, value: Json, source: str = "user") -> None:
        self.runner.begin_turn(HookTurn(), [sourced(value, source)])

    async def ran(self, event: str, *commands: str, timeout: float | None = None) -> HookOutcome:
        """Run commands as the hooks of an event, of the tool T if it is about a tool."""
        self.use(one(event, *commands, timeout=timeout))
        tool = "T" if "Tool" in event else ""
        return await self.runner.run(event, {"tool_name": tool}, tool)

    def said(self) -> list[str]:
        return [each.body["content"] for each, _ in self.records if isinstance(each, MessageRecord)]


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    desk = Desk(tmp_path)
    yield desk
    assert marked(desk.host.session) == [], "a hook left a process"
    desk.host.close()


def sourced(value: object, source: str = "user", lines: Mapping[str, int] = {}) -> Sourced:
    return Sourced(value, Layer(source, f"/{source}.json", {}, lines=lines))


def one(event: str, *commands: str, matcher: str = "", timeout: float | None = None) -> Json:
    more = {} if timeout is None else {"timeout": timeout}
    return {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": c, **more} for c in commands]}]}


@pytest.mark.parametrize(
    ("matcher", "runs", "not_for"),
    [
        *(("", ["Bash", "x"], []), ("*", ["Bash"], []), ("Bash", ["Bash"], ["BashOutput", "bash"])),
        ("Edit|Write", ["Edit", "Write"], ["MultiEdit", "Edit|Write"]),
        ("mcp__.*__get", ["mcp__a__get"], ["mcp__a__put"]),
    ],
)
def test_a_matcher_is_a_name_or_names_or_an_expression(matcher: str, runs: list[str], not_for: list[str]) -> None:
    hook = Hook("PreToolUse", matcher)
    assert all(map(hook.matches, runs)) and not any(map(hook.matches, not_for))


def test_what_is_no_hook_is_reported_and_the_rest_counts() -> None:
    problems: list[str] = []
    value = {
        "PreToolUse": [
            {"hooks": [{"type": "command", "command": "true"}, {"type": "agent", "prompt": "?"}]},
            *({"matcher": "[", "hooks": [{"type": "command", "command": "true"}]}, {"command": "true"}),
        ],
        "Nope": [],
        "preToolUse": [],
        "Stop": [{"hooks": [{"type": "command", "command": "true", "timeout": 0}]}],
    }
    hooks = read_hooks([sourced(value), sourced([], "local")], problems.append)
    used = [(each.event, each.what, each.layer.path) for each in hooks if not each.broken]
    assert used == [("PreToolUse", "true", "/user.json")]
    assert len(problems) == 7 and all("hooks" in each for each in problems)
    assert "did you mean PreToolUse?" in str(problems)
    assert any("type agent do not run in ccb: use a prompt or a command" in each for each in problems)


async def test_the_command_gets_the_event_and_its_decision_counts(desk: Desk, tmp_path: Path) -> None:
    decided = {"permissionDecision": "allow", "permissionDecisionReason": "fine"}
    own = {"hookEventName": "PreToolUse", **decided, "updatedInput": {"a": 2}, "additionalContext": "look"}
    answer = {"hookSpecificOutput": own, "systemMessage": "hello"}
    (tmp_path / "answer").write_text(json.dumps(answer))
    desk.use(one("PreToolUse", 'cat > got; echo "$CLAUDE_PROJECT_DIR" > where; cat answer', matcher="T"))
    assert await desk.runner.run("PreToolUse", {"tool_name": "U"}, "U") is NOTHING
    outcome = await desk.runner.run("PreToolUse", {"tool_name": "T"}, "T", about="t1", agent_id="a1")
    assert outcome == HookOutcome("allow", "fine", ("look",), ("hello",), updated_input={"a": 2})
    about = {"session_id": "s-1", "transcript_path": "/j", "cwd": str(tmp_path), "permission_mode": "plan"}
    event = {"hook_event_name": "PreToolUse", "agent_id": "a1", "tool_name": "T"}
    assert json.loads((tmp_path / "got").read_text()) == {**about, **event}
    assert (tmp_path / "where").read_text().strip() == str(tmp_path)
    assert desk.records[0] == (HookRecord("PreToolUse", "T", "t1", 1), "a1") and desk.durable == 1
    assert desk.said() == ["hello"]


MAYBE = "it decided 'maybe', which is no decision"
NO = {"behavior": "deny", "message": "m", "interrupt": True}
REFUSED = HookOutcome("deny", "m", interrupt=True)


@pytest.mark.parametrize(
    ("event", "code", "stdout", "stderr", "outcome"),
    [
        ("PreToolUse", 2, "", "no\n", HookOutcome("deny", "no")),
        ("Stop", 1, "", "oops\nmore", HookOutcome(errors=("exit code 1: oops",))),
        ("SessionStart", 2, "", "no network\n", HookOutcome(errors=("no network",))),
        ("PreCompact", 0, "keep the ids\n", "", HookOutcome(context=("keep the ids",))),
        ("UserPromptSubmit", 0, " today\n", "", HookOutcome(context=("today",))),
        ("PreToolUse", 0, "just talk", "", NOTHING),
        ("PostToolUse", 0, '{"decision": "block", "reason": "r"}', "", HookOutcome("deny", "r")),
        ("Stop", 0, '{"continue": false, "stopReason": "s"}', "", HookOutcome(stops=True, stop_reason="s")),
        ("PostToolUse", 0, '{"decision": "maybe"}', "", HookOutcome(errors=(MAYBE,))),
        ("PermissionRequest", 0, json.dumps({"hookSpecificOutput": {"decision": NO}}), "", REFUSED),
    ],
)
def test_exit_codes_and_output(event: str, code: int, stdout: str, stderr: str, outcome: HookOutcome) -> None:
    assert read_output(event, code, stdout, stderr) == outcome


DENY = '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}'
ALLOW = DENY.replace("deny", "allow")
PRETTY = json.dumps(json.loads(DENY), indent=2)


REFUSED_ON_STDOUT = [
    *(f"Loading nvm ...\n{DENY}\n", f"{DENY}\nbye\n", f"[INFO] ready\n{PRETTY}", f"\ufeff{DENY}", f"[{DENY}]"),
    *(f"\x1b[1m\x1b[31m{DENY}\x1b[0m", f"\x1b]0;title\x07{DENY}", "".join(f"{char}\0" for char in DENY), "deny\n"),
    *(f"{ALLOW}\n{DENY}", f"{DENY}{ALLOW}", f'{{"level": 30, "msg": "up"}}\n{DENY}', f"answer: {DENY}", DENY[:-1]),
    *(DENY.replace('"', "'"), f"```json\n{DENY}\n```", DENY.replace("PreToolUse", "PreToolUsed"), '{"allowed": false}'),
    *('{"decision": "block", "decision": "approve"}', '{"permissionDecision": "deny"}', '{"decision": "BLOCK"}', "{"),
    *('{"result": {"decision": "block"}}', '{"hookSpecificOutput": {"decision": "deny"}}', '{"continue": "false"}'),
    *('{"hookSpecificOutput": {}, "permissionDecision": "deny"}', '{"hookSpecificOutput": "deny"}', '["x"', "blocked"),
    *("permissionDecision: deny", "decision: block\nreason: no", "permission decision: deny", "{}\ndecision: block"),
    *("<decision>deny</decision>", '{"decision": "block", "reason": "two\nlines"}', '{"decison": "block"}'),
    *(DENY.replace("hookSpecificOutput", "hookSpecificOuput"), '{"continue": true, "verdict": "Deny"}'),
    *(DENY.replace("permissionDecision", "permission_decision"), '{"decision": false}', '{"decision": "denied"}'),
    *(DENY.replace("permissionDecision", "permisionDecision"), f'{{"hookSpecificOutput": {DENY}}}'),
    *(json.dumps('{"decision": "block"}'), "DENIED: rm is not allowed here", DENY.replace(" ", "\r\n")),
    *(f'{{"level": 1}}\n{{"level": 2}}\n{DENY}\n{{"level": 3}}', f"\ufffd\ufffd{DENY}", "x\n" * 100_000 + DENY),
    *("decision=block", "{x\n" * 200 + DENY, 'starting\n{"hookSpecificOutput": {"hookEv'),
]


@pytest.mark.parametrize(
    ("stdout", "stderr", "code"),
    [
        *((stdout, "", 0) for stdout in REFUSED_ON_STDOUT),
        *(("", DENY, 0), (ALLOW, DENY, 0), ("", "Blocked by policy", 0), (DENY, "Traceback ...", 1), (DENY, "", 1)),
        *(("", "bash: guard.sh: No such file or directory", 127), ("", "bash: guard.sh: Permission denied", 126)),
        ("", "node:internal/modules/cjs/loader:1210\n  throw err;\n\nError: Cannot find module '/x/guard.js'", 1),
        ("", "Traceback (most recent call last):\nModuleNotFoundError: No module named 'guard'", 1),
        ("", '  File "guard.py", line 1\n    x =\nSyntaxError: invalid syntax', 1),
        *(("", "", -9), ("", "Segmentation fault", 139)),
        ('{"hookSpecificOutput": {"permissionDec', "Traceback ...", 1),
    ],
)
def test_what_a_gating_hook_may_have_refused_is_refused(stdout: str, stderr: str, code: int) -> None:
    outcome = read_output("PreToolUse", code, stdout, stderr)
    assert outcome.blocked
    assert outcome.errors == () or outcome.reason.startswith("The hook failed: "), "the reason says what is wrong"


@pytest.mark.parametrize(
    ("event", "stdout", "stderr", "outcome"),
    [
        ("PreToolUse", f"Loading nvm ...\n{ALLOW}\n", "+ echo " + ALLOW, HookOutcome("allow")),
        ("PreToolUse", '[INFO] ready\n{"level": 30, "msg": "up"}\n{}', "a warning", NOTHING),
        ("PreToolUse", "", "the decision: allow all that reads", NOTHING),
        ("PreToolUse", "Block size: 4096\nno rule denied it", "1 was blocked", NOTHING),
        ("PreToolUse", '{"systemMessage": "deny", "decision": null}', "", HookOutcome(notes=("deny",))),
        ("PreToolUse", "x" + "\n" * 1_000_000 + "x", "", NOTHING),
        ("PreToolUse", "Decisions: deny list updated\nMy decision: allow\nnothing blocked", "", NOTHING),
        ("PreToolUse", '{"reason": "{\\"decision\\": \\"block\\"}"}', "", HookOutcome(reason='{"decision": "block"}')),
        ("UserPromptSubmit", "{}", "", NOTHING),
        ("SessionStart", f"Hooks print {DENY}", "", HookOutcome(context=(f"Hooks print {DENY}",))),
        ("PostToolUse", "1 file changed\n{\n", DENY, NOTHING),
        ("UserPromptSubmit", 'Main branch: x\n{"decision": "block"}', "", HookOutcome("deny")),
        ("UserPromptSubmit", 'Config:\n{"a": [1]}', "", HookOutcome(context=('Config:\n{"a": [1]}',))),
        ("UserPromptSubmit", '[{"number": 3}]', "", HookOutcome(context=('[{"number": 3}]',))),
        ("UserPromptSubmit", "int f() {\n  g(\n", "", HookOutcome(context=("int f() {\n  g(",))),
    ],
)
def test_what_stands_around_an_answer_changes_nothing(
    event: str, stdout: str, stderr: str, outcome: HookOutcome
) -> None:
    assert read_output(event, 0, stdout, stderr) == outcome


async def test_a_gate_stays_shut_when_its_hook_cannot_run(desk: Desk, tmp_path: Path) -> None:
    """Without its directory, without its file, without an interpreter, without an end."""
    gone = tmp_path / "gone"
    gone.mkdir()
    (gone / "guard.py").write_text("import sys; sys.exit(2)")
    moved = Desk(gone)
    gone.rename(tmp_path / "renamed")
    for command in ("./guard.py", "exit 3"):
        outcome = await moved.ran("PreToolUse", command)
        assert outcome.blocked and outcome.reason and moved.said()
    assert not (await moved.ran("PostToolUse", "./guard.py")).blocked, "the tool has run"
    moved.host.close()
    for event in ("PreToolUse", "PermissionRequest", "UserPromptSubmit", "Stop", "SubagentStop", "TaskCreated"):
        outcome = await desk.ran(event, "./no-such-guard.sh")
        assert outcome.blocked and "No such file" in outcome.reason
    desk.use(one("Stop", "./no-such-guard.sh"))
    assert not (await desk.runner.run("Stop", {"stop_hook_active": True})).blocked, "once is enough"
    long = await desk.ran("PreToolUse", "head -c 2000000 /dev/zero | tr '\\0' x; echo; echo '{}'")
    assert "more than ccb reads" in long.reason


async def test_a_gating_hook_that_cannot_be_used_refuses_what_it_may_have_been_about(desk: Desk) -> None:
    text = """{"hooks": {
      "PreToolUse": [
        {"matcher": "Write", "hooks": [{"type": "command", "comand": "./guard.sh"}]},
        {"matcher": "Bash(", "hooks": [{"type": "command", "command": "true"}]}
      ],
      "PostToolUse": [{"hooks": [3]}]
    }}"""
    read, (lines, _) = load_settings(text), lines_in(text)
    assert isinstance(read, dict)
    problems = desk.runner.begin_turn(HookTurn(), [sourced(read["hooks"], "project", lines)])
    assert [each.partition(": ")[0] for each in problems] == [f"/project.json, line {line}" for line in (3, 4, 6)]
    outcome = await desk.runner.run("PreToolUse", {}, "Write")
    assert outcome.blocked and "/project.json, line 3: hooks.PreToolUse.0.hooks.0" in outcome.reason
    assert "/project.json, line 4" in (await desk.runner.run("PreToolUse", {}, "Read")).reason
    assert await desk.runner.run("PostToolUse", {}, "Read") is NOTHING
    desk.runner.begin_turn(HookTurn(), [sourced([{"type": "command", "command": "true"}], "project")])
    assert (await desk.runner.run("PreToolUse", {}, "Read")).blocked, "nobody knows for which event it was meant"


async def test_hooks_run_together_each_once_and_the_strictest_decides(desk: Desk, tmp_path: Path) -> None:
    meet = "touch %s; for i in $(seq 500); do [ -e %s ] && break; sleep 0.01; done; [ -e %s ]"
    commands = [f"({meet % ('a', 'b', 'b')}) && echo no >&2; exit 2", f"({meet % ('b', 'a', 'a')}) || exit 3", "echo x"]
    outcome = await desk.ran("Stop", *commands, "echo x >> count", "echo x >> count")
    assert (outcome.decision, outcome.reason, outcome.errors) == ("deny", "no", ())
    assert (tmp_path / "count").read_text() == "x\n"


async def test_a_slow_hook_is_stopped_with_everything_it_started(desk: Desk) -> None:
    outcome = await desk.ran("Stop", "sleep 600 & setsid sleep 600 & sleep 600", timeout=0.2)
    assert outcome.blocked and "stopped after 0.2 s" in outcome.reason
    assert "A Stop hook failed" in desk.said()[0]


async def test_an_interrupt_leaves_no_process(desk: Desk, tmp_path: Path) -> None:
    task = asyncio.ensure_future(desk.ran("Stop", "sleep 600 & touch started; exec sleep 600"))
    await until((tmp_path / "started").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_output_without_end_is_cut(desk: Desk) -> None:
    outcome = await desk.ran("UserPromptSubmit", "head -c 9000000 /dev/zero | tr '\\0' x; head -c 900000 /dev/zero >&2")
    assert 30_000 <= len(outcome.context[0]) < 30_100


@pytest.mark.parametrize("more", [0, 1])
async def test_a_gating_hook_refuses_only_if_its_output_is_longer_than_what_is_read(desk: Desk, more: int) -> None:
    outcome = await desk.ran("PreToolUse", f"head -c {(1 << 20) + more} /dev/zero | tr '\\0' '\\n'")
    assert ("printed more than ccb reads" in outcome.reason) is bool(more)


async def test_a_callback_is_answered_by_the_driving_program(desk: Desk) -> None:
    value = {"PreToolUse": [{"matcher": None, "hookCallbackIds": ["cb"], "timeout": 0.05}]}
    desk.runner.use_callbacks(client_hooks(value))
    desk.client.answers["cb"] = {"decision": "block", "reason": "not now"}
    outcome = await desk.runner.run("PreToolUse", {"tool_name": "T"}, "T", about="t1")
    assert (outcome.decision, outcome.reason) == ("deny", "not now")
    asked = desk.client.asked[0]
    assert (asked["subtype"], asked["callback_id"], asked["tool_use_id"]) == ("hook_callback", "cb", "t1")
    assert asked["input"]["tool_name"] == "T"
    desk.client.answers["cb"] = None
    outcome = await desk.runner.run("PreToolUse", {"tool_name": "T"}, "T")
    assert (outcome.decision, outcome.reason) == ("deny", "The hook gave no answer within 0.05 s.")
    desk.client.answers.clear()
    assert (await desk.runner.run("PreToolUse", {}, "T")).errors == ("no such callback",)


async def test_time_in_which_the_driving_program_is_away_does_not_count() -> None:
    looks, back = [False, False], asyncio.Event()

    def counts() -> bool:
        if not looks:
            back.set()  # it is here again, and answers
        return bool(looks) and looks.pop()

    assert await within_while(0.01, counts, back.wait())
    with pytest.raises(asyncio.TimeoutError):
        await within_while(0.01, lambda: True, asyncio.sleep(60))


async def test_the_persons_own_notification_hooks_do_not_run_on_the_host(desk: Desk) -> None:
    desk.use(one("Notification", "touch ran"))
    assert desk.runner.matching("Notification", "permission_prompt") == []
    desk.use(one("Notification", "touch ran"), "project")
    assert len(desk.runner.matching("Notification", "permission_prompt")) == 1


async def test_a_model_decides_for_a_prompt_hook_and_can_only_refuse(desk: Desk) -> None:
    said: list[str] = []
    asked: list[tuple[str, str, str]] = []

    async def judge(system: str, text: str, model: str) -> str:
        asked.append((system, text, model))
        return said.pop(0)

    hook = {"type": "prompt", "prompt": "No tests are deleted: $ARGUMENTS", "model": "sonnet"}
    value = {"PreToolUse": [{"matcher": "Bash", "hooks": [hook]}], "Stop": [{"hooks": [{**hook, "model": ""}]}]}
    desk.use(value)
    run = desk.runner.run("PreToolUse", {"tool_input": {"command": "ls"}}, "Bash")
    assert (await run).errors == ("no model can be asked here",)
    desk.runner.begin_turn(HookTurn(judge=judge), [sourced(value)])
    said.append('```json\n{"ok": true, "permissionDecision": "allow"}\n```')
    assert (await desk.runner.run("PreToolUse", {"tool_input": {"command": "ls"}}, "Bash")).decision == ""
    assert "$ARGUMENTS" not in asked[0][1] and '"command": "ls"' in asked[0][1] and asked[0][2] == "sonnet"
    said.append('{"ok": false, "reason": "it deletes tests"}')
    outcome = await desk.runner.run("Stop", {})
    assert (outcome.decision, outcome.reason, asked[1][2]) == ("deny", "it deletes tests", "small")
    said.append("I would say yes.")
    outcome = await desk.runner.run("Stop", {})
    assert outcome.blocked and "the model decided nothing" in outcome.reason


async def test_the_status_message_of_a_hook_that_takes_its_time_is_shown(desk: Desk) -> None:
    def hook(command: str, text: str) -> Json:
        return {"type": "command", "command": command, "statusMessage": text}

    desk.use({"Stop": [{"hooks": [hook("sleep 1.3", "Checking  the licence"), hook("true", "Quick")]}]})
    await desk.runner.run("Stop", {})
    assert desk.said() == ["Checking the licence …"]
