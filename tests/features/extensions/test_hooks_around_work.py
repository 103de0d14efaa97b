"""Hooks about what surrounds the work: directories, files that change, instruction files, batches, commands."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.features.extensions.test_hooks import bash, hooks, start
from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import WorkerHost, until

from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption

Json = dict[str, Any]


def lines(path: Path) -> list[Json]:
    """The events that a hook has appended to a file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


async def test_a_hook_learns_that_the_directory_of_the_shell_has_changed_and_sets_variables_for_it(
    host: WorkerHost, session: str
) -> None:
    (host.project / "sub").mkdir()
    command = 'cat >> moves; echo "export HERE=sub" >> "$CLAUDE_ENV_FILE"'
    laptop = await start(host, session, hooks(CwdChanged=("ignored", command)), allowed_tools=["Bash"])
    await laptop.say("go")
    await laptop.tell(bash("cd sub"))
    await laptop.tell(bash('echo "[$HERE]"', "toolu_2", "msg_2"))
    assert "[sub]" in json.dumps((await laptop.tell(says("done", "msg_3")))["messages"][-1])
    await laptop.message("result")
    top = os.path.realpath(host.project)
    moves = [(each["old_cwd"], each["new_cwd"], each["cwd"]) for each in lines(host.project / "moves")]
    assert moves == [(top, f"{top}/sub", top)], "once"
    assert not list(host.state(session).glob("hook-env-*"))


async def test_a_hook_learns_that_a_watched_file_has_changed_also_while_the_session_is_idle(
    host: WorkerHost, session: str
) -> None:
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
