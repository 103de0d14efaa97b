"""What hooks may say at every event, and hooks of what changes in a session: todos, the model, settings, worktrees."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from tests.features.extensions.test_hooks import bash, lines
from tests.remote.agent_kit import calls, says
from tests.remote.subagents.delegation import MAIN, Delegation, delegates, delegation, task
from tests.support.model.model_script import Json
from tests.support.network.threaded_server import QuietHandler, threaded_server

from ccb.tunnel.wire.session_options import SettingsOption

ONE = "toolu_one"
IN_A_TURN = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "SubagentStart")


def settings(hooks: Json) -> Json:
    entries = {
        event: [{"hooks": [given if isinstance(given, dict) else {"type": "command", "command": given}]}]
        for event, given in hooks.items()
    }
    layers = [{"source": "user", "path": "settings.json", "values": {"hooks": entries}}]
    return SettingsOption(layers=layers).to_json()


def asked(d: Delegation, key: str = MAIN) -> list[str]:
    """The newest message of each request of an agent."""
    return [json.dumps(request["messages"][-1]) for request in d.model.requests[key]]


async def test_context_of_every_event_reaches_the_agent_that_it_is_about(tmp_path: Path) -> None:
    def say(event: str) -> str:
        own = {"hookEventName": event, "additionalContext": f"{event} says so"}
        return f"echo '{json.dumps({'hookSpecificOutput': own, 'systemMessage': f'{event} was here'})}'"

    ran = [bash("echo fine", "b1", "m1"), bash("false", "b2", "m2"), calls(task(ONE, "look"), message_id="m3")]
    scripts = {MAIN: [*ran, says("done", "m4")], "look": [says("seen", "c1")]}
    hooks = settings({event: say(event) for event in IN_A_TURN})
    async with delegation(tmp_path, scripts, settings=hooks, allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        main, (child,) = asked(d), asked(d, "look")
        for event, request in zip(IN_A_TURN, (0, 0, 1, 1, 2), strict=False):
            assert f"{event} says so" in main[request], event
        assert "SubagentStart says so" in child and "SubagentStart says so" not in "".join(main)
        told = {each["content"] for each in d.messages("system", "informational")}
        assert told == {f"{event} was here" for event in IN_A_TURN}


def answers(event: str, **own: Any) -> str:
    return f"echo '{json.dumps({'hookSpecificOutput': {'hookEventName': event, **own}})}'"


async def test_a_hook_at_the_start_names_the_session_and_speaks_before_the_first_prompt(tmp_path: Path) -> None:
    commands = tmp_path / "project/.claude/commands"
    commands.mkdir(parents=True)
    (commands / "go.md").write_text("Look around.")
    start = answers("SessionStart", initialUserMessage="Read the plan first.", sessionTitle="The  nightly\njob")
    given = settings({"SessionStart": start}) | {"trusted": "*"}
    scripts = {"Read the plan": [says("done", "m1"), says("again", "m2")]}
    async with delegation(tmp_path, scripts, settings=given) as d:
        assert (await d.turn("/help"))["subtype"] == "success"
        await d.turn("/go")
        await d.turn("and on")
        first, second = (json.dumps(request["messages"]) for request in d.model.requests["Read the plan"])
        assert first.index("Read the plan first.") < first.index("Look around.")
        assert second.count("Read the plan first.") == 1
        assert [each["title"] for each in d.messages("system", "session_title_changed")] == ["The nightly job"]


@pytest.mark.parametrize(
    ("own", "told"), [({"updatedToolOutput": "left out"}, "left out"), ({"updatedMCPToolOutput": "left out"}, "secret")]
)
async def test_a_hook_replaces_the_output_of_any_tool_or_of_mcp_tools(tmp_path: Path, own: Json, told: str) -> None:
    scripts = {MAIN: [bash("echo secret", "b1", "m1"), says("done", "m2")]}
    hooks = settings({"PostToolUse": answers("PostToolUse", **own)})
    async with delegation(tmp_path, scripts, settings=hooks, allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        assert d.result_text("b1") == told and ("secret" in asked(d)[-1]) is (told == "secret")


async def test_a_hook_of_a_denied_call_lets_the_model_try_again(tmp_path: Path) -> None:
    denied = f"cat > seen; {answers('PermissionDenied', retry=True)}"
    scripts = {MAIN: [bash("rm x", "b1", "m1"), says("done", "m2")]}
    given = settings({"PermissionDenied": denied})
    async with delegation(tmp_path, scripts, settings=given, disallowed_tools=["Bash(rm *)"]) as d:
        await d.turn(MAIN + "go")
        assert "was denied" in asked(d)[1] and "A hook says that you may try this call again." in asked(d)[1]
        assert (seen := json.loads(next(tmp_path.rglob("seen")).read_text()))["tool_input"] == {"command": "rm x"}
        assert "was denied" in seen["reason"]


async def test_what_ccb_does_not_know_in_an_answer_is_told_once(tmp_path: Path) -> None:
    hooks = {"PreToolUse": answers("PreToolUse", watchPaths=["/x"], additionalContext="fine"), "TeammateIdle": "true"}
    scripts = {MAIN: [bash("true", "b1", "m1"), bash("true", "b2", "m2"), says("done", "m3")]}
    async with delegation(tmp_path, scripts, settings=settings(hooks), allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        told = [each["content"] for each in d.messages("system", "informational")]
        assert told == [
            "This hook is not used: settings.json: hooks.TeammateIdle: there is no such event",
            "ccb does not know watchPaths in the answer of a PreToolUse hook: it has no effect.",
        ]


async def test_exit_code_2_refuses_at_every_event_that_can_be_refused(tmp_path: Path) -> None:
    def refuse(event: str, word: str = "bad") -> str:
        return f'case "$(cat)" in *{word}*) echo "{event} says no" >&2; exit 2;; esac'

    events = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "PermissionRequest", "PreCompact", "Stop")
    words = {"PermissionRequest": "touch", "PostToolUse": "fine", "Stop": "active*false"}
    hooks: Json = {event: refuse(event, words.get(event, "bad")) for event in events}
    ran = [bash("echo bad", "b1", "m1"), bash("echo fine", "b2", "m2"), bash("touch made", "b3", "m3")]
    scripts = {MAIN: [*ran, says("done", "m4"), says("really", "m5")]}
    async with delegation(tmp_path, scripts, settings=settings(hooks)) as d:
        refused = await d.turn("bad prompt")
        assert "UserPromptSubmit says no" in refused["result"] and not d.model.requests[MAIN]
        ended = await d.turn(MAIN + "go")
        assert [each["tool_use_id"] for each in ended["permission_denials"]] == ["b1", "b3"]
        _, first, second, third, last = asked(d)
        assert "PreToolUse:Bash hook error: PreToolUse says no" in first
        assert "fine" in second and "PostToolUse:Bash hook feedback:\\nPostToolUse says no" in second
        assert "PermissionRequest says no" in third and not (tmp_path / "project/made").exists()
        assert "Stop hook feedback:\\nStop says no" in last and ended["result"] == "really"
        assert "PreCompact says no" in str((await d.turn("/compact bad"))["result"])


async def test_around_a_compaction_and_at_the_start_hooks_are_heard(tmp_path: Path) -> None:
    hooks = {
        "SessionStart": 'case "$(cat)" in *startup*) echo "no network" >&2; exit 2;; esac',
        "PreCompact": "echo keep the ids",
        "PostCompact": "cat > compacted",
    }
    scripts = {MAIN: [says("done", "m1"), says("what was said", "m2")]}
    async with delegation(tmp_path, scripts, settings=settings(hooks)) as d:
        await d.turn(MAIN + "go")
        told = {each["content"] for each in d.messages("system", "informational")}
        assert told == {"A SessionStart:startup hook failed: no network"}
        await d.turn("/compact shortly")
        assert "shortly\\nkeep the ids" in asked(d)[-1]
    after = json.loads((tmp_path / "project/compacted").read_text())
    expected = {"hook_event_name": "PostCompact", "trigger": "manual", "compact_summary": "what was said"}
    assert after.items() >= expected.items()


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"])
async def test_continue_false_ends_the_turn(tmp_path: Path, event: str) -> None:
    hooks = settings({event: """echo '{"continue": false, "stopReason": "enough"}'"""})
    scripts = {MAIN: [bash("touch made", "b1", "m1"), says("done", "m2")]}
    async with delegation(tmp_path, scripts, settings=hooks, allowed_tools=["Bash"]) as d:
        ended = await d.turn(MAIN + "go")
        reasons = {"UserPromptSubmit": "completed", "Stop": "stop_hook_prevented"}
        assert ended["terminal_reason"] == reasons.get(event, "hook_stopped")
        assert any("enough" in str(each["content"]) for each in d.messages("system", "informational"))
        calls_made = {"UserPromptSubmit": 0, "PreToolUse": 1, "PostToolUse": 1, "Stop": 2}[event]
        assert len(d.model.requests[MAIN]) == calls_made
        assert (tmp_path / "project/made").exists() is (event in ("PostToolUse", "Stop"))


async def test_a_hook_runs_only_for_the_calls_of_its_condition_once_or_beside_the_turn(tmp_path: Path) -> None:
    """`once` holds over a restart of the worker."""
    said = json.dumps({"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "checked later"}})
    wait = "for i in $(seq 1000); do [ -e go ] && break; sleep 0.01; done"
    beside = {"type": "command", "command": f"cat > /dev/null; {wait}; echo '{said}'; touch told", "async": True}
    guard = {"type": "command", "command": "echo no >&2; exit 2", "if": "Bash(git push *)"}
    once = {"type": "command", "command": "echo x >> prompts", "once": True}
    hooks = settings({"PreToolUse": guard, "PostToolUse": beside, "UserPromptSubmit": once})
    push, other = "cd . && git push origin", "echo git push"
    scripts = {MAIN: [bash(push, "b1", "m1"), bash(other, "b2", "m2"), says("done", "m3"), says("again", "m4")]}
    async with delegation(tmp_path, scripts, settings=hooks, allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        assert "hook error: no" in d.result_text("b1") and d.result_text("b2") == "git push"
        (tmp_path / "project/go").touch()
        hook = next(iter(d.session.hooks._later)) if d.session.hooks is not None else None
        assert hook is not None
        await hook
        await d.turn("next")
        assert "checked later" in asked(d)[-1]
    async with delegation(tmp_path, {MAIN: [says("more", "m5")]}) as d:
        await d.turn("third")
    assert (tmp_path / "project/prompts").read_text() == "x\n"


class Receiver(QuietHandler):
    """Refuses calls, and keeps what it was sent."""

    sent: ClassVar[list[tuple[str, Json]]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.sent.append((self.headers["X-Who"], body))
        self.send_response(500 if self.path == "/broken" else 200)
        self.end_headers()
        self.wfile.write(b'{"decision": "block", "reason": "not on Fridays"}')


@pytest.fixture
def receiver() -> Iterator[tuple[str, list[tuple[str, Json]]]]:
    """The URL of a server of hooks, and what it was sent."""

    class OneReceiver(Receiver):
        sent: ClassVar[list[tuple[str, Json]]] = []

    with threaded_server(OneReceiver) as url:
        yield url, OneReceiver.sent


@pytest.mark.parametrize("private", [True, False])
async def test_a_hook_is_sent_to_a_url_under_the_rules_for_addresses(
    tmp_path: Path, receiver: tuple[str, list[tuple[str, Json]]], monkeypatch: pytest.MonkeyPatch, private: bool
) -> None:
    url, sent = receiver
    monkeypatch.setenv("WHO", "me")
    monkeypatch.setenv("SECRET", "s")
    refuse = {"type": "http", "url": url, "headers": {"X-Who": "${WHO}:$SECRET"}, "allowedEnvVars": ["WHO"]}
    hooks = settings({"PreToolUse": refuse, "PostToolUse": {"type": "http", "url": f"{url}/broken"}})
    scripts = {MAIN: [bash("echo hi", "b1", "m1"), says("done", "m2")]}
    async with delegation(tmp_path, scripts, settings=hooks, web_allow_private=private) as d:
        await d.turn(MAIN + "go")
        told = " ".join(str(each["content"]) for each in d.messages("system", "informational"))
        if private:
            assert d.result_text("b1") == "PreToolUse:Bash hook error: not on Fridays"
            assert [(who, body["tool_input"]) for who, body in sent] == [("me:", {"command": "echo hi"})]
        else:
            assert "The hook failed: " in d.result_text("b1") and sent == [] and "no public address" in told


async def test_a_model_refuses_a_call_for_a_prompt_hook(tmp_path: Path) -> None:
    hooks = settings({"PreToolUse": {"type": "prompt", "prompt": "Nothing is deleted."}})
    scripts = {
        "Nothing is deleted": [says('{"ok": false, "reason": "that deletes"}', "h1")],
        MAIN: [bash("rm x", "b1", "m1"), says("I leave it.", "m2")],
    }
    (tmp_path / "x").write_text("")
    async with delegation(tmp_path, scripts, settings=hooks, allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        (judged,) = d.model.requests["Nothing is deleted"]
        assert "haiku" in judged["model"] and "rm x" in json.dumps(judged["messages"]) and not judged["tools"]
        assert "that deletes" in asked(d)[-1]
        (result,) = d.messages("result")
        (used,) = result["modelUsage"].values()
        assert used["inputTokens"] == 300, "what the judge uses counts"


KEEP = 'cat >> "$CLAUDE_PROJECT_DIR/seen"'


async def requested(d: Delegation, subtype: str, **fields: Any) -> Json:
    """The answer to a request of a client."""
    request = {"type": "control_request", "request_id": f"r{d.journal.seq}", "request": {"subtype": subtype, **fields}}
    d.session.take_input(f"i{d.journal.seq}", request)
    await asyncio.wait_for(d.session.broker.settle(20), 30)
    return dict(d.messages("control_response")[-1]["response"])


def todos(call_id: str, *items: tuple[str, str]) -> tuple[str, str, Json]:
    listed = [{"content": text, "status": status, "activeForm": f"{text} now"} for text, status in items]
    return call_id, "TodoWrite", {"todos": listed}


async def test_hooks_see_todos_and_keep_one_from_being_completed(tmp_path: Path) -> None:
    refuse = "case $(cat) in *Ship*) echo 'the tests are red' >&2; exit 2;; esac"
    hooks = {"TaskCreated": KEEP, "TaskCompleted": refuse}
    states = (("in_progress", "pending"), ("completed", "in_progress"), ("completed", "completed"))
    written = [
        calls(todos(f"t{at}", ("Test", first), ("Ship", second)), message_id=f"m{at}")
        for at, (first, second) in enumerate(states, 1)
    ]
    scripts = {MAIN: [*written, says("done", "m4")]}
    async with delegation(tmp_path, scripts, settings=settings(hooks)) as d:
        await d.turn(MAIN + "go")
        created = [
            (each["hook_event_name"], each["task_id"], each["task_subject"])
            for each in lines(tmp_path / "project/seen")
        ]
        assert created == [("TaskCreated", "1", "Test"), ("TaskCreated", "2", "Ship")]
        assert "has been updated" in d.result_text("t2")
        assert d.result_text("t3") == "TaskCompleted hook refused 'Ship': the tests are red"
        assert [each.status for each in d.session.agent.config.context.todos.list.items] == ["completed", "in_progress"]


async def test_hooks_see_new_directories_settings_and_models_and_refuse_a_model(tmp_path: Path) -> None:
    switch = answers("PreModelSwitch", permissionDecision="deny", permissionDecisionReason="too dear")
    hooks = {
        "DirectoryAdded": KEEP,
        "ConfigChange": KEEP,
        "PreModelSwitch": f"case $(cat) in *opus*) {switch};; esac",
        "PostModelSwitch": answers("PostModelSwitch", additionalContext="You are another model now."),
    }
    project = tmp_path / "project/.claude"
    project.mkdir(parents=True)
    given = {**settings(hooks), "trusted": "*"}
    write = calls(("w1", "Write", {"file_path": str(tmp_path / "x"), "content": "x"}), message_id="m0")
    scripts = {MAIN: [write, says("done", "m1"), says("again", "m2")]}
    async with delegation(tmp_path, scripts, settings=given, model="sonnet") as d:
        turn = asyncio.ensure_future(d.turn(MAIN + "go"))
        while not (questions := d.messages("control_request", agent_id="")):
            await asyncio.sleep(0.01)
        update = {"type": "addDirectories", "directories": [str(tmp_path)], "destination": "session"}
        agreed = {"behavior": "allow", "updatedPermissions": [update]}
        response = {"subtype": "success", "request_id": questions[0]["request_id"], "response": agreed}
        d.session.take_input("answer", {"type": "control_response", "response": response})
        await turn
        (project / "settings.json").write_text('{"env": {"A": "1"}}')
        assert (await requested(d, "reload_plugins"))["subtype"] == "success"
        assert (await requested(d, "set_model", model="opus"))["error"] == "a hook refused it: too dear"
        assert "sonnet" in d.session.agent.model
        assert (await requested(d, "set_model", model="haiku"))["subtype"] == "success"
        assert "haiku" in d.session.agent.model
        await d.turn("and on")
        assert "You are another model now." in json.dumps(d.model.requests[MAIN][-1]["messages"][-1])
        assert d.session.hooks is not None
        await asyncio.gather(*d.session.hooks._later)
    found = sorted((each["hook_event_name"], each["source"]) for each in lines(tmp_path / "project/seen"))
    assert found == [("ConfigChange", "project_settings"), ("DirectoryAdded", "permission_update")]
    config, directory = sorted(lines(tmp_path / "project/seen"), key=lambda each: each["hook_event_name"])
    assert (config["file_path"], directory["directory"]) == (str(project / "settings.json"), str(tmp_path))


async def test_a_hook_makes_the_worktree_of_an_agent_in_the_place_of_git(tmp_path: Path) -> None:
    tree = tmp_path / "trees/one"
    hooks = {"WorktreeCreate": f"mkdir -p {tree}; echo made; echo {tree}", "WorktreeRemove": f"{KEEP}; rm -r {tree}"}
    scripts = {
        MAIN: delegates(task(ONE, "look", isolation="worktree")),
        "look": [calls(("b1", "Bash", {"command": "pwd; touch made"}), message_id="c1"), says("seen", "c2")],
    }
    async with delegation(tmp_path, scripts, settings=settings(hooks), allowed_tools=["Bash"]) as d:
        await d.turn(MAIN + "go")
        assert d.result_text("b1", ONE) == str(tree)
        assert d.result_text(ONE).startswith("seen") and not tree.exists()
    assert [each["worktree_path"] for each in lines(tmp_path / "project/seen")] == [str(tree)]

    broken = settings({"WorktreeCreate": "echo no-path"})
    scripts = {MAIN: delegates(task(ONE, "look", isolation="worktree")), "look": []}
    (tmp_path / "other").mkdir()
    async with delegation(tmp_path / "other", scripts, settings=broken) as d:
        await d.turn(MAIN + "go")
        assert "the WorktreeCreate hook has made none: it named no directory: 'no-path'" in d.result_text(ONE)
