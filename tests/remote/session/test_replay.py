"""A journal is fed to the projections of a session at once. They end as if each had been given record by record."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ccb.remote.session.recovery import Recovered
from ccb.remote.session_store.file_history import RewindPoints
from ccb.remote.session_store.journal_summary import JournalSummary
from ccb.remote.session_store.session_log import SessionUsage, SnapshotProjection, UnfinishedWork
from ccb.tunnel.wire import journal_records as kinds
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import Record, record_of
from ccb.tunnel.wire.projection import Projection, replay


def _any_record(chance: random.Random, seq: int) -> kinds.Content:
    number = chance.randrange(6)
    call = {"type": "tool_use", "id": f"t{number}", "name": "TodoWrite", "input": {"todos": [seq]}}
    done = {"type": "tool_result", "tool_use_id": f"t{number}", "content": "done"}
    text = {"type": "text", "text": f"word {seq}"}
    said: Json = {"type": "user", "message": {"role": "user", "content": f"go {seq}"}, "uuid": f"u{number}"}
    request = {"subtype": "can_use_tool", "tool_name": "Bash", "input": {}}
    settled = {"subtype": "success", "request_id": f"r{number}", "response": {"behavior": "allow"}}
    messages: list[Json] = [
        {"type": "assistant", "message": {"id": f"m{number}", "content": [chance.choice([text, call])]}},
        {"type": "user", "message": {"role": "user", "content": [chance.choice([text, done])]}},
        {"type": "user", "message": {"role": "user", "content": [text]}, "isCompactSummary": True},
        {"type": "system", "subtype": "init", "permissionMode": chance.choice(["default", "plan"]), "cwd": "/srv"},
        {"type": "system", "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9, "post_tokens": 1}},
        {"type": "system", "subtype": "task_started", "task_id": "b1", "is_backgrounded": True},
        {"type": "result", "subtype": "success", "total_cost_usd": seq, "modelUsage": {"m": {"costUSD": seq}}},
        {"type": "control_request", "request_id": f"r{number}", "request": request},
        {"type": "of another version"},
    ]
    contents: list[kinds.Content] = [
        *(kinds.MessageRecord(each) for each in messages),
        kinds.InputRecord(f"i{seq}", said),
        kinds.InputRecord(f"i{seq}", {"type": "control_response", "response": settled}),
        kinds.PromptRecord([], [kinds.PromptItem(f"i{max(1, seq - 2)}"), kinds.PromptItem(content=[text])]),
        kinds.TakenRecord(f"i{max(1, seq - 1)}"),
        kinds.UnqueuedRecord(f"i{max(1, seq - 1)}"),
        kinds.TurnStartRecord(),
        kinds.TurnEndRecord(),
        kinds.ToolStartRecord(f"t{number}", "TodoWrite"),
        kinds.ModelEndRecord(f"m{number}", None, {"input_tokens": seq}),
        kinds.ModelRecord(f"model {number}"),
        kinds.WithdrawnRecord(f"m{number}"),
        kinds.AgentResultRecord({"subtype": "success"}),
        kinds.DamagedRecord(chance.choice(["", "a line"])),
        kinds.UnknownRecord("of another version", {}),
    ]
    rare: list[kinds.Content] = [kinds.ForkedRecord("s"), kinds.RewindRecord(f"u{number}", max(1, seq - 5), [])]
    return chance.choice(rare if not chance.randrange(40) else contents)


def _projections(rewound: list[tuple[int, int]]) -> list[Projection]:
    of_log = [JournalSummary(), SessionUsage(), UnfinishedWork(), SnapshotProjection(), RewindPoints()]
    return [*of_log, *Recovered(rewound).parts]


def _plain(value: Any) -> Any:
    """Return everything that a value holds, as something that can be compared."""
    if isinstance(value, dict):
        return [(key, _plain(each)) for key, each in value.items()]
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if isinstance(value, (str, int, float, bool, type(None))):
        return value
    if hasattr(value, "__iter__"):
        return [_plain(each) for each in value]
    slots = getattr(type(value), "__slots__", ())
    names = getattr(value, "__dict__", None) or {name: getattr(value, name) for name in slots}
    return [(name, _plain(each)) for name, each in names.items() if name not in ("_arrived", "public")]


@pytest.mark.parametrize("seed", range(40))
def test_a_replay_ends_as_if_each_record_had_been_applied_to_each_projection(seed: int) -> None:
    chance = random.Random(seed)
    records: list[Record] = [
        record_of(_any_record(chance, seq), seq, seq, chance.choice([kinds.MAIN_AGENT, kinds.MAIN_AGENT, "sub"]))
        for seq in range(1, chance.randrange(2, 160))
    ]
    rewinds = [(each.content, each.seq) for each in records if isinstance(each.content, kinds.RewindRecord)]
    rewound = [(rewind.to, seq) for rewind, seq in rewinds if rewind.to]
    at_once, one_by_one = _projections(rewound), _projections(rewound)
    replay(records, *at_once)
    for record in records:
        for projection in one_by_one:
            projection.apply(record)
    assert [_plain(each) for each in at_once] == [_plain(each) for each in one_by_one]
