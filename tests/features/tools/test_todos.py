"""The todo list: TodoWrite and the Task tools."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.remote.agent_kit import Reply, calls, says
from tests.remote.subagents.delegation import MAIN, ONE, delegation, task
from tests.remote.worker_process import Laptop, WorkerHost
from tests.support.model.model_script import Json

pytestmark = pytest.mark.programs


def item(text: str, status: str) -> Json:
    return {"content": text, "status": status, "activeForm": f"Doing {text}"}


async def reads(laptop: Laptop, call_id: str) -> Json:
    """Return what clients are told of a call, once it has come."""
    while True:
        message = await laptop.message("user")
        if message["message"]["content"][0].get("tool_use_id") == call_id:
            return dict(message["tool_use_result"])


async def test_the_list_survives_a_restart_and_two_in_progress_are_refused(host: WorkerHost, session: str) -> None:
    def writes(call_id: str, *todos: Json) -> Reply:
        return calls((call_id, "TodoWrite", {"todos": list(todos)}), message_id=f"msg_{call_id}")

    written = [item("Read", "completed"), item("Fix", "in_progress"), item("Test", "pending")]
    first = await host.connect(session)
    hello = await first.attach()
    await first.turn("go", writes("t1", *written), says("done", "msg_1"))
    await first.drop()
    await host.kill_worker(hello.pid)

    second = await host.drive(session)
    await second.begin("go on", writes("t2", item("Fix", "in_progress"), item("Test", "in_progress")))
    refused = (await second.tell(writes("t3", item("Fix", "completed"))))["messages"][-1]
    assert "only one may be" in refused["content"][0]["content"]
    assert (await reads(second, "t3"))["oldTodos"] == written
    await second.tell(says("done", "msg_2"))
    await second.message("result")
    points = (await second.request("rewind_points"))["response"]["points"]
    await second.request("rewind_conversation", user_message_id=points[0]["id"])
    await second.begin("go on in another way", writes("t4", item("Other", "pending")))
    assert (await reads(second, "t4"))["oldTodos"] == written, "the list of that place counts again"


async def test_task_tools_change_items_of_one_list_that_survives_a_restart_and_that_agents_share(
    tmp_path: Path,
) -> None:
    def turn(number: int, *made: tuple[str, str, Json]) -> list[Reply]:
        return [calls(*made, message_id=f"m{number}"), says("done", f"d{number}")]

    created = [{"subject": "Read", "description": "All of it"}, {"subject": "Fix", "description": ""}]
    blocked = {"taskId": "2", "status": "in_progress", "activeForm": "Fixing", "addBlockedBy": ["1"], "owner": "me"}
    first = [
        calls(*((f"c{at}", "TaskCreate", each) for at, each in enumerate(created, 1)), message_id="m0"),
        calls(
            ("u1", "TaskUpdate", blocked), ("l1", "TaskList", {}), ("g1", "TaskGet", {"taskId": "2"}), message_id="m"
        ),
        *turn(
            1,
            ("u2", "TaskUpdate", {"taskId": "9", "status": "completed"}),
            ("u4", "TaskUpdate", {"taskId": "2", "metadata": {"log": "x" * 10_000}}),
            task(ONE, "read it"),
        ),
    ]
    its = turn(2, ("s1", "TaskUpdate", {"taskId": "1", "status": "completed"}), ("s2", "TodoWrite", {"todos": []}))
    async with delegation(tmp_path, {MAIN: first, "read it": its}) as d:
        await d.turn(MAIN + "go")
        told = {each: (d.result_text(each), d.results()[each]["tool_use_result"]) for each in d.results()}
        made = {"task": {"id": "2", "subject": "Fix", "description": ""}}
        assert told["c2"] == ("Task #2 created successfully: Fix", made)
        text, public = told["u1"]
        assert text == "Updated task #2 activeForm, status, owner, blockedBy"
        assert public["statusChange"] == {"from": "pending", "to": "in_progress"} and public["success"] is True
        assert told["l1"][0] == "#1 [pending] Read\n#2 [in_progress] Fix (me) [blocked by #1]"
        assert [each["blockedBy"] for each in told["l1"][1]["tasks"]] == [[], ["1"]]
        assert told["g1"][1]["task"]["blockedBy"] == ["1"] and "Blocked by: #1" in told["g1"][0]
        assert told["u2"][0] == "Task #9 not found" and told["u2"][1]["success"] is False
        assert "10,000 characters" in d.result_text("u4") and d.results()["u4"]["message"]["content"][0]["is_error"]
        assert "s1" in d.results(ONE) and "No such tool" in d.result_text("s2", ONE)
    removed = ("u3", "TaskUpdate", {"taskId": "2", "status": "deleted"})
    added = ("c3", "TaskCreate", {"subject": "Test", "description": ""})
    again = [calls(added, removed, ("l2", "TaskList", {}), message_id="m5"), says("done", "d5")]
    async with delegation(tmp_path, {MAIN: again}) as d:
        await d.turn(MAIN + "go on")
        assert d.result_text("l2") == "#1 [completed] Read\n#3 [pending] Test"
        shown = d.session.snapshot(d.journal.seq)["todos"]
        assert [(each["id"], each["content"], each["status"]) for each in shown] == [
            ("1", "Read", "completed"),
            ("3", "Test", "pending"),
        ]


BOTH = ["TodoWrite", "TaskCreate", "TaskUpdate", "TaskGet", "TaskList"]


@pytest.mark.parametrize(
    ("options", "offered"),
    [
        ({}, BOTH[1:]),
        ({"model": "openai/gpt-5"}, BOTH[:1]),
        ({"model": "openai/gpt-5", "task_tools": True}, BOTH[1:]),
        ({"task_tools": False}, BOTH[:1]),
        ({"allowed_tools": ["Bash(ls)", "TodoWrite"]}, BOTH[:1]),
        ({"tools": ["Read", "TodoWrite"]}, BOTH[:1]),
        ({"tools": BOTH}, BOTH),
    ],
)
async def test_the_model_is_offered_the_tools_for_its_list_that_client_or_model_expects(
    tmp_path: Path, options: Json, offered: list[str]
) -> None:
    async with delegation(tmp_path, {MAIN: [says("done"), says("again", "m2")]}, **options) as d:
        for _ in range(2):
            await d.turn(MAIN + "go")
        for request in d.model.requests[MAIN]:
            assert [tool["name"] for tool in request["tools"] if tool["name"] in BOTH] == offered
