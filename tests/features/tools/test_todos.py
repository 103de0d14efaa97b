"""TodoWrite on a real worker."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from tests.remote.agent_kit import calls, content, says
from tests.remote.worker_process import Laptop, WorkerHost

Json = dict[str, Any]

pytestmark = pytest.mark.programs


def item(text: str, status: str) -> Json:
    return {"content": text, "status": status, "activeForm": f"Doing {text}"}


async def model(laptop: Laptop, *tools: tuple[str, str, Json]) -> Json:
    """Answer the next model call with tool calls, or with text; the request."""
    opened, body = await laptop.call()
    reply = calls(*tools, message_id=uuid.uuid4().hex) if tools else says("done", uuid.uuid4().hex)
    await laptop.answer(opened, content(reply))
    request: Json = json.loads(body)
    return request


async def test_the_list_survives_a_restart_and_two_items_in_progress_are_refused(
    host: WorkerHost, session: str
) -> None:
    written = [item("Read", "completed"), item("Fix", "in_progress"), item("Test", "pending")]
    first = await host.connect(session)
    hello = await first.attach()
    await first.say("go")
    await model(first, ("t1", "TodoWrite", {"todos": written}))
    await model(first)
    await first.message("result")
    await first.drop()
    await host.kill_worker(hello.pid)

    second = await host.drive(session)
    await second.say("go on")
    await model(second, ("t2", "TodoWrite", {"todos": [item("Fix", "in_progress"), item("Test", "in_progress")]}))
    refused = (await model(second, ("t3", "TodoWrite", {"todos": [item("Fix", "completed")]})))["messages"][-1]
    assert "only one may be" in refused["content"][0]["content"]
    result = await second.message("user")
    while result["message"]["content"][0]["tool_use_id"] != "t3":
        result = await second.message("user")
    assert result["tool_use_result"]["oldTodos"] == written
    await model(second)
    await second.message("result")

    await second.control("rewind_points")
    points = (await second.message("control_response"))["response"]["response"]["points"]
    await second.control("rewind_conversation", user_message_id=points[0]["id"])
    await second.message("control_response")
    await second.say("go on in another way")
    await model(second, ("t4", "TodoWrite", {"todos": [item("Other", "pending")]}))
    again = await second.message("user")
    while again["message"]["content"][0].get("tool_use_id") != "t4":
        again = await second.message("user")
    assert again["tool_use_result"]["oldTodos"] == written, "the list of that place counts again"
    await model(second)
    await second.message("result")
    await second.stop()
