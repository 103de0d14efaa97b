"""Hooks of the person's settings and of a trusted project in a session of a real worker; `--init`, `--maintenance`."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import Reply, calls, says
from tests.remote.worker_process import Laptop, WorkerHost, until
from tests.support.model.model_script import Json
from tests.support.person.laptop import Here

from ccb.tunnel.wire.control_protocol import Success, public_answer
from ccb.tunnel.wire.frames import Input
from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption


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


async def start(host: WorkerHost, session: str, values: Json, **given: Any) -> Laptop:
    return await host.drive(session, options(values, **given))


async def test_what_a_hook_allows_runs_with_its_input_unless_a_rule_denies_it(host: WorkerHost, session: str) -> None:
    change = answer_of(permissionDecision="allow", updatedInput={"command": "touch other"})
    allow = f'case "$(cat)" in *asked*) {change};; *) {answer_of(permissionDecision="allow")};; esac'
    laptop = await start(host, session, hooks(PreToolUse=("Bash", allow)), disallowed_tools=["Bash(rm *)"])
    await laptop.begin("go", bash("touch asked"), bash("rm other", "toolu_2", "msg_2"))
    assert "was denied" in json.dumps((await laptop.tell(says("done", "msg_3")))["messages"][-1])
    assert (host.project / "other").exists() and not (host.project / "asked").exists()


async def test_a_hook_that_asks_makes_the_person_be_asked(host: WorkerHost, session: str) -> None:
    ask = answer_of(permissionDecision="ask", permissionDecisionReason="sure?")
    laptop = await start(host, session, hooks(PreToolUse=("Bash", ask)), permission_prompts="stdio")
    await laptop.begin("go", bash("echo hi"))
    asked = (await laptop.message("control_request"))["request"]
    assert (asked["decision_reason_type"], asked["decision_reason"]) == ("hook", "sure?")


async def test_a_refused_prompt_reaches_no_model_and_context_goes_with_others(host: WorkerHost, session: str) -> None:
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


async def test_a_hook_at_the_start_sets_variables_for_commands_of_the_session(host: WorkerHost, session: str) -> None:
    lines = ["export GREETING='good day'", 'declare -x EMPTY=""', "PLAIN=yes"]
    command = "; ".join(f'echo {shlex.quote(each)} >> "$CLAUDE_ENV_FILE"' for each in lines)
    values = {**hooks(SessionStart=command, Stop='echo "$GREETING" > seen'), "env": {"OWN": "1"}}
    laptop = await start(host, session, values, allowed_tools=["Bash"])
    await laptop.begin("go", bash('echo "[$GREETING][$EMPTY][$PLAIN][$OWN][$CLAUDE_ENV_FILE]"'))
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


async def test_a_hook_that_wants_a_cage_for_what_none_allows_is_not_asked_for_ever(
    host: WorkerHost, session: str
) -> None:
    yes = {"behavior": "allow", "updatedPermissions": [{"type": "setSandbox", "sandbox": "workspace"}]}
    answer = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": yes}}
    laptop = await start(host, session, hooks(PermissionRequest=f"echo '{json.dumps(answer)}'"))
    leaves = {"command": "touch ../x", "dangerouslyDisableSandbox": True}
    await laptop.say("go")
    await laptop.tell(calls(("t1", "Bash", leaves)))
    request = await laptop.tell(says("Done."))
    assert "No cage makes this needless" in json.dumps(request["messages"][-1])


async def test_a_permission_hook_answers_in_place_of_the_person(host: WorkerHost, session: str) -> None:
    answer = {"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}}
    laptop = await start(host, session, hooks(PermissionRequest=f"echo '{json.dumps(answer)}'"))
    await laptop.turn("go", bash("touch made"), says("done"))
    assert (host.project / "made").exists()


@pytest.mark.parametrize("trusted", [True, False])
async def test_hooks_of_a_project_run_only_if_it_is_trusted(host: WorkerHost, session: str, *, trusted: bool) -> None:
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
    await laptop.kill()
    (host.project / "go").touch()
    laptop = await start(host, session, values)
    assert "stopped in the middle" in json.dumps(await laptop.message("result"))
    await laptop.say("second")
    history = json.dumps((await laptop.tell(bash("echo hi")))["messages"])
    assert "first" not in history and "second" in history
    await until((host.project / "afters").exists, "the hook after the tool runs")
    await laptop.kill()
    laptop = await start(host, session, values)
    await laptop.message("result")
    await laptop.message("result")
    await laptop.turn("third", says("done", "msg_9"))
    assert (host.project / "prompts").read_text() == "x\n" * 3
    assert (host.project / "afters").read_text() == "x\n"
    ran = [each.body for each in laptop.events if each.kind == "hook" and each.body["event"] == "PostToolUse"]
    assert [each["about"] for each in ran] == ["toolu_1"]


async def test_init_only_runs_the_hooks_of_the_start_and_ends_without_the_model(here: Here) -> None:
    project = here.project
    listed = [
        {"matcher": name, "hooks": [{"type": "command", "command": f"echo {name} >> log; cat >> events"}]}
        for name in ("init", "maintenance")
    ]
    start = [{"hooks": [{"type": "command", "command": "echo start >> log"}]}]
    given = ["--settings", json.dumps({"hooks": {"Setup": listed, "SessionStart": start}})]
    done = await here.run("--init-only", *given)
    assert (done.code, done.stdout, done.stderr) == (0, "The hooks of the start have run.\n", "")
    assert (project / "log").read_text().split() == ["init", "start"] and not here.model.requests
    assert json.loads((project / "events").read_text())["trigger"] == "init"
    here.model.add({"text": "cleaned"})
    done = await here.run("-p", "go", "--maintenance", *given)
    assert done.stdout == "cleaned\n"
    assert (project / "log").read_text().split() == ["init", "start", "maintenance", "start"]


async def test_the_hooks_of_a_setup_run_once_although_the_worker_is_killed(host: WorkerHost, session: str) -> None:
    listed = [{"hooks": [{"type": "command", "command": "echo ran >> log; echo 'The database is new.'"}]}]
    laptop = await host.connect(session)
    given = SessionOptions(**{**vars(options({"hooks": {"Setup": listed}})), "setup": "init"})
    await laptop.attach(given)
    assert "The database is new." in json.dumps(((await laptop.sent("go", says("done")))["messages"])[0])
    await laptop.kill()
    again = await host.drive(session, given)
    await again.turn("and on", says("done", "msg_2"))
    assert (host.project / "log").read_text() == "ran\n"


def lines(path: Path) -> list[Json]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_hook_learns_of_another_directory_and_sets_variables_for_it(host: WorkerHost, session: str) -> None:
    (host.project / "sub").mkdir()
    command = 'cat >> moves; echo "export HERE=sub" >> "$CLAUDE_ENV_FILE"'
    laptop = await start(host, session, hooks(CwdChanged=("ignored", command)), allowed_tools=["Bash"])
    await laptop.begin("go", bash("cd sub"), bash('echo "[$HERE]"', "toolu_2", "msg_2"))
    assert "[sub]" in json.dumps((await laptop.tell(says("done", "msg_3")))["messages"][-1])
    await laptop.message("result")
    top = os.path.realpath(host.project)
    moves = [(each["old_cwd"], each["new_cwd"], each["cwd"]) for each in lines(host.project / "moves")]
    assert moves == [(top, f"{top}/sub", top)], "once"
    assert not list(host.state(session).glob("hook-env-*"))


async def test_a_hook_learns_that_a_file_has_changed_while_the_session_is_idle(host: WorkerHost, session: str) -> None:
    seen, other = host.project / "seen", host.project / "other.lock"
    paths = {"hookSpecificOutput": {"hookEventName": "SessionStart", "watchPaths": [str(other)]}}
    given = hooks(SessionStart=f"echo '{json.dumps(paths)}'")
    keep = [{"type": "command", "command": f"cat >> {seen}"}]
    given["hooks"]["FileChanged"] = [{"matcher": each, "hooks": keep} for each in (".envrc|.env", "other.lock")]
    (host.project / ".env").write_text("A=1")
    laptop = await start(host, session, given)
    await laptop.turn("go", says("done"))

    def events() -> list[tuple[str, str]]:
        return [(os.path.basename(each["file_path"]), each["event"]) for each in lines(seen)]

    async def after(change: Any, name: str, event: str) -> None:
        change()
        await until(lambda: (name, event) in events(), f"{event} of {name}")

    await settled(host.project / ".env", events)
    await after(lambda: (host.project / ".envrc").write_text("x"), ".envrc", "add")
    await after((host.project / ".env").unlink, ".env", "unlink")
    await after(lambda: other.write_text("x"), "other.lock", "add")
    (host.project / "unwatched").write_text("x")
    await after((host.project / ".envrc").unlink, ".envrc", "unlink")
    assert {name for name, _ in events()} == {".env", ".envrc", "other.lock"}


async def settled(path: Path, events: Any) -> None:
    """Return when the watch has begun: a change is seen."""
    count = 0

    def changed() -> bool:
        nonlocal count
        count += 1
        path.write_text(f"A={count}")
        return (path.name, "change") in events()

    await until(changed, "the first change")


async def test_a_hook_learns_which_instruction_files_the_model_gets(host: WorkerHost, session: str) -> None:
    (host.project / "CLAUDE.md").write_text("Be brief. @more.md")
    (host.project / "more.md").write_text("Be exact.")
    (host.project / "sub").mkdir()
    (host.project / "sub/CLAUDE.md").write_text("Be kind.")
    (host.project / "sub/code.py").write_text("pass")
    log = host.project / "log"
    laptop = await start(host, session, hooks(InstructionsLoaded=f"cat >> {log}"), allowed_tools=["Read"])
    await laptop.turn("go", calls(("r1", "Read", {"file_path": "sub/code.py"}), message_id="m1"), says("done", "m2"))
    await until(lambda: len(lines(log)) == 3, "three files")
    told = {os.path.relpath(each["file_path"], os.path.realpath(host.project)): each for each in lines(log)}
    reasons = {name: (each["load_reason"], each["memory_type"]) for name, each in told.items()}
    assert reasons == {
        "CLAUDE.md": ("session_start", "Project"),
        "more.md": ("include", "Project"),
        "sub/CLAUDE.md": ("nested_traversal", "Project"),
    }
    assert told["more.md"]["parent_file_path"] == told["CLAUDE.md"]["file_path"]


async def test_a_hook_sees_the_calls_of_an_answer_together_and_may_end_the_turn(host: WorkerHost, session: str) -> None:
    own = {"hookSpecificOutput": {"hookEventName": "PostToolBatch", "additionalContext": "mind the tests"}}
    command = f"cat >> batches; test -e enough && echo 'that will do' >&2 && exit 2; echo '{json.dumps(own)}'"
    laptop = await start(host, session, hooks(PostToolBatch=command), allowed_tools=["Bash"])
    await laptop.say("go")
    both = [("b1", "Bash", {"command": "echo one"}), ("b2", "Bash", {"command": "echo two"})]
    await laptop.tell(calls(*both, message_id="m1"))
    assert "mind the tests" in json.dumps((await laptop.tell(bash("touch enough", "b3", "m2")))["messages"][-1])
    result = await laptop.message("result")
    assert result["terminal_reason"] == "hook_stopped"
    first, second = (each["tool_calls"] for each in lines(host.project / "batches"))
    assert [(each["tool_use_id"], each["tool_name"], each["tool_input"]) for each in first] == both
    assert "one" in json.dumps(first[0]["tool_response"]) and [each["tool_use_id"] for each in second] == ["b3"]


async def test_a_hook_refuses_a_command_or_adds_to_what_it_says(host: WorkerHost, session: str) -> None:
    place = host.project / ".claude/commands"
    place.mkdir(parents=True)
    for name in ("deploy", "look"):
        (place / f"{name}.md").write_text(f"Please {name} $ARGUMENTS.")
    own = {"hookSpecificOutput": {"hookEventName": "UserPromptExpansion", "additionalContext": "in the staging area"}}
    values = hooks(UserPromptExpansion=("look", f"cat >> seen; echo '{json.dumps(own)}'"))
    refusing = {"type": "command", "command": "echo 'not on Fridays' >&2; exit 2"}
    values["hooks"]["UserPromptExpansion"].append({"matcher": "deploy", "hooks": [refusing]})
    laptop = await host.connect(session)
    layers = [{"source": "user", "path": "s.json", "values": values}]
    await laptop.attach(SessionOptions(settings=SettingsOption(layers=layers, trusted="*").to_json()))
    refused = await laptop.turn("/deploy now")
    assert "A hook refused /deploy: not on Fridays" in refused["result"] and refused["num_turns"] == 0
    await laptop.say("/look here")
    sent = json.dumps((await laptop.tell(says("done")))["messages"])
    assert "Please look here." in sent and "in the staging area" in sent and "deploy" not in sent
    (event,) = lines(host.project / "seen")
    command = {"command_name": "look", "command_args": "here", "command_source": "project"}
    assert event.items() >= {"expansion_type": "slash_command", **command}.items()
