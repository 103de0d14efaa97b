"""What a session derives from its journal when a sub-agent runs beside the main agent."""

from __future__ import annotations

from pathlib import Path

from ccb.remote.agent.agent_histories import AgentHistories
from ccb.remote.host_commands.logs import last_lines
from ccb.remote.session.recovery import Recovered
from ccb.remote.session_store.session_log import SessionUsage, SnapshotProjection, UnfinishedWork
from ccb.tunnel.wire import journal_records as kinds
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Record, record_of, replay, to_line

SUB = "toolu_sub"


def todos(*names: str) -> kinds.MessageRecord:
    block = {
        "type": "tool_use",
        "id": "t",
        "name": "TodoWrite",
        "input": {"todos": [{"content": each} for each in names]},
    }
    return kinds.MessageRecord({"type": "assistant", "message": {"id": "m", "content": [block]}})


def result(text: str, cost: float) -> kinds.MessageRecord:
    return kinds.MessageRecord({"type": "result", "subtype": "success", "result": text, "total_cost_usd": cost})


def mode(name: str) -> kinds.MessageRecord:
    return kinds.MessageRecord({"type": "system", "subtype": "status", "permissionMode": name})


def journal(*contents: tuple[str, kinds.Content]) -> list[Record]:
    return [record_of(content, seq, 1.0, agent_id) for seq, (agent_id, content) in enumerate(contents, 1)]


def started(agent_id: str, message_id: str) -> Json:
    event = {"type": "message_start", "message": {"id": message_id}}
    return {"type": "stream_event", "event": event, "parent_tool_use_id": agent_id or None}


def test_results_todos_and_sizes_of_a_sub_agent_are_not_those_of_the_session() -> None:
    usage, snapshot = SessionUsage(), SnapshotProjection()
    records = journal(
        (kinds.MAIN_AGENT, kinds.ModelEndRecord("m", None, {"input_tokens": 7})),
        (kinds.MAIN_AGENT, todos("mine")),
        (kinds.MAIN_AGENT, result("mine", 1.0)),
        (SUB, kinds.ModelEndRecord("s", None, {"input_tokens": 9000})),
        (SUB, todos("its")),
        (SUB, result("its", 2.0)),
    )
    replay(records, usage, snapshot)
    body = snapshot.body(len(records), model="", mode="", asks=[])
    assert (body["result"]["result"], [each["content"] for each in body["todos"]]) == ("mine", ["mine"])
    assert (usage.context_tokens, usage.spent["total_cost_usd"]) == (7, 1.0)


def test_a_turn_of_a_sub_agent_neither_ends_nor_answers_the_turn_of_the_session() -> None:
    recovered = Recovered()
    said: Json = {"type": "user", "message": {"role": "user", "content": "go"}}
    records = journal(
        (kinds.MAIN_AGENT, kinds.InputRecord("1", said)),
        (kinds.MAIN_AGENT, kinds.InputRecord("2", {**said, "uuid": "u"})),
        (kinds.MAIN_AGENT, mode("plan")),
        (kinds.MAIN_AGENT, kinds.TurnStartRecord()),
        (kinds.MAIN_AGENT, kinds.PromptRecord([], [kinds.PromptItem("1")])),
        (SUB, kinds.TurnStartRecord()),
        (SUB, kinds.PromptRecord([], [kinds.PromptItem(content=[{"type": "text", "text": "find it"}])])),
        (SUB, mode("bypassPermissions")),
        (SUB, result("found", 2.0)),
        (SUB, kinds.TurnEndRecord()),
    )
    replay(records, *recovered.parts)
    assert (recovered.turn_open, recovered.result_due) == (True, True)
    assert recovered.launches.options.permission_mode == "plan"
    assert list(recovered.inputs.waiting) == ["2"]


def test_answers_of_two_agents_stream_beside_each_other() -> None:
    partial = UnfinishedWork()
    mine, its = started(kinds.MAIN_AGENT, "m"), started(SUB, "s")
    partial.take("", mine)
    partial.take("", its)
    assert [body for _, body in partial.bodies()] == [mine, its]
    replay(journal((SUB, kinds.WithdrawnRecord("m"))), partial)
    assert [body for _, body in partial.bodies()] == [mine, its]
    replay(journal((SUB, kinds.WithdrawnRecord("s"))), partial)
    assert [body for _, body in partial.bodies()] == [mine]
    partial.take("", its)
    replay(journal((kinds.MAIN_AGENT, result("mine", 1.0))), partial)
    assert [body for _, body in partial.bodies()] == [its]


def test_the_logs_name_the_sub_agent(tmp_path: Path) -> None:
    text = {"type": "assistant", "message": {"id": "m", "content": [{"type": "text", "text": "hello"}]}}
    records = journal((kinds.MAIN_AGENT, kinds.MessageRecord(text)), (SUB, kinds.MessageRecord(text)))
    (tmp_path / "journal.jsonl").write_bytes(b"".join(map(to_line, records)))
    lines = [line for source, _, line in last_lines(str(tmp_path), 10) if source == "session"]
    assert lines == ["agent: hello", "sub-agent toolu_sub: agent: hello"]


def test_a_result_of_a_sub_agent_whose_id_is_damaged_does_not_cost_the_main_agent_its_history() -> None:
    histories = AgentHistories()
    texts = ["before", "after"]
    said = [kinds.MessageRecord({"type": "user", "message": {"role": "user", "content": text}}) for text in texts]
    contents: list[kinds.Content] = [said[0], kinds.AgentResultRecord({"subtype": "success"}), said[1]]
    replay(journal(*[(kinds.MAIN_AGENT, content) for content in contents]), histories)
    assert histories.of(kinds.MAIN_AGENT) is histories.main
    assert [block["text"] for message in histories.main.conversation.messages for block in message.blocks] == texts
