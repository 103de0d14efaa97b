"""Agents of others that break their protocol, by mistake or on purpose: what clients get stays whole."""

from __future__ import annotations

import json

from tests.remote.agent_kit import Json
from tests.remote.foreign.test_foreign_agent import Foreign, blocks, turn
from tests.remote.worker_process import WorkerHost

_OPTIONS = [{"optionId": each, "kind": each, "name": each} for each in ("allow_once", "reject_once")]


def update(update_kind: str, **fields: object) -> str:
    return "update:" + json.dumps({"sessionUpdate": update_kind, **fields}, separators=(",", ":"))


def call(number: str, **fields: object) -> str:
    return update("tool_call", toolCallId=number, kind="execute", title="make", rawInput={"command": "make"}, **fields)


def asks(number: str, **fields: object) -> str:
    made = {"toolCallId": number, "kind": "execute", "rawInput": {"command": "make"}, **fields}
    return "asks:" + json.dumps({"toolCall": made, "options": _OPTIONS}, separators=(",", ":"))


def answered_once(said: list[Json]) -> bool:
    """Whether each tool_use has exactly one tool_result."""
    uses = [block["id"] for block in blocks(said) if block["type"] == "tool_use"]
    results = [block["tool_use_id"] for block in blocks(said) if block["type"] == "tool_result"]
    return sorted(uses) == sorted(results) and len(set(uses)) == len(uses)


async def test_a_call_that_ends_while_its_question_is_open_has_one_result(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say(f"{asks('a')} {asks('a')} ask {update('tool_call_update', toolCallId='a', status='completed')}")
    for _ in range(3):
        asked = await laptop.message("control_request")
        await laptop.reply(asked["request_id"], {"behavior": "deny", "message": "no"})
    await laptop.message("result")
    assert answered_once(foreign.said()), foreign.said()
    await laptop.end()


async def test_a_question_ends_with_its_turn(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say(f"{asks('a')} say:done")
    asked = await laptop.message("control_request")
    assert (await laptop.message("control_cancel_request"))["request_id"] == asked["request_id"]
    assert (await laptop.message("result"))["result"] == "done"
    assert answered_once(foreign.said())
    await laptop.end()


async def test_nobody_is_asked_in_a_turn_that_was_interrupted(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say(f"wait {asks('a')} say:done")
    await laptop.message("assistant")
    await laptop.request("interrupt")
    await laptop.message("result")
    assert not [each for each in foreign.said() if each["type"] == "control_request"]
    assert answered_once(foreign.said())
    await laptop.end()


async def test_a_turn_that_the_agent_cancels_itself_was_not_interrupted_by_the_person(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    result = await turn(laptop, "say:hm ends:cancelled")
    assert "by user" not in json.dumps(result), result
    await laptop.end()


async def test_a_mode_that_the_agent_takes_by_itself_is_told(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await turn(laptop, f"{update('current_mode_update', currentModeId='yolo')} say:done")
    assert "yolo" in json.dumps(foreign.said())
    await laptop.end()


async def test_a_line_over_the_limit_ends_the_agent_and_says_why(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    result = await turn(laptop, "huge")
    assert "was stopped: " in json.dumps(result["errors"]), result
    assert (await turn(laptop, "say:again"))["result"] == "again"
    await laptop.end()


async def test_a_call_that_stays_open_beside_many_others_has_one_result(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    opened = " ".join(call(each, status="in_progress") for each in ("a", "b"))
    ended = update("tool_call_update", toolCallId="a", status="completed")
    assert (await turn(laptop, f"{opened} {'edit ' * 15} {ended} {ended} say:done"))["result"] == "done"
    assert answered_once(foreign.said())
    await laptop.end()


async def test_an_error_with_the_number_of_an_ended_agent_ends_the_turn_of_one_that_lives(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    result = await turn(laptop, "fails:-32099")
    assert result["is_error"] and "refused session/prompt: no" in result["result"]
    assert (await turn(laptop, "say:again"))["result"] == "again"
    await laptop.end()
