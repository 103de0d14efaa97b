"""Journals of the worker of 24918b2 give what its own code read out of them; see tests/data/README.md."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ccb.remote.agent.agent_histories import Ledger
from ccb.remote.agent.conversation import Conversation, close_open_tool_uses
from ccb.remote.host_commands.logs import last_lines
from ccb.remote.session.recovery import Recovered
from ccb.remote.session.request_broker import OpenRequests
from ccb.remote.session_store.fork import fork, unused_copy_of
from ccb.remote.session_store.journal import Journal
from ccb.remote.session_store.journal_summary import JournalSummary, last_mark
from ccb.remote.session_store.session_log import SessionUsage, SnapshotProjection
from ccb.remote.session_store.session_registry import SessionEntry, summary_of
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import InputRecord, Record, replay

DATA = Path(__file__).resolve().parents[2] / "data" / "journal-24918b2"
SESSIONS = {name: f"0ccb000{2 if name == 'forked' else 1}-0000-4000-8000-00000000000{2 if name == 'forked' else 1}"
            for name in ("open", "forked", "damaged")}  # fmt: skip
COPY = "0ccb0009-0000-4000-8000-000000000009"


@dataclass
class Older:
    """A journal of the older worker in a state directory, its records, and what the older code read out of it."""

    session: str
    path: Path
    records: list[Record]
    damaged: list[str]
    page: list[Record]
    tail_start: int
    expected: Json


@pytest.fixture(params=list(SESSIONS))
async def older(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Older:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    session = SESSIONS[request.param]
    path = tmp_path / "ccb" / "sessions" / session / "journal.jsonl"
    path.parent.mkdir(parents=True)
    path.parent.parent.parent.chmod(0o700)
    path.write_bytes((DATA / f"{request.param}.jsonl").read_bytes())
    journal = Journal(str(path))
    records = list(journal.read(0, journal.seq))
    page, tail_start = journal.page(journal.seq - 3, 4000), journal.tail_start(3000)
    await journal.close()
    expected = json.loads((DATA / f"{request.param}.json").read_text(encoding="utf-8"))
    return Older(session, path, records, journal.damaged, page, tail_start, expected)


def test_the_journal_is_read_with_the_same_numbers_and_damage(older: Older) -> None:
    assert [[record.seq, record.kind] for record in older.records] == older.expected["records"]
    assert [[record.seq, record.kind] for record in older.page] == older.expected["page"]
    assert older.damaged == older.expected["damaged"]
    assert older.tail_start == older.expected["tail_start"]


def test_the_conversation_is_the_same_before_and_after_open_tools_are_closed(older: Older) -> None:
    assert Conversation.from_records(older.records, "toolu_1").messages == [], "another agent has another one"
    conversation = Conversation.from_records(older.records)
    assert [message.api() for message in conversation.messages] == older.expected["conversation"]
    assert conversation.open_tool_uses == older.expected["open_tool_uses"]
    assert conversation.model == older.expected["model"]
    closed = close_open_tool_uses(conversation, lambda tool_use_id: "closed " + tool_use_id)
    assert [message.body for message in closed] == older.expected["closed_bodies"]
    conversation.seal()
    assert [message.api() for message in conversation.messages][-2:] == older.expected["closed"]


def test_what_was_used_is_the_same(older: Older) -> None:
    ledger, usage = Ledger(), SessionUsage()
    replay(older.records, ledger, usage)
    expected = older.expected
    assert (ledger.total_cost_usd, ledger.model_usage) == (expected["total_cost_usd"], expected["model_usage"])
    assert usage.context_tokens == expected["context_tokens"]
    assert usage.spent == {name: expected["last_result"][name] for name in ("total_cost_usd", "modelUsage")}


def test_a_worker_that_starts_again_finds_the_same_state(older: Older) -> None:
    expected, recovered = older.expected, Recovered()
    replay(older.records, *recovered.parts)
    inputs = recovered.inputs
    assert recovered.launches.options.to_json() == expected["options"]
    assert recovered.requests.ids == expected["open_asks"]
    assert (recovered.turn_open, recovered.result_due) == (expected["turn_open"], expected["result_due"])
    assert recovered.updates == expected["updates"]
    assert last_mark(str(older.path)) == expected["mark"]
    assert sorted(recovered.damage) == expected["damage"]
    assert {input_id: line.body for input_id, line in inputs.waiting.items()} == expected["waiting"]
    assert (dict(recovered.doubtful), list(recovered.unanswered)) == (expected["doubtful"], expected["unanswered"])
    assert inputs.any_prompt == expected["any_prompt"]
    known = [each.content.id for each in older.records if isinstance(each.content, InputRecord)]
    assert [input_id for input_id in known if inputs.knows(input_id)] == expected["known_inputs"]


def test_the_summary_is_the_same(older: Older) -> None:
    summary = JournalSummary()
    replay(older.records, summary)
    said = [summary.prompt, summary.prompts, summary.created]
    assert said == [older.expected[name] for name in ("prompt", "prompts", "created")]
    assert summary_of(str(older.path)) == older.expected["derived"]


def test_the_snapshots_are_the_same(older: Older) -> None:
    snapshot, requests = SnapshotProjection(), OpenRequests()
    replay(older.records, snapshot, requests)
    for seq, body in older.expected["snapshots"].items():
        asks = requests.asked_until(int(seq))
        # Fields are younger than these journals, under whose worker every prompt steered and todos were the last ones.
        prompts = [{**prompt, "files": 0, "steers": True} for prompt in body["prompts"]]
        todos = [{"id": str(place), **each} for place, each in enumerate(body["todos"], 1)] if int(seq) else None
        whole = {**body, "prompts": prompts, "todos": todos, "tasks": []}
        assert snapshot.body(int(seq), model="m", mode="d", asks=asks) == whole


@pytest.fixture
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("utc")
def test_the_logs_are_the_same(older: Older) -> None:
    assert [list(line) for line in last_lines(str(older.path.parent), 1000)] == older.expected["logs"]


def test_a_copy_is_the_same(older: Older) -> None:
    assert unused_copy_of(older.session) == older.expected["unused_copy_of"]
    assert fork(SessionEntry(older.session, str(older.path.parent), {}), COPY)
    lines = (older.path.parent.parent / COPY / "journal.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == older.expected["copy_lines"]
    assert hashlib.sha256(b"".join(lines[:-1])).hexdigest() == older.expected["copy_sha256"]
    assert {**json.loads(lines[-1]), "time": 0} == older.expected["copy_last"]
    assert unused_copy_of(COPY) == older.expected["unused_copy_of_the_copy"] == older.session
