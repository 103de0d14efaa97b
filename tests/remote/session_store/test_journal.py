"""The journal: what was said stays said, whatever happens to the file. What can be read of a damaged one is read, all
else is said, and nothing is done a second time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import json
import os
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.remote.agent_kit import assert_valid, calls, says
from tests.remote.worker_process import WorkerHost, file_limit, until

from ccb.remote.agent.conversation import Conversation, close_open_tool_uses, tool_result_message
from ccb.remote.daemon.hello import _last_records
from ccb.remote.session.recovery import Recovered
from ccb.remote.session_store.journal import Journal, NotKept
from ccb.tunnel.wire.frames import Event, Hello, Refused
from ccb.tunnel.wire.journal_records import (
    MessageRecord,
    PromptItem,
    PromptRecord,
    Record,
    RewindRecord,
    parse_line,
    record_of,
    replay,
)  # fmt: skip
from ccb.tunnel.wire.session_options import SessionOptions


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(**given: Any) -> None:
        with ThreadPoolExecutor(1) as thread:  # whose loop is not the one of the tests around it
            thread.submit(asyncio.run, test(**given)).result()

    return run


async def filled(path: Path, count: int, size: int = 50) -> list[bytes]:
    """The lines of a journal with `count` records of that many characters."""
    journal = Journal(str(path))
    for number in range(1, count + 1):
        journal.append(MessageRecord({"n": number, "text": "x" * size}))
    await journal.close()
    return path.read_bytes().splitlines(keepends=True)


def reopened(path: Path, lines: Sequence[bytes]) -> Journal:
    """The journal of these lines, which says the same to a reader who opens it in one pass."""
    fresh_path = path.with_suffix(".fresh")
    for each in (path, fresh_path):
        each.write_bytes(b"".join(lines))
    journal, fresh = Journal(str(path)), Journal(str(fresh_path), fresh=True)
    assert list(fresh.all()) == list(journal.read(0, journal.seq)) == list(fresh.all())
    assert (fresh.seq, fresh.size, fresh.damaged) == (journal.seq, journal.size, journal.damaged)
    return journal


def read(journal: Journal) -> list[tuple[int, int | None]]:
    return [(record.seq, record.body.get("n")) for record in journal.read(0)]


def zeroed(lines: list[bytes], *places: int) -> list[bytes]:
    return [b"\0" * (len(line) - 1) + b"\n" if at in places else line for at, line in enumerate(lines)]


def ends_turn(after: int, event: Event) -> bool:
    return event.kind == "turn_end" and event.seq > after


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    made = Journal(str(tmp_path / "journal.jsonl"))
    yield made
    await made.close()


async def test_durable_records_are_read_also_of_a_journal_that_a_cleaner_took(journal: Journal) -> None:
    journal.append(MessageRecord({"n": 1}))
    os.unlink(journal.path)
    journal.append(MessageRecord({"n": 2}))
    assert read(journal) == [], "nothing is durable yet"
    await journal.commit()
    assert read(journal) == [(1, 1), (2, 2)]


async def test_a_whole_journal_is_looked_through_beside_the_loop(journal: Journal) -> None:
    """A laptop that hears nothing for 15 s drops its link."""
    for number in range(3):
        journal.append(MessageRecord({"n": number}))
    going_on = threading.Event()

    def look(found: Iterator[Record]) -> list[int]:
        assert going_on.wait(60)
        return [record.seq for record in found]

    looking = asyncio.ensure_future(journal.examined(look))
    await asyncio.sleep(0)
    journal.append(MessageRecord({"n": "too late"}))
    going_on.set()
    assert await looking == [1, 2, 3]


async def test_many_who_commit_together_share_the_writes_to_disk(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    real = os.fdatasync

    def counting(fd: int) -> None:
        synced.append(fd)
        real(fd)

    monkeypatch.setattr(os, "fdatasync", counting)

    async def say() -> None:
        journal.append(MessageRecord({}))
        await journal.commit()

    await asyncio.gather(*(say() for _ in range(50)))
    assert journal.durable == 50
    assert len(synced) <= 3


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(min_value=0, max_value=60_000), max_size=80),
    after=st.integers(min_value=0, max_value=80),
)
@in_a_loop
async def test_any_tail_is_complete_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], after: int
) -> None:
    journal = Journal(str(tmp_path_factory.mktemp("journal") / "journal.jsonl"))
    for size in sizes:
        journal.append(MessageRecord({"x": "a" * size}))
    await journal.commit()
    assert [record.seq for record in journal.read(after)] == list(range(after + 1, len(sizes) + 1))
    await journal.close()


async def test_a_full_disk_leaves_no_half_record(journal: Journal, tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    journal.append(MessageRecord({"x": "a" * 1000}))
    before = path.read_bytes()
    with file_limit(2000), pytest.raises(NotKept, match=os.strerror(errno.EFBIG)):
        journal.append(MessageRecord({"x": "b" * 5000}))
    assert path.read_bytes() == before
    assert journal.append(MessageRecord({"x": "c"})).seq == 2


@pytest.mark.parametrize("size", [0, 10, 70_000, 2_000_000])
async def test_hello_finds_the_last_number_without_reading_it_all(tmp_path: Path, size: int) -> None:
    await filled(tmp_path / "journal.jsonl", 5, size)
    assert _last_records(str(tmp_path / "journal.jsonl"))[-1]["seq"] == 5


async def test_a_closed_journal_writes_into_no_file_that_got_its_number(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "journal.jsonl"))
    journal.append(MessageRecord({}))
    await journal.close()
    with contextlib.ExitStack() as opened:
        others = [opened.enter_context((tmp_path / str(number)).open("wb")) for number in range(4)]
        with pytest.raises(NotKept):
            journal.append(MessageRecord({}))
        assert [os.fstat(each.fileno()).st_size for each in others] == [0] * 4


async def test_a_fresh_journal_is_parsed_once_unless_a_rewind_must_be_known_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    await filled(path, 20)
    parsed: list[bytes] = []

    def counting(line: bytes) -> Record | None:
        parsed.append(line)
        return parse_line(line)

    monkeypatch.setattr("ccb.tunnel.wire.journal_records.parse_line", counting)
    fresh = Journal(str(path), fresh=True)
    assert fresh.seq == 1, "it says that there is a session"
    assert [record.seq for record in fresh.all()] == list(range(1, 21)) and len(parsed) == 20
    fresh.append(RewindRecord("u", 5, []))
    await fresh.close()
    assert Journal(str(path), fresh=True).rewound == [(5, 21)]
    assert Journal(str(tmp_path / "new.jsonl"), fresh=True).seq == 0


@settings(max_examples=30, deadline=None)
@given(cut=st.integers(min_value=0, max_value=1500))
@in_a_loop
async def test_a_write_torn_at_any_byte_costs_only_that_record(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    path = tmp_path_factory.mktemp("torn") / "journal.jsonl"
    whole = b"".join(await filled(path, 12))
    journal = reopened(path, [whole[:cut]])
    records = whole[:cut].count(b"\n")
    assert read(journal) == [(n, n) for n in range(1, records + 1)]
    assert journal.append(MessageRecord({})).seq == records + 1
    await journal.close()
    assert path.read_bytes().endswith(b"}\n")


def _wrong_number(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b'"seq":3', b'"seq":3000003'), *lines[3:]]


def _zeros_amid(lines: list[bytes]) -> list[bytes]:
    return [*lines[:3], b"\0" * len(b"".join(lines[3:6])) + lines[6][-20:], *lines[7:]]


def _damaged_end(lines: list[bytes]) -> list[bytes]:
    return [*lines[:8], b"#" * 30 + b"\n"]


@pytest.mark.parametrize(
    ("damage", "size", "lost"),
    [(_wrong_number, 50, {3}), (_wrong_number, 600_000, {3}), (_zeros_amid, 50, {4, 5, 6, 7}), (_damaged_end, 50, {9})],
    ids=["a number", "a number, from the file", "zeros amid", "the end"],
)
async def test_damage_hides_nothing_that_follows_and_no_number_is_given_twice(
    tmp_path: Path, damage: Callable[[list[bytes]], list[bytes]], size: int, lost: set[int]
) -> None:
    """Clients may have seen a damaged record."""
    path = tmp_path / "journal.jsonl"
    journal = reopened(path, damage(await filled(path, 9, size)))
    expected = [(n, None if n in lost else n) for n in range(1, 10)]
    assert (len(journal.damaged), read(journal)) == (1, expected)
    assert journal.append(MessageRecord({"n": 10})).seq == 10
    await journal.close()
    assert read(Journal(str(path))) == [*expected, (10, 10)]


@pytest.mark.parametrize("ending", [b"", b"\n"], ids=["to the end of the file", "before the last line end"])
async def test_numbers_of_durable_records_that_a_power_cut_made_zeros_are_not_given_again(
    tmp_path: Path, ending: bytes
) -> None:
    """A laptop that has seen them would take what comes under these numbers for what it knows."""
    path = tmp_path / "journal.jsonl"
    lines = await filled(path, 9)
    zeros = b"\0" * (len(b"".join(lines[5:])) - len(ending)) + ending
    journal = reopened(path, [*lines[:5], zeros])
    assert len(journal.damaged) == 1 and journal.seq >= 9
    new = journal.append(MessageRecord({"n": 10})).seq
    await journal.commit()
    assert read(journal) == [*((n, n) for n in range(1, 6)), *((n, None) for n in range(6, new)), (new, 10)]
    await journal.close()
    again = Journal(str(path))
    assert (again.seq, read(again)[-1], len(again.damaged)) == (new, (new, 10), 1)
    await again.close()


@settings(max_examples=40, deadline=None)
@given(
    gone=st.sets(st.integers(min_value=0, max_value=399), max_size=30),
    before=st.integers(min_value=1, max_value=402),
    size=st.integers(min_value=1, max_value=60_000),
)
@in_a_loop
async def test_pages_have_no_gaps_whatever_is_damaged(
    tmp_path_factory: pytest.TempPathFactory, gone: set[int], before: int, size: int
) -> None:
    path = tmp_path_factory.mktemp("pages") / "journal.jsonl"
    lines = await filled(path, 400)
    journal = reopened(path, [b"?" * 60 + b"\n" if at in gone else line for at, line in enumerate(lines)])
    assert journal.seq == 400
    found = journal.page(before, size)
    end = min(before, 401)
    assert [record.seq for record in found] == list(range(end - len(found), end))
    assert bool(found) == (end > 1)
    assert all((record.kind == "damaged") == (record.seq - 1 in gone) for record in found)
    readable = [record for record in found if record.kind != "damaged"]
    assert sum(len(lines[record.seq - 1]) for record in readable[1:]) <= size
    await journal.close()


async def test_after_a_half_record_that_cannot_be_removed_nothing_more_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal.jsonl"
    journal = Journal(str(path))
    journal.append(MessageRecord({"n": 1}))
    real = os.write

    def half(fd: int, data: bytes) -> int:
        if len(data) < 300:
            raise OSError(28, os.strerror(28))
        return real(fd, data[:200])

    def refused(fd: int, size: int) -> None:
        raise OSError(5, os.strerror(5))

    with monkeypatch.context() as broken:
        broken.setattr(os, "write", half)
        broken.setattr(os, "ftruncate", refused)
        with pytest.raises(NotKept, match=os.strerror(28)):
            journal.append(MessageRecord({"x": "a" * 300}))
    with pytest.raises(NotKept, match="cannot be removed"):
        journal.append(MessageRecord({"n": 2}))
    journal._file.close()
    again = Journal(str(path))
    assert read(again) == [(1, 1)]
    assert again.append(MessageRecord({"n": 2})).seq == 2
    await again.close()


async def recorded(host: WorkerHost, session: str) -> list[bytes]:
    """The journal of a session with two finished turns and one cut by a kill: questions, parallel calls, text."""
    laptop = await host.drive(session, SessionOptions(allowed_tools=["Bash"]))
    for number in range(2):
        command = {"command": f"echo {number} >> count"}
        tools = [(f"toolu_{number}{n}", "Bash", command if n == 0 else {"command": "true"}) for n in range(3)]
        first, last = calls(*tools, message_id=f"msg_{number}a"), says("done", f"msg_{number}b")
        await laptop.turn(f"prompt {number}", first, last)
    until_killed = {"command": f"while kill -0 {laptop.hello.pid} 2>/dev/null; do sleep 0.1; done"}
    await laptop.begin("prompt 2", calls(("toolu_20", "Bash", until_killed), message_id="msg_2"))
    await laptop.next(Event, lambda event: event.kind == "tool_start" and event.body["tool_use_id"] == "toolu_20")
    await laptop.kill()
    return (host.state(session) / "journal.jsonl").read_bytes().splitlines(keepends=True)


async def test_whichever_record_is_damaged_the_history_is_valid(host: WorkerHost, session: str, tmp_path: Path) -> None:
    lines = await recorded(host, session)
    assert len(lines) > 40
    for at in range(len(lines)):
        journal = reopened(tmp_path / f"{at}.jsonl", zeroed(lines, at))
        records = list(journal.read(0))
        numbers = [record.seq for record in records]
        assert numbers == list(range(1, len(numbers) + 1))
        assert [record.kind for record in records[len(lines) :]] == ["damaged"] * (len(records) - len(lines))
        assert len(records) == len(lines) or (at == len(lines) - 1 and len(records) > len(lines))
        conversation = Conversation.from_records(records)
        close_open_tool_uses(conversation, "closed")
        late = tool_result_message("toolu_20", "a second result", is_error=False)
        conversation.apply(record_of(MessageRecord(late)))
        conversation.apply(record_of(PromptRecord([], [PromptItem(content=[{"type": "text", "text": "and now?"}])])))
        conversation.seal()
        assert_valid([message.api() for message in conversation.messages])
        recovered = Recovered()
        replay(records, *recovered.parts)
        assert not recovered.inputs.waiting, f"with line {at + 1} damaged, a prompt that had its turn would run again"
        await journal.close()


async def test_a_damaged_session_goes_on_says_so_once_and_runs_nothing_again(host: WorkerHost, session: str) -> None:
    lines = await recorded(host, session)
    kinds = [json.loads(line)["kind"] for line in lines]
    lost = [at for at, kind in enumerate(kinds) if kind in ("prompt", "tool_start")]
    (host.state(session) / "journal.jsonl").write_bytes(b"".join(zeroed(lines, *lost)))
    said: list[str] = []
    for number in range(2):
        laptop = await host.drive(session, SessionOptions())
        await laptop.say(f"and now? {number}")
        history = (await laptop.tell(says("on", f"msg_on{number}")))["messages"]
        assert_valid(history)
        assert f"and now? {number}" in json.dumps(history[-1])
        assert "may have run" in json.dumps(history) and "did not run" not in json.dumps(history)
        await laptop.next(Event, functools.partial(ends_turn, laptop.hello.seq))
        said = [event.body["what"] for event in laptop.events if event.kind == "damaged" and event.body]
        assert [event.seq for event in laptop.events] == list(range(1, laptop.last_seq + 1))
        await laptop.kill()
    assert sum("is damaged and was passed over" in what for what in said) == len(lost)
    assert sum("was not run again" in what for what in said) == 3
    assert (host.project / "count").read_text() == "0\n1\n"


async def test_a_prompt_that_is_not_run_again_for_damage_has_its_one_result(host: WorkerHost, session: str) -> None:
    """Its sender waits for one. A prompt answered before the damage, or whose turn was cut, gets no second one."""
    lines = await recorded(host, session)
    kinds = [json.loads(line)["kind"] for line in lines]
    prompts = [at for at, kind in enumerate(kinds) if kind == "prompt"]
    last_start = max(at for at, kind in enumerate(kinds) if kind == "turn_start")
    (host.state(session) / "journal.jsonl").write_bytes(b"".join(zeroed(lines, *prompts, last_start)))
    for _ in range(2):
        laptop = await host.drive(session, SessionOptions(), have=len(lines))
        await laptop.next(Event, lambda event: event.kind == "driver")
        await laptop.kill()
    records = Journal(str(host.state(session) / "journal.jsonl")).read(0)
    results = [record.body for record in records if record.body.get("type") == "result"]
    assert [result["is_error"] for result in results] == [False, False, True]
    assert "may have been answered or not" in results[-1]["errors"][0]


async def test_a_disk_that_is_still_full_is_said_and_the_session_waits_for_room(host: WorkerHost, session: str) -> None:
    first = await host.drive(session, SessionOptions())
    await first.opened("one")
    await first.kill()
    journal = host.state(session) / "journal.jsonl"
    before = journal.read_bytes()
    with file_limit(len(before)):
        full = await host.connect(session)
    assert (await full.next(Hello)).seq > 0
    refused = await full.next(Refused)
    assert refused.code == "no_storage" and "journal cannot be written" in refused.message
    assert journal.read_bytes() == before
    await until(lambda: host.runtime_files() == [], "nothing is left of the attempt")
    again = await host.drive(session, SessionOptions())
    assert "stopped in the middle" in (await again.message("result"))["errors"][0]
