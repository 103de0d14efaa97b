"""The request broker: who is asked, what becomes of an unanswered request, and that one answer counts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from typing import Any, cast
from unittest.mock import MagicMock

import pytest

from ccb.remote.session.recovery import Recovered
from ccb.remote.session.request_broker import OpenRequests, RequestBroker, RequestOutcome
from ccb.remote.session.request_handlers import register_client_requests
from ccb.remote.session_store.journal import NotKept
from ccb.remote.session_store.session_log import SessionLog
from ccb.tunnel.wire.control_protocol import (
    CAN_USE_TOOL,
    INTERRUPT,
    Answer,
    AnsweredBy,
    Failure,
    Request,
    RequestFailed,
    RequestKind,
    RequestMoot,
    RequestRefused,
    Success,
    ToolApproval,
    ToolPermission,
    answer_in,
    client_kind,
    payload_of,
    public_answer,
)
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Content, InputRecord, MessageRecord, record_of, replay
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, parse_message

BEEP: RequestKind[Json, Json] = RequestKind(
    "beep", AnsweredBy.LAPTOP, payload_of, write=dict, journalled=False, deadline_s=30
)
DEPLOY: RequestKind[Json, Json] = RequestKind("deploy", AnsweredBy.LAPTOP, payload_of, write=dict)
APPROVAL = ToolApproval("Bash", "Bash", {"command": "make"}, "toolu_1")


@dataclass
class Out:
    """The journal and the driver, as a broker sees them."""

    messages: list[Json] = field(default_factory=list)
    facts: list[tuple[str, Json]] = field(default_factory=list)
    told: list[tuple[str, Json]] = field(default_factory=list)  # what went to the driver only
    news: asyncio.Event = field(default_factory=asyncio.Event)
    requests: OpenRequests = field(default_factory=OpenRequests)

    def emit(self, content: Content, agent_id: str = "") -> None:
        record = record_of(content, agent_id=agent_id)
        self.requests.apply(record)
        if isinstance(content, MessageRecord):
            self.messages.append(record.body)
            self.news.set()
        else:
            self.facts.append((record.kind, record.body))

    def tell_driver(self, key: str, body: Json) -> None:
        self.told.append((key, body))
        self.news.set()

    def changed(self) -> None:
        pass

    async def commit(self) -> None:
        pass

    async def next(self) -> Json:
        """Wait for the next public object."""
        while not (self.messages or self.told):
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), 60)
        return self.messages.pop(0) if self.messages else self.told.pop(0)[1]


def opened(*, person: bool = True) -> tuple[Out, RequestBroker]:
    out = Out()
    return out, RequestBroker(cast(SessionLog, out), lambda by: person or by is not AnsweredBy.PERSON)


def asked(door: RequestBroker, request_id: str) -> asyncio.Task[ToolPermission]:
    return asyncio.create_task(door.request(Request(CAN_USE_TOOL, APPROVAL, id=request_id, about="Bash")))


def answered(request_id: str, payload: Json) -> InputRecord:
    return InputRecord(f"answer:{request_id}", public_answer(Success(request_id, payload)))


def ask(door: RequestBroker, request_id: str, subtype: str, **fields: object) -> None:
    request = {"subtype": subtype, **fields}
    line = parse_message({"type": "control_request", "request_id": request_id, "request": request})
    assert isinstance(line, ControlRequest)
    door.take_request(line)


async def test_the_first_answer_to_a_request_counts_and_one_to_a_cancelled_request_is_late() -> None:
    out, door = opened()
    asking = asked(door, "q1")
    called = {"tool_name": "Bash", "display_name": "Bash", "input": {"command": "make"}, "tool_use_id": "toolu_1"}
    reasons = {"permission_suggestions": (), "decision_reason": "", "decision_reason_type": ""}
    request = {"subtype": "can_use_tool", **called, **reasons}
    assert await out.next() == {"type": "control_request", "request_id": "q1", "request": request}
    assert door.waits_for(AnsweredBy.PERSON) and door.subjects(AnsweredBy.PERSON) == ["Bash"]
    door.take_answer(Success("q1", {"behavior": "deny", "message": "no", "interrupt": True}))
    door.take_answer(Success("q1", {"behavior": "allow"}))
    assert await asking == ToolPermission(False, "no", interrupt=True)
    assert out.facts == [("late_answer", {"request_id": "q1"})]
    assert not door.waits_for(AnsweredBy.PERSON) and not out.messages
    asking = asked(door, "q2")
    await out.next()
    asking.cancel()
    assert await out.next() == {"type": "control_cancel_request", "request_id": "q2"}
    door.take_answer(Success("q2", {"behavior": "allow"}))
    assert [each["request_id"] for _, each in out.facts] == ["q1", "q2"]
    assert not opened(person=False)[1].can_ask(CAN_USE_TOOL)


async def test_a_request_that_has_become_moot_is_withdrawn_and_its_caller_decides_anew() -> None:
    out, door = opened()
    allowed: list[bool] = []
    moot = Request(CAN_USE_TOOL, APPROVAL, id="q1", is_moot=lambda: bool(allowed))
    asking, other = asyncio.create_task(door.request(moot)), asked(door, "q2")
    await out.next()
    await out.next()
    door.reconsider()
    assert not out.messages
    allowed.append(True)
    door.reconsider()
    with pytest.raises(RequestMoot):
        await asking
    assert out.messages == [{"type": "control_cancel_request", "request_id": "q1"}] and not other.done()
    door.take_answer(Success("q2", {"behavior": "allow"}))
    assert (await other).allow


async def test_withdrawing_what_the_person_was_asked_leaves_services_alone() -> None:
    out, door = opened()
    asking = asked(door, "q1")
    await out.next()
    deploying = asyncio.create_task(door.request(Request(DEPLOY, {"to": "staging"}, id="d1")))
    await out.next()
    door.withdraw(AnsweredBy.PERSON)
    assert out.messages == [{"type": "control_cancel_request", "request_id": "q1"}]
    with pytest.raises(asyncio.CancelledError):
        await asking
    door.take_answer(Success("d1", {"url": "https://staging"}))
    assert await deploying == {"url": "https://staging"}


async def test_an_interrupt_ends_the_turn_although_the_disk_has_no_room_for_the_withdrawal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out, door = opened()
    interrupts: list[str] = []
    agent = MagicMock(interrupt=lambda: interrupts.append("interrupt"))
    session = MagicMock(broker=door, agent=agent, sub_agents=MagicMock(in_background=frozenset()))
    register_client_requests(cast(Any, session))
    asking = [asked(door, each) for each in ("q1", "q2")]
    await out.next()
    await out.next()

    def no_room(content: Content, agent_id: str = "") -> None:
        raise NotKept("no space left on device")

    monkeypatch.setattr(out, "emit", no_room)
    line = parse_message(Request(INTERRUPT, None).public())
    assert isinstance(line, ControlRequest)
    with pytest.raises(NotKept):
        door.take_request(line)
    ended = await asyncio.wait_for(asyncio.gather(*asking, return_exceptions=True), 60)
    assert [type(each) for each in ended] == [asyncio.CancelledError] * 2, "nobody waits for an answer any more"
    assert interrupts == ["interrupt"]


async def test_a_service_request_in_memory_goes_to_the_driver_and_again_to_the_next_one() -> None:
    out, door = opened()
    asking = asyncio.create_task(door.request(Request(BEEP, {"times": 2}, id="b1")))
    sent = await out.next()
    assert sent["request"] == {"subtype": "beep", "times": 2} and not out.messages
    door.ask_driver_again()
    assert await out.next() == sent
    assert not door.waits_for(AnsweredBy.PERSON), "nobody has to act"
    door.take_answer(Failure("b1", "no sound here"))
    with pytest.raises(RequestFailed, match="no sound here"):
        await asking
    door.ask_driver_again()
    assert not out.told


async def test_silence_fails_a_request_with_a_deadline_and_takes_it_back() -> None:
    out, door = opened()
    with pytest.raises(RequestFailed, match=r"no answer within 0\.01 s"):
        await door.request(Request(replace(BEEP, deadline_s=0.01), {}, id="b1"))
    told = [(key, body["type"]) for key, body in out.told]
    assert told == [("request:b1", each) for each in ("control_request", "control_cancel_request")]


def test_what_an_earlier_worker_has_asked_is_withdrawn_unless_it_was_answered() -> None:
    out, ids = Out(), ("q1", "d", "e")
    asked_before = [MessageRecord(Request(CAN_USE_TOOL, APPROVAL, id=each).public()) for each in ids]
    journal: list[Content] = [*asked_before, answered("d", {})]
    replay([record_of(content, seq) for seq, content in enumerate(journal, 1)], out.requests)
    RequestBroker(cast(SessionLog, out), lambda by: True, out.requests).withdraw_abandoned()
    assert [(body["type"], body["request_id"]) for body in out.messages] == [
        ("control_cancel_request", each) for each in ("q1", "e")
    ]


def test_only_the_answer_about_a_tool_call_grants_permissions_after_a_restart() -> None:
    recovered = Recovered()
    update = {"type": "addRules", "behavior": "allow", "destination": "session", "rules": [{"toolName": "Bash"}]}
    granting = {"behavior": "allow", "updatedPermissions": [update]}
    approval, deploy = Request(CAN_USE_TOOL, APPROVAL, id="q1"), Request(DEPLOY, {}, id="d1")

    def updates_after(*journal: Content) -> list[Json]:
        replay([record_of(content) for content in journal], *recovered.parts)
        return recovered.updates

    assert updates_after(MessageRecord(deploy.public()), answered("d1", granting)) == []
    assert updates_after(answered("q1", granting)) == [], "nobody has asked"
    assert updates_after(MessageRecord(approval.public()), answered("q1", granting)) == [update]


async def test_requests_of_clients_go_to_the_handler_of_their_kind() -> None:
    out, door = opened()
    done: list[str] = []

    def double(number: int) -> RequestOutcome:
        if number > 10:
            raise RequestRefused("too much", "limit")
        return RequestOutcome({"is": 2 * number}, lambda: done.append("after the answer"))

    door.register(client_kind("double", lambda fields: int(fields["number"])), double)

    ask(door, "r1", "double", number=4)
    ask(door, "r2", "double", number=40)
    ask(door, "r3", "halve")
    answers = [parse_message(each) for each in out.messages]
    assert [answer_in(line) for line in answers if isinstance(line, ControlResponse)] == [
        Success("r1", {"is": 8}),
        Failure("r2", "too much", "limit"),
        Failure("r3", "Unsupported control request subtype: halve", "unsupported_request"),
    ]
    assert done == ["after the answer"]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (Failure("q", "AbortError: gone"), "Tool permission request failed: AbortError: gone"),
        (Failure("q", "odd"), "Tool permission request failed: Error: odd"),
        (Success("q"), "Tool permission request failed: Error: the answer is empty"),
        (Success("q", {}), "The user refused."),
        (Success("q", {"behavior": "Allow"}), "The user refused."),
    ],
)
def test_what_is_no_clear_yes_denies_the_tool(answer: Answer, message: str) -> None:
    assert ToolPermission.from_answer(answer) == ToolPermission(False, message)


async def test_a_worker_that_ends_answers_what_clients_have_asked() -> None:
    (out, door), go = opened(), asyncio.Event()

    async def think(_: Json) -> Json:
        await go.wait()
        return {"thought": True}

    door.register(client_kind("think", dict), think)

    ask(door, "soon", "think")
    asyncio.get_running_loop().call_soon(go.set)
    await door.settle(30)
    assert (await out.next())["response"]["response"] == {"thought": True}
    go.clear()
    ask(door, "late", "think")
    await door.settle(0.01)
    await door.close()
    response = (await out.next())["response"]
    assert (response["subtype"], response["request_id"]) == ("error", "late") and "has ended" in response["error"]


async def test_what_a_slow_handler_does_before_it_waits_is_done_at_once() -> None:
    """A turn that is about to begin finds what `initialize` has set."""
    (out, door), done = opened(), list[str]()

    async def described() -> Json:
        return {"ready": True}

    def prepare(fields: Json) -> Awaitable[Json]:
        if fields["what"] == "nonsense":
            raise RequestRefused("that is nonsense")
        done.append(fields["what"])
        return described()

    door.register(client_kind("prepare", dict), prepare)
    for what in ("a turn", "nonsense"):
        ask(door, what, "prepare", what=what)
    assert done == ["a turn"]
    assert (await out.next())["response"]["error"] == "that is nonsense"
    await door.settle(30)
    assert (await out.next())["response"]["response"] == {"ready": True}
