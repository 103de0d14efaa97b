"""Hooks of the person's settings, and of a trusted project, in a session of a real worker."""

from __future__ import annotations

import json
import os
import shlex
import signal
from typing import Any

import pytest
from tests.remote.agent_kit import Reply, calls, says
from tests.remote.worker_process import Laptop, WorkerHost, until

from ccb.tunnel.wire.control_protocol import Success, public_answer
from ccb.tunnel.wire.frames import Hello, Input
from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption

Json = dict[str, Any]


def hooks(**events: str | tuple[str, str]) -> Json:
    """Return settings with one hook for each event: a command, or a matcher and a command."""
    listed: Json = {}
    for event, given in events.items():
        matcher, command = given if isinstance(given, tuple) else ("", given)
        listed[event] = [{"matcher": matcher, "hooks": [{"type": "command", "command": command}]}]
    return {"hooks": listed}


def options(values: Json, **given: Any) -> SessionOptions:
    layers = [{"source": "user", "path": "~/.claude/settings.json", "values": values}]
    return SessionOptions(settings=SettingsOption(layers=layers).to_json(), **given)


def bash(command: str, call_id: str = "toolu_1", message_id: str = "msg_t") -> Reply:
    return calls((call_id, "Bash", {"command": command}), message_id=message_id)


def answer_of(**own: Any) -> str:
    return "echo '" + json.dumps({"hookSpecificOutput": {"hookEventName": "PreToolUse", **own}}) + "'"


def kill_worker(laptop: Laptop) -> None:
    os.kill(next(frame.pid for frame in laptop.frames if isinstance(frame, Hello)), signal.SIGKILL)


async def start(host: WorkerHost, session: str, values: Json, **given: Any) -> Laptop:
    return await host.drive(session, options(values, **given))


async def test_what_a_hook_allows_runs_with_the_input_it_gave_but_no_rule_that_denies_is_passed_over(
    host: WorkerHost, session: str
) -> None:
    change = answer_of(permissionDecision="allow", updatedInput={"command": "touch other"})
    allow = f'case "$(cat)" in *asked*) {change};; *) {answer_of(permissionDecision="allow")};; esac'
    laptop = await start(host, session, hooks(PreToolUse=("Bash", allow)), disallowed_tools=["Bash(rm *)"])
    await laptop.say("go")
    await laptop.tell(bash("touch asked"))
    await laptop.tell(bash("rm other", "toolu_2", "msg_2"))
    assert "was denied" in json.dumps((await laptop.tell(says("done", "msg_3")))["messages"][-1])
    assert (host.project / "other").exists() and not (host.project / "asked").exists()


async def test_a_hook_that_asks_makes_the_person_be_asked(host: WorkerHost, session: str) -> None:
    ask = answer_of(permissionDecision="ask", permissionDecisionReason="sure?")
    laptop = await start(host, session, hooks(PreToolUse=("Bash", ask)), permission_prompts="stdio")
    await laptop.say("go")
    await laptop.tell(bash("echo hi"))
    asked = (await laptop.message("control_request"))["request"]
    assert (asked["decision_reason_type"], asked["decision_reason"]) == ("hook", "sure?")


async def test_a_refused_prompt_reaches_no_model_and_context_goes_with_the_others(
    host: WorkerHost, session: str
) -> None:
    look = 'case "$(cat)" in *forbidden*) echo "not today" >&2; exit 2;; *) echo "it is Monday";; esac'
    begin = "cat >> starts; echo welcome"
    laptop = await start(host, session, hooks(UserPromptSubmit=look, SessionStart=begin, SessionEnd="cat > ended"))
    refused = await laptop.turn("do the forbidden thing")
    assert (refused["is_error"], refused["num_turns"], refused["terminal_reason"]) == (False, 0, "completed")
    assert refused["result"].startswith("UserPromptSubmit operation blocked by hook:\nnot today")
    messages = (await laptop.sent("do something", says("done")))["messages"]
    text = json.dumps(messages)
    assert "it is Monday" in text and "welcome" in text and "forbidden" not in text
    await laptop.stop()
    assert json.loads((host.project / "starts").read_text())["source"] == "startup"
    assert json.loads((host.project / "ended").read_text())["reason"] == "prompt_input_exit"


async def test_a_hook_at_the_start_sets_variables_for_the_commands_of_the_session(
    host: WorkerHost, session: str
) -> None:
    lines = ["export GREETING='good day'", 'declare -x EMPTY=""', "PLAIN=yes"]
    command = "; ".join(f'echo {shlex.quote(each)} >> "$CLAUDE_ENV_FILE"' for each in lines)
    values = {**hooks(SessionStart=command, Stop='echo "$GREETING" > seen'), "env": {"OWN": "1"}}
    laptop = await start(host, session, values, allowed_tools=["Bash"])
    await laptop.say("go")
    await laptop.tell(bash('echo "[$GREETING][$EMPTY][$PLAIN][$OWN][$CLAUDE_ENV_FILE]"'))
    assert "[good day][][yes][1][]" in json.dumps((await laptop.tell(says("done", "msg_2")))["messages"])
    await laptop.message("result")
    assert (host.project / "seen").read_text() == "good day\n"


async def test_a_hook_learns_that_the_model_has_failed(host: WorkerHost, session: str) -> None:
    laptop = await start(host, session, hooks(StopFailure=("invalid_request", "cat > failed")))
    await laptop.say("go")
    opened, _ = await laptop.call()
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": "no such field"}}
    await laptop.answer(opened, json.dumps(error).encode(), status=400)
    assert (await laptop.message("result"))["is_error"]
    await until(lambda: (host.project / "failed").exists() and "details" in (host.project / "failed").read_text(), "it")
    seen = json.loads((host.project / "failed").read_text())
    assert (seen["error"], seen["hook_event_name"]) == ("invalid_request", "StopFailure")
    assert "no such field" in seen["error_details"]


async def test_a_program_is_told_of_the_hooks_that_are_never_called(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    given = {"Stop": [{"hookCallbackIds": ["a"]}], "TeammateIdle": [{"hookCallbackIds": ["b"]}]}
    await laptop.control("initialize", hooks=given)
    told = await laptop.message("system", "informational")
    assert told["content"] == "ccb has no hooks of the events TeammateIdle: they are not called."


async def test_a_permission_hook_answers_in_place_of_the_person(host: WorkerHost, session: str) -> None:
    answer = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
    laptop = await start(host, session, hooks(PermissionRequest=f"echo '{json.dumps(answer)}'"))
    await laptop.turn("go", bash("touch made"), says("done"))
    assert (host.project / "made").exists()


@pytest.mark.parametrize("trusted", [True, False])
async def test_the_hooks_of_a_project_run_only_if_it_is_trusted(
    host: WorkerHost, session: str, *, trusted: bool
) -> None:
    (host.project / ".claude").mkdir()
    (host.project / ".claude/settings.json").write_text(json.dumps(hooks(UserPromptSubmit="touch ran")))
    laptop = await host.drive(session)
    asked = await laptop.message("control_request")
    reply = public_answer(Success(asked["request_id"], {"trusted": trusted}))
    await laptop.send(Input(laptop.epoch, "trust", reply))
    await laptop.turn("go", says("done"))
    assert (host.project / "ran").exists() is trusted


async def test_no_hook_runs_twice_when_the_worker_is_killed_while_it_runs(host: WorkerHost, session: str) -> None:
    values = hooks(
        UserPromptSubmit="echo x >> prompts; [ -e go ] || exec sleep 600",
        PostToolUse="echo x >> afters; exec sleep 600",
    )
    laptop = await start(host, session, values)
    await laptop.say("first")
    await until((host.project / "prompts").exists, "the hook of the prompt runs")
    kill_worker(laptop)
    (host.project / "go").touch()
    laptop = await start(host, session, values)
    assert "stopped in the middle" in json.dumps(await laptop.message("result"))
    await laptop.say("second")
    history = json.dumps((await laptop.tell(bash("echo hi")))["messages"])
    assert "first" not in history and "second" in history
    await until((host.project / "afters").exists, "the hook after the tool runs")
    kill_worker(laptop)
    laptop = await start(host, session, values)
    await laptop.message("result")
    await laptop.message("result")
    await laptop.turn("third", says("done", "msg_9"))
    assert (host.project / "prompts").read_text() == "x\n" * 3
    assert (host.project / "afters").read_text() == "x\n"
    ran = [each.body for each in laptop.events if each.kind == "hook" and each.body["event"] == "PostToolUse"]
    assert [each["about"] for each in ran] == ["toolu_1"]
