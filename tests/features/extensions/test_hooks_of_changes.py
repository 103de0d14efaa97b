"""Hooks of what changes in a session: todos, directories, the model, settings, and the worktrees of agents."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.features.extensions.test_hook_events import answers, settings
from tests.remote.agent_kit import calls, says
from tests.remote.subagents.delegation import MAIN, Delegation, delegates, delegation, task

Json = dict[str, Any]

ONE = "toolu_one"
KEEP = 'cat >> "$CLAUDE_PROJECT_DIR/seen"; echo >> "$CLAUDE_PROJECT_DIR/seen"'


def seen(directory: Path) -> list[Json]:
    """The events that hooks have kept, in order."""
    path = directory / "project/seen"
    return [json.loads(line) for line in path.read_text().splitlines() if line] if path.exists() else []


async def asked(d: Delegation, subtype: str, **fields: Any) -> Json:
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
        created = [(each["hook_event_name"], each["task_id"], each["task_subject"]) for each in seen(tmp_path)]
        assert created == [("TaskCreated", "1", "Test"), ("TaskCreated", "2", "Ship")]
        assert "has been updated" in d.result_text("t2")
        assert d.result_text("t3") == "TaskCompleted hook refused 'Ship': the tests are red"
        assert [each["status"] for each in d.session.agent.config.context.todos.items] == ["completed", "in_progress"]


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
        assert (await asked(d, "reload_plugins"))["subtype"] == "success"
        assert (await asked(d, "set_model", model="opus"))["error"] == "a hook refused it: too dear"
        assert "sonnet" in d.session.agent.model
        assert (await asked(d, "set_model", model="haiku"))["subtype"] == "success"
        assert "haiku" in d.session.agent.model
        await d.turn("and on")
        assert "You are another model now." in json.dumps(d.model.requests[MAIN][-1]["messages"][-1])
        assert d.session.hooks is not None
        await asyncio.gather(*d.session.hooks._later)
    found = sorted((each["hook_event_name"], each["source"]) for each in seen(tmp_path))
    assert found == [("ConfigChange", "project_settings"), ("DirectoryAdded", "permission_update")]
    config, directory = sorted(seen(tmp_path), key=lambda each: each["hook_event_name"])
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
    assert [each["worktree_path"] for each in seen(tmp_path)] == [str(tree)]

    broken = settings({"WorktreeCreate": "echo no-path"})
    scripts = {MAIN: delegates(task(ONE, "look", isolation="worktree")), "look": []}
    (tmp_path / "other").mkdir()
    async with delegation(tmp_path / "other", scripts, settings=broken) as d:
        await d.turn(MAIN + "go")
        assert "the WorktreeCreate hook has made none: it named no directory: 'no-path'" in d.result_text(ONE)
