"""Tool calls: what runs together and what alone, permission, and every way a call fails without failing the turn."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.remote import agent_kit as kit

from ccb.remote.agent.agent import Agent
from ccb.remote.agent.agent_histories import Ledger
from ccb.remote.agent.tool_call import CallOutcome, ToolCall, TurnContext
from ccb.remote.agent.tool_pipeline import ToolExecutor
from ccb.remote.permissions.rules import Behavior, Decision
from ccb.remote.tools.input_schema import issues
from ccb.remote.tools.output import OutputFiles
from ccb.remote.tools.tool_contract import ToolResult
from ccb.tunnel.wire.control_protocol import RequestFailed, ToolPermission
from ccb.tunnel.wire.frames import Json

ASK = Decision(
    Behavior.ASK,
    "Change wants to write",
    "mode",
    blocked_path="/etc/x",
    suggestions=[{"type": "setMode", "mode": "acceptEdits", "destination": "session"}],
)


def _result_text(journal: kit.MemoryLog, index: int = 0) -> str:
    return str(journal.messages("user")[index]["message"]["content"][0]["content"])


def _calling(tool: str, **options: Any) -> kit.World:
    """A world whose model calls a tool once and then says ok."""
    return kit.make_world(kit.calls(("t1", tool, {"key": "a"})), kit.says("ok", "msg_2"), **options)


async def test_a_tool_starts_while_the_model_is_still_streaming() -> None:
    more = asyncio.Event()
    first, second = (kit.tool_block(i, f"t{i + 1}", "Look", {"key": key}) for i, key in enumerate("ab"))
    streamed = kit.Reply([kit.opening(), first, more, second, kit.closing("tool_use")])
    world = kit.make_world(streamed, kit.says("ok", "msg_2"))
    turn = world.start()
    await world.read.until("end a")
    assert "start b" not in world.log
    await world.journal.until(lambda: bool(world.journal.messages("user")))
    more.set()
    await turn
    kit.assert_valid(world.history())
    sent = world.transport.request_json(1)["messages"]
    assert [b["id"] for b in sent[1]["content"]] == ["t1", "t2"]
    assert [b["tool_use_id"] for b in sent[2]["content"]] == ["t1", "t2"]


async def test_writes_run_alone_and_in_order_and_later_reads_wait() -> None:
    order = [("r1", "Look"), ("w1", "Change"), ("w2", "Change"), ("r2", "Look"), ("r3", "Look")]
    world = kit.make_world(kit.calls(*[(key, name, {"key": key}) for key, name in order]), kit.says("ok", "msg_2"))
    gates = {key: asyncio.Event() for key, _ in order}
    world.read.gates = world.write.gates = gates
    turn = world.start()
    for running, released in ((["r1"], "r1"), (["w1"], "w1"), (["w2"], "w2"), (["r2", "r3"], "r2")):
        await world.read.until(*[f"start {key}" for key in running])
        await kit.settle()
        active = [k for k, _ in order if f"start {k}" in world.log and f"end {k}" not in world.log]
        assert active == running
        gates[released].set()
    gates["r3"].set()
    await turn
    kit.assert_valid(world.history())


async def test_at_most_ten_reads_at_once() -> None:
    world = kit.make_world(kit.calls(*[(f"t{i}", "Look", {"key": f"k{i}"}) for i in range(12)]), kit.says("ok", "m2"))
    world.read.gates = {f"k{i}": asyncio.Event() for i in range(12)}
    turn = world.start()
    await world.read.until(*[f"start k{i}" for i in range(10)])
    await kit.settle()
    assert "start k10" not in world.log
    world.read.gates["k3"].set()
    await world.read.until("start k10")
    await kit.settle()
    assert "start k11" not in world.log
    for gate in world.read.gates.values():
        gate.set()
    await turn
    first = world.journal.messages("user")[0]["message"]["content"][0]
    assert first["tool_use_id"] == "t3", "results come in the order of completion"
    kit.assert_valid(world.history())


async def test_a_start_that_cannot_be_recorded_is_no_start() -> None:
    world = kit.make_world(kit.calls(("t1", "Change", {"key": "a"})))
    commit = world.journal.commit

    async def failing() -> None:
        if world.journal.facts("tool_start"):
            world.journal.commit = commit  # type: ignore[method-assign]
            raise OSError("no space left on device")
        await commit()

    world.journal.commit = failing  # type: ignore[method-assign]
    result = await world.turn()
    assert world.log == []
    assert result["subtype"] == "error_during_execution"
    assert "no space left" in result["errors"][0] and len(world.journal.messages("result")) == 1
    kit.assert_valid(world.history())


async def test_live_output_is_progress_keyed_by_its_call() -> None:
    world = _calling("Look")
    await world.turn()
    (progress,) = [body for kind, body in world.journal.all if kind == "progress"]
    whose = {"type": "tool_progress", "tool_use_id": "t1", "tool_name": "Look", "parent_tool_use_id": None}
    assert progress == {**whose, "elapsed_time_seconds": 1.5, "output": "working on a", "total_bytes": 7}


async def test_a_tool_that_is_silent_says_that_it_still_runs() -> None:
    world = _calling("Look", heartbeat_s=0.01)
    gate = world.read.gates["a"] = asyncio.Event()
    turn = world.start()

    async def beats() -> list[Json]:
        while True:
            found = [body for kind, body in world.journal.all if kind == "progress" and body.get("heartbeat")]
            if len(found) >= 2:
                return found
            await asyncio.sleep(0.01)

    first, second = (await asyncio.wait_for(beats(), 60))[:2]
    assert (first["tool_use_id"], first["tool_name"]) == ("t1", "Look")
    assert second["elapsed_time_seconds"] >= first["elapsed_time_seconds"]
    gate.set()
    await asyncio.wait_for(turn, 60)


async def test_a_hidden_tool_is_unknown() -> None:
    hidden = _calling("Change")
    hidden.permissions.hidden.add("Change")
    hidden.agent = Agent(hidden.agent.config, hidden.agent._deps, hidden.conversation, Ledger())
    await hidden.turn()
    assert hidden.journal.messages()[0]["tools"] == ["Look"]
    assert [tool["name"] for tool in hidden.transport.request_json(0)["tools"]] == ["Look"]
    assert "No such tool" in _result_text(hidden.journal)


@pytest.mark.parametrize(
    ("tool_input", "reason"),
    [
        ({}, "the required parameter `key` is missing"),
        ({"key": 1}, "`key` is integer, expected string"),
        ({"key": "a", "other": 1}, "an unexpected parameter `other` was given"),
        ({"key": "a", "count": 0}, "`count` must be at least 1"),
        ({"key": "a", "count": True}, "`count` is boolean, expected integer"),
        ('{"key": ', "the input is not valid JSON"),
        ('["a"]', "the input is not a JSON object"),
    ],
)
async def test_a_wrong_input_is_a_result_and_nobody_is_asked(tool_input: Json | str, reason: str) -> None:
    world = kit.make_world(kit.calls(("t1", "Change", tool_input)), kit.says("ok", "msg_2"), decisions={"Change": ASK})
    assert (await world.turn())["subtype"] == "success"
    text = _result_text(world.journal)
    assert text.startswith("<tool_use_error>InputValidationError: ") and reason in text
    assert not world.broker.requests and not world.log
    assert world.journal.messages("user")[0]["tool_use_result"].startswith("Error: ")
    kit.assert_valid(world.history())


async def test_bugs_and_refusals_of_tools_and_checks_are_results() -> None:
    world = kit.make_world(
        kit.calls(("t1", "Look", {"key": "a"}), ("t2", "Change", {"key": "a"}), ("t3", "Change", {"key": "b"})),
        kit.says("ok", "msg_2"),
        decisions={"Change": ASK},
    )
    world.read.results = {"a": ValueError("a bug")}
    world.write.invalid = {"a": "File has not been read yet."}
    decide = world.permissions.decide

    def broken(tool: Any, tool_input: Json, **where: Any) -> Decision:
        if tool.name == "Change":
            raise RuntimeError("parser bug")
        return decide(tool, tool_input, **where)

    world.permissions.decide = broken  # type: ignore[method-assign]
    assert (await world.turn())["subtype"] == "success"
    assert _result_text(world.journal) == "Look failed: ValueError: a bug"
    assert world.journal.messages("user")[0]["message"]["content"][0]["is_error"] is True
    assert _result_text(world.journal, 1) == "<tool_use_error>File has not been read yet.</tool_use_error>"
    assert "was not run, because a check of it failed: RuntimeError: parser bug" in _result_text(world.journal, 2)
    assert not world.broker.requests and world.log == ["start a", "end a"]


async def test_a_result_longer_than_the_tool_declares_is_cut(tmp_path: Path) -> None:
    world = _calling("Look", spill=OutputFiles(str(tmp_path)))
    whole = "\n".join(f"line {number}" for number in range(10_000))
    world.read.results = {"a": ToolResult(whole)}
    await world.turn()
    shown = _result_text(world.journal)
    assert len(shown) <= world.read.declaration.max_output_chars < len(whole)
    assert shown.startswith("line 0\n") and shown.endswith("\nline 9999")
    (kept,) = tmp_path.iterdir()
    assert str(kept) in shown and kept.read_text() == whole


async def test_the_person_is_asked_and_allows() -> None:
    allowed = ToolPermission(True, updated_input={"key": "b"}, updates=[{"type": "setMode", "mode": "acceptEdits"}])
    world = _calling("Change", decisions={"Change": ASK}, answers=[allowed])
    result = await world.turn()
    call = {"tool_name": "Change", "display_name": "Change", "input": {"key": "a"}, "tool_use_id": "t1"}
    why = {"decision_reason": ASK.reason, "decision_reason_type": "mode", "blocked_path": "/etc/x"}
    question = {"subtype": "can_use_tool", **call, **why, "permission_suggestions": ASK.suggestions}
    assert world.broker.requests == [{**question, "sandbox": "no cage"}]
    assert world.log == ["start b", "end b"]
    status = world.journal.messages("system", "status")
    assert [(body["status"], body["permissionMode"]) for body in status] == [(None, "acceptEdits")]
    assert result["permission_denials"] == []


@pytest.mark.parametrize(
    ("answer", "said", "denials"),
    [
        (ToolPermission(False, "not on a Friday"), "not on a Friday", 1),
        (ToolPermission(True, updated_input={"key": 5}), "InputValidationError", 0),
        (RequestFailed("no such request"), "Tool permission request failed: Error: no such request", 0),
    ],
    ids=["denied", "a wrong change", "a question that fails"],
)
async def test_a_refusal_is_told_to_the_model(answer: ToolPermission | RequestFailed, said: str, denials: int) -> None:
    world = _calling("Change", decisions={"Change": ASK}, answers=[answer])
    result = await world.turn()
    assert said in _result_text(world.journal) and result["subtype"] == "success"
    assert not world.log and not world.journal.facts("tool_start")
    denial = {"tool_name": "Change", "tool_use_id": "t1", "tool_input": {"key": "a"}}
    assert result["permission_denials"] == [denial] * denials


async def test_a_denial_can_end_the_turn() -> None:
    world = kit.make_world(
        kit.calls(("t1", "Change", {"key": "a"}), ("t2", "Change", {"key": "b"})),
        decisions={"Change": ASK},
        answers=[ToolPermission(False, "stop", interrupt=True)],
    )
    result = await world.turn()
    assert (result["subtype"], result["terminal_reason"]) == ("error_during_execution", "aborted_tools")
    *results, note, _ = world.journal.outline()[-4:]
    assert results == ["user tool_result t1", "user tool_result t2"]
    assert note == "user text [Request interrupted by user for tool use]"
    assert _result_text(world.journal) == "stop" and not world.log
    assert len(world.broker.requests) == 1, "the next call is not asked about"
    kit.assert_valid([*world.history(), {"role": "assistant", "content": [{"type": "text", "text": "x"}]}])


@pytest.mark.parametrize("behavior", [Behavior.ASK, Behavior.DENY])
async def test_without_anybody_to_ask_it_is_denied_at_once(behavior: Behavior) -> None:
    world = _calling("Change", decisions={"Change": Decision(behavior, "no rule allows it", "rule")}, can_ask=False)
    result = await world.turn()
    note = world.journal.messages("system", "permission_denied")[0]
    assert (note["tool_name"], note["tool_use_id"], note["decision_reason_type"]) == ("Change", "t1", "rule")
    assert "no rule allows it" in note["message"] == _result_text(world.journal)
    assert [denial["tool_use_id"] for denial in result["permission_denials"]] == ["t1"]
    assert not world.broker.requests and not world.log


@pytest.mark.parametrize(
    ("tools", "notes"), [(["Change"] * 4, 1), (["Change", "Change", "Look", "Change"], 0)], ids=["in a row", "not"]
)
async def test_repeated_denials_are_pointed_out_once(tools: list[str], notes: int) -> None:
    denied = Decision(Behavior.DENY, "rule", "rule")
    script = [kit.calls((f"t{i}", name, {"key": f"v{i}"}), message_id=f"m{i}") for i, name in enumerate(tools)]
    world = kit.make_world(*script, kit.says("ok", "msg_9"), decisions={"Change": denied})
    await world.turn()
    told = [line["message"]["content"] for line in world.journal.messages("user") if line.get("isSynthetic")]
    assert len(told) == notes and all("refused" in content[0]["text"] for content in told)
    kit.assert_valid([*world.history()[:-1], {"role": "assistant", "content": [{"type": "text", "text": "x"}]}])


async def test_a_tool_use_id_that_was_used_before_is_replaced() -> None:
    world = kit.make_world(
        kit.calls(("call_0", "Look", {"key": "a"})),
        kit.calls(("call_0", "Look", {"key": "b"}), ("", "Look", {"key": "c"}), message_id="msg_2"),
        kit.says("ok", "msg_3"),
    )
    await world.turn()
    assert {"end a", "end b", "end c"} <= set(world.log)
    uses = [b["id"] for m in world.history() for b in m["content"] if b["type"] == "tool_use"]
    assert len(set(uses)) == 3
    kit.assert_valid([*world.history()[:-1], {"role": "assistant", "content": [{"type": "text", "text": "x"}]}])


async def test_an_executor_tells_its_owner_about_our_own_failures() -> None:
    def broken(call: ToolCall, outcome: CallOutcome) -> None:
        raise OSError("journal")

    context = SimpleNamespace(log=SimpleNamespace(message=lambda body: None))
    executor = ToolExecutor(cast(TurnContext, context), broken)
    executor.submit(ToolCall("1", "x", {}, None))
    with pytest.raises(OSError, match="journal"):
        await executor.drain()


def test_schemas_of_nested_values() -> None:
    status = {"type": "string", "enum": ["pending", "done"]}
    todo = {"type": "object", "required": ["status"], "properties": {"status": status}}
    properties = {
        "todos": {"type": "array", "minItems": 1, "items": todo},
        "limit": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "name": {"type": ["string", "null"], "minLength": 2},
    }
    schema = {"type": "object", "properties": properties}
    assert issues({"todos": [{"status": "done"}], "limit": None, "name": None}, schema) == []
    assert issues({"todos": []}, schema) == ["`todos` needs at least 1 items"]
    assert issues({"todos": [{}]}, schema) == ["the required parameter `todos[0].status` is missing"]
    assert issues({"todos": [{"status": "x"}]}, schema) == ["`todos[0].status` must be one of 'pending', 'done'"]
    assert issues({"limit": "3"}, schema) == ["`limit` fits none of the allowed forms"]
    assert issues({"name": "x"}, schema) == ["`name` needs at least 2 characters"]
    assert issues([], schema) == ["the input is array, expected object"]


@pytest.mark.parametrize("name", ["multi tool.use", "a" * 200, "", "Bäsh"])
async def test_a_call_that_the_api_would_not_take_back_is_renamed(name: str) -> None:
    """Otherwise every later request of the session is refused for what is in its history."""
    world = kit.make_world(kit.calls(("call:1.x", name, {})), kit.says("sorry", "msg_2"))
    assert (await world.turn())["subtype"] == "success"
    block = world.transport.request_json(1)["messages"][1]["content"][0]
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,128}", block[each]) for each in ("name", "id"))
    assert "No such tool" in _result_text(world.journal)
