"""AskUserQuestion: a real worker asks, whoever drives answers, and the model reads the answers."""

from __future__ import annotations

import uuid

import pytest
from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import Laptop, WorkerHost
from tests.support.model.model_script import Json

from ccb.tunnel.wire.frames import Event
from ccb.tunnel.wire.session_options import SessionOptions

pytestmark = pytest.mark.programs

STORES = [{"label": "SQLite", "description": "A file"}, {"label": "Redis", "description": "A server"}]
CHECKS = [{"label": "Unit", "description": "Fast"}, {"label": "Lint", "description": "Faster"}]
STORE: Json = {"question": "Which store?", "header": "Store", "options": STORES}
CHECK: Json = {"question": "Which checks?", "header": "Checks", "multiSelect": True, "options": CHECKS}
ASKED: Json = {"questions": [STORE, CHECK]}
PERSON = SessionOptions(permission_prompts="stdio", permission_mode="acceptEdits", client="ann@laptop pid 1 aa")


async def ask(laptop: Laptop, asked: Json = ASKED) -> Json:
    """Let the model ask; the request to the person."""
    await laptop.say("go")
    request = await laptop.tell(calls(("q1", "AskUserQuestion", asked)))
    assert "AskUserQuestion" in [tool["name"] for tool in request["tools"]]
    return await laptop.message("control_request")


async def result_of(laptop: Laptop) -> Json:
    """The tool result in the next model call, which ends the turn."""
    body = await laptop.tell(says("done", "m2"))
    await laptop.message("result")
    block: Json = body["messages"][-1]["content"][0]
    return block


async def test_the_driver_answers_with_updated_input_also_after_a_cut_and_a_take_over(host: WorkerHost) -> None:
    session = str(uuid.uuid4())
    first = await host.drive(session, PERSON)
    asked = await ask(first, {**ASKED, "answers": {"Which store?": "what the model made up"}})
    request = asked["request"]
    assert request["subtype"] == "can_use_tool" and request["tool_name"] == "AskUserQuestion"
    assert request["requires_user_interaction"] is True
    assert request["input"] == ASKED, "answers come from the person only"
    await first.drop()

    second = await host.drive(session, SessionOptions(permission_prompts="stdio", client="bob@desk pid 2 bb"))
    same = await second.message("control_request")
    assert same == asked
    given = {"Which store?": "SQLite", "Which checks?": ["Unit", "Lint"]}
    await second.reply(asked["request_id"], {"behavior": "allow", "updatedInput": {**ASKED, "answers": given}})
    result = await result_of(second)
    assert result["content"] == "The user has answered:\nWhich store? → SQLite\nWhich checks? → Unit, Lint"
    assert "is_error" not in result
    ran = [each for each in second.events if each.kind == "tool_start"]
    assert len(ran) == 1


async def test_a_declined_question_tells_the_model_and_the_turn_goes_on(host: WorkerHost) -> None:
    laptop = await host.drive(str(uuid.uuid4()), PERSON)
    asked = await ask(laptop)
    await laptop.reply(asked["request_id"], {"behavior": "deny", "message": "Later."})
    result = await result_of(laptop)
    assert (result["content"], result["is_error"]) == ("Later.", True)


async def test_a_restarted_worker_withdraws_the_question_and_closes_the_call(host: WorkerHost) -> None:
    session = str(uuid.uuid4())
    first = await host.drive(session, PERSON)
    asked = await ask(first)
    await first.drop()
    await host.kill_worker(first.hello.pid)
    second = await host.drive(session, PERSON)
    await second.next(
        Event, lambda event: event.body.get("request_id") == asked["request_id"] and "cancel" in str(event.body)
    )
    history = (await second.sent("again", says("done", "m2")))["messages"]
    results = [block for message in history for block in message["content"] if block["type"] == "tool_result"]
    assert [each["tool_use_id"] for each in results] == ["q1"] and results[0]["is_error"]


async def test_where_nobody_can_be_asked_the_tool_is_not_offered_and_a_call_is_told_so(host: WorkerHost) -> None:
    laptop = await host.drive(str(uuid.uuid4()))
    await laptop.say("go")
    request = await laptop.tell(calls(("q1", "AskUserQuestion", ASKED)))
    assert "AskUserQuestion" not in [tool["name"] for tool in request["tools"]]
    result = await result_of(laptop)
    assert result["is_error"] and result["content"].startswith("Nobody can be asked in this session.")
