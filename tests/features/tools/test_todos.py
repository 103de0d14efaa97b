"""TodoWrite on a real worker."""

from __future__ import annotations

import pytest
from tests.remote.agent_kit import Reply, calls, says
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
