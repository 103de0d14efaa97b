"""What a client sees of a session's turns: order, echoes, questions, controls, and a journal that cannot go on."""

from __future__ import annotations

import json

import pytest
from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import Laptop, WorkerHost, file_limit

from ccb.tunnel.wire.frames import Applied, Event, Input, Json
from ccb.tunnel.wire.session_options import SessionOptions


def messages(laptop: Laptop) -> list[Json]:
    return [frame.body for frame in laptop.frames if isinstance(frame, Event) and frame.kind == "message"]


async def test_an_echo_comes_after_init_under_the_clients_own_uuid_and_a_message_sent_again_is_not_run(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session, SessionOptions(replay_user_messages=True))
    await laptop.say("hello", "i1", uuid="u-1")
    await laptop.tell(says("hi"))
    await laptop.message("result")
    kinds = [(body["type"], body.get("subtype") or body.get("isReplay") or "") for body in messages(laptop)]
    assert kinds == [("system", "init"), ("user", True), ("assistant", ""), ("result", "success")]
    assert messages(laptop)[1]["uuid"] == "u-1"
    await laptop.say("hello", "i2", uuid="u-1")
    assert (await laptop.message("user"))["uuid"] == "u-1"
    await laptop.say("other", "i3", uuid="u-2")
    request = await laptop.tell(says("ho", "msg_2"))
    assert [block["text"] for block in request["messages"][-1]["content"]] == ["other"]
    await laptop.message("result")


async def test_an_interrupt_withdraws_the_question_before_it_is_answered(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(permission_prompts="stdio"))
    await laptop.begin("go", calls(("toolu_1", "Bash", {"command": "touch made"})))
    asked = await laptop.message("control_request")
    await laptop.say("later", "next", uuid="u-later")
    interrupt = await laptop.control("interrupt")
    await laptop.message("result")
    after = messages(laptop)[messages(laptop).index(asked) + 1 :]
    assert [body["type"] for body in after][:3] == ["control_cancel_request", "control_response", "user"]
    assert after[0]["request_id"] == asked["request_id"]
    answered = after[1]["response"]
    assert (answered["request_id"], answered["response"]) == (interrupt, {"still_queued": ["u-later"]})
    await laptop.tell(says("the queued one runs", "msg_2"))
    assert (await laptop.message("result"))["result"] == "the queued one runs"
    assert not (host.project / "made").exists()


async def test_the_context_is_counted_as_the_model_counted_it(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    before = (await laptop.request("get_context_usage"))["response"]
    assert 0 < before["totalTokens"] < before["maxTokens"], "an estimate of what the first turn will send"
    result = await laptop.turn("go", says("done"))
    await laptop.control("get_context_usage")
    opened, _ = await laptop.call()
    assert opened.path == "/v1/messages/count_tokens"
    await laptop.answer(opened, b"{}", status=404)  # this provider does not count
    usage = (await laptop.message("control_response"))["response"]["response"]
    spent = sum(result["usage"][name] for name in ("input_tokens", "output_tokens"))
    assert usage["maxTokens"] > usage["totalTokens"] >= spent > 0


async def test_a_prompt_that_finds_no_room_is_told_with_what_to_do_and_may_be_sent_again(
    host: WorkerHost, session: str
) -> None:
    with file_limit(60_000):
        laptop = await host.drive(session, SessionOptions(host="devbox"))
    await laptop.say("w" * 100_000)
    reason, hint = (await laptop.message("result"))["errors"]
    assert "journal cannot be written" in reason and str(host.state(session)) in reason
    assert hint == "This prompt was not taken: make room (`ccb gc devbox`), then send it again."
    await laptop.say("small")
    request = await laptop.tell(says("room for this"))
    assert [message["role"] for message in request["messages"]] == ["user"]
    assert "small" in json.dumps(request) and "wwww" not in json.dumps(request)
    assert (await laptop.message("result"))["result"] == "room for this"


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"type": "user"},
        {"type": "user", "message": 7},
        {"type": "user", "message": {"content": [None, 3, {"type": "text"}]}, "uuid": 5},
        {"type": "control_request"},
        {"type": "control_request", "request_id": 5, "request": {"subtype": ["x"]}},
        {"type": "control_request", "request_id": "r", "request": {"subtype": "set_model", "model": {}}},
        {"type": "control_request", "request_id": "r", "request": {"subtype": "set_permission_mode", "mode": {}}},
        {"type": "control_response"},
        {"type": "control_response", "response": {"request_id": None}},
        {"type": ["user"]},
    ],
)
@pytest.mark.quick_rows(4)
async def test_whatever_a_client_sends_the_session_goes_on(host: WorkerHost, session: str, body: Json) -> None:
    laptop = await host.drive(session)
    await laptop.send(Input(laptop.epoch, "odd", body))
    await laptop.next(Applied, lambda frame: frame.id == "odd")
    assert (await laptop.request("nothing_we_know"))["error"] == "Unsupported control request subtype: nothing_we_know"
