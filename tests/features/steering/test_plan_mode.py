"""Plan mode on a real worker: only the plan file may change, and the person's answer decides how the work begins."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import Laptop, WorkerHost
from tests.support.model.model_script import Json

from ccb.tunnel.wire.session_options import SessionOptions

pytestmark = pytest.mark.programs

PLAN = "# Move the cache\n\n1. Write `a.txt`"


def person(mode: str = "plan") -> SessionOptions:
    return SessionOptions(permission_prompts="stdio", permission_mode=mode, client="ann@laptop pid 1 aa")


async def model(laptop: Laptop, *tools: tuple[str, str, Json]) -> list[Json]:
    """Answer the next model call with tool calls, or with text; the messages that it was sent."""
    reply = calls(*tools, message_id=uuid.uuid4().hex) if tools else says("done", uuid.uuid4().hex)
    messages: list[Json] = (await laptop.tell(reply))["messages"]
    return messages


async def answer(laptop: Laptop, **payload: Any) -> Json:
    """Answer the next question to the person, and return it."""
    asked = await laptop.message("control_request")
    await laptop.reply(asked["request_id"], payload)
    request: Json = asked["request"]
    return request


def last_result(messages: list[Json]) -> Json:
    results: list[Json] = [block for block in messages[-1]["content"] if block["type"] == "tool_result"]
    return results[-1]


def reminders(messages: list[Json]) -> str:
    return "\n".join(block["text"] for block in messages[-1]["content"] if block["type"] == "text")


async def test_only_the_plan_file_is_written_and_an_approved_plan_begins(host: WorkerHost, session: str) -> None:
    plan = host.state(session) / "plan.md"
    laptop = await host.drive(session, person())
    await laptop.say("plan it")
    told = reminders(await model(laptop, ("w0", "Write", {"file_path": str(plan), "content": PLAN})))
    assert "Plan mode is on" in told and str(plan) in told and "ExitPlanMode" in told
    await model(laptop, ("w1", "Write", {"file_path": str(host.project / "a.txt"), "content": "x"}))
    assert plan.read_text() == PLAN, "nobody was asked for it"
    await answer(laptop, behavior="deny", message="Not yet.")
    await model(laptop, ("b1", "Bash", {"command": "touch b.txt"}))
    await answer(laptop, behavior="deny", message="Not yet.")
    wide = {"allowedPrompts": [{"tool": "Bash", "prompt": "make *"}]}
    answered = await model(laptop, ("r1", "Read", {"file_path": str(plan)}), ("e0", "ExitPlanMode", wide))
    assert answered[-1]["content"][0]["tool_use_id"] == "b1"
    wanted = {"allowedPrompts": [{"tool": "Bash", "prompt": "touch c.txt"}]}
    refused = last_result(await model(laptop, ("e1", "ExitPlanMode", wanted)))["content"]
    assert "without a star. This is not: 'make *'" in refused
    asked = await laptop.message("control_request")
    assert asked["request"]["input"] == {"plan": PLAN, "planFilePath": str(plan), **wanted}
    assert asked["request"]["requires_user_interaction"] is True
    accept, _, rule = asked["request"]["permission_suggestions"]
    assert (rule["type"], rule["rules"]) == ("addRules", [{"toolName": "Bash", "ruleContent": "touch c.txt"}])
    changed = {**asked["request"]["input"], "plan": PLAN + "\n2. Test", "planWasEdited": True}
    allows = {"behavior": "allow", "updatedInput": changed, "updatedPermissions": [accept, rule]}
    await laptop.reply(asked["request_id"], allows)
    assert (await laptop.message("system", "status"))["permissionMode"] == "acceptEdits"
    result = last_result(
        await model(laptop, ("w2", "Write", {"file_path": str(host.project / "a.txt"), "content": "x"}))
    )
    assert result["content"].startswith("The user has approved the plan.") and "2. Test" in result["content"]
    assert plan.read_text() == PLAN + "\n2. Test\n", "the person has changed the plan"
    await model(laptop, ("b2", "Bash", {"command": "touch c.txt"}))
    await model(laptop)
    assert (host.project / "a.txt").read_text() == "x" and not (host.project / "b.txt").exists()
    assert (host.project / "c.txt").exists(), "the person has allowed it with the plan"
    await laptop.message("result")


async def test_plan_mode_and_the_mode_before_it_survive_a_restart(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, person("acceptEdits"))
    await first.say("plan it")
    await model(first, ("e1", "EnterPlanMode", {}))
    await answer(first, behavior="allow")
    assert (await first.message("system", "status"))["permissionMode"] == "plan"
    assert "Plan mode is on" in reminders(await model(first))
    await first.message("result")
    await first.drop()
    await host.kill_worker(first.hello.pid)

    second = await host.drive(session, SessionOptions(permission_prompts="stdio", client="ann@laptop pid 1 aa"))
    await second.say("go on")
    assert "Plan mode is on" in reminders(await model(second, ("x1", "ExitPlanMode", {"plan": PLAN})))
    asked = await answer(second, behavior="deny", message="The user wants to go on planning. Say more.")
    assert asked["input"]["plan"] == PLAN
    assert last_result(await model(second, ("x2", "ExitPlanMode", {"plan": PLAN})))["is_error"]
    await answer(second, behavior="allow")
    assert (await second.message("system", "status"))["permissionMode"] == "acceptEdits"
    assert "Plan mode is over" in reminders(await model(second))
    await second.message("result")
    assert (host.state(session) / "plan.md").read_text() == PLAN + "\n"


async def test_where_nobody_can_be_asked_the_plan_is_the_answer(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(permission_mode="plan"))
    await laptop.say("plan it")
    told = reminders(await model(laptop, ("x1", "ExitPlanMode", {"plan": PLAN}), ("b1", "Bash", {"command": "ls"})))
    assert "give it as your answer" in told and "ExitPlanMode" not in told
    results = [block for block in (await model(laptop))[-1]["content"] if block["type"] == "tool_result"]
    by_call = {each["tool_use_id"]: each for each in results}
    assert by_call["x1"]["is_error"] and "Give the plan as your answer" in by_call["x1"]["content"]
    assert "is_error" not in by_call["b1"], "a command that only reads runs"
    await laptop.message("result")


async def test_a_mode_that_covers_a_waiting_call_answers_it(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, person("default"))
    await laptop.say("go")
    first, second = (("Write", {"file_path": str(host.project / name), "content": "x"}) for name in "ab")
    await model(laptop, ("w1", *first), ("w2", *second), ("b1", "Bash", {"command": "make c.txt"}))
    asked = await laptop.message("control_request")
    assert asked["request"]["tool_name"] == "Write"
    await laptop.control("set_permission_mode", mode="acceptEdits")
    assert (await laptop.message("control_cancel_request"))["request_id"] == asked["request_id"]
    assert (await answer(laptop, behavior="deny", message="No."))["tool_name"] == "Bash", "edits alone are covered"
    await model(laptop)
    assert [(host.project / name).exists() for name in ("a", "b", "c.txt")] == [True, True, False]


async def test_a_cage_that_covers_a_waiting_command_answers_it_and_outlives_the_worker(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session, person("default"))
    assert "set_sandbox" in laptop.hello.capabilities
    wrong = await laptop.request("set_sandbox", sandbox="none")
    assert wrong["subtype"] == "error" and "read-only, workspace, off" in wrong["error"]
    await laptop.say("go")
    await model(laptop, ("b1", "Bash", {"command": "python3 -c \"open('made', 'w')\""}))
    asked = await laptop.message("control_request")
    assert asked["request"]["can_be_caged"] is True
    chosen = await laptop.request("set_sandbox", sandbox="workspace")
    assert chosen["response"]["sandbox"] == "workspace cage"
    assert (await laptop.message("control_cancel_request"))["request_id"] == asked["request_id"]
    await model(laptop)
    await laptop.message("result")
    assert (host.project / "made").exists()
    await host.kill_worker(laptop.hello.pid)
    laptop = await host.drive(session)
    await laptop.say("go")
    await model(laptop, ("b2", "Bash", {"command": "make > again"}))
    await model(laptop)
    assert (host.project / "again").exists(), "nobody was asked"
    back = await laptop.request("set_sandbox", sandbox="read-only")
    assert back["response"]["sandbox"] == "read-only cage"


async def test_an_answer_puts_the_call_and_later_ones_into_the_cage(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, person("default"))
    await laptop.say("go")
    await model(laptop, ("b1", "Bash", {"command": "make > made; touch ../outside"}))
    in_cage = {"type": "setSandbox", "sandbox": "workspace", "destination": "session"}
    off = {**in_cage, "sandbox": "off"}
    await answer(laptop, behavior="allow", updatedPermissions=[off])
    assert (await answer(laptop, behavior="allow", updatedPermissions=[in_cage]))["can_be_caged"] is True
    assert (await laptop.message("system", "status"))["sandbox"] == "workspace cage"
    await model(laptop, ("b2", "Bash", {"command": "make > again"}))
    await model(laptop)
    assert (host.project / "made").exists() and (host.project / "again").exists()
    assert not (host.project.parent / "outside").exists()


async def test_one_answer_lets_run_what_operators_read_from_then_on(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, person("default"))
    await laptop.say("go")
    await model(laptop, ("b1", "Bash", {"command": "docker ps"}))
    rules = [{"toolName": "Bash", "ruleContent": "reads:services"}]
    reading = {"type": "addRules", "rules": rules, "behavior": "allow", "destination": "localSettings"}
    assert (await answer(laptop, behavior="allow", updatedPermissions=[reading]))["reads_services"] is True
    await model(laptop, ("b2", "Bash", {"command": "kubectl get pods | head -3; systemctl is-active docker"}))
    await model(laptop, ("b3", "Bash", {"command": "kubectl get secret db -o yaml"}))
    assert "reads_services" not in await answer(laptop, behavior="deny", message="No.")
    await model(laptop)


async def test_an_answer_with_a_cage_also_counts_for_the_input_that_it_changes(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, person("default"))
    await laptop.say("go")
    await model(laptop, ("b1", "Bash", {"command": "make > made"}))
    in_cage = {"type": "setSandbox", "sandbox": "workspace", "destination": "session"}
    changed = {"command": "make > changed"}
    await answer(laptop, behavior="allow", updatedInput=changed, updatedPermissions=[in_cage])
    await model(laptop)
    assert [(host.project / name).exists() for name in ("made", "changed")] == [False, True]
