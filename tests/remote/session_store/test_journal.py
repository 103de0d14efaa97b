"""The journal: what was said stays said, whatever happens to the file."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.remote.worker_process import file_limit

from ccb.remote.daemon.hello import _last_records
from ccb.remote.session_store.journal import Journal, NotKept
from ccb.tunnel.wire.journal_records import MessageRecord, Record, RewindRecord, parse_line


@pytest.fixture
async def journal(tmp_path: Path) -> AsyncIterator[Journal]:
    made = Journal(str(tmp_path / "journal.jsonl"))
    yield made
    await made.close()


def records(journal: Journal, after: int = 0) -> list[tuple[int, str, dict[str, Any]]]:
    return [(record.seq, record.kind, record.body) for record in journal.read(after)]


async def test_only_durable_records_are_given_to_readers(journal: Journal) -> None:
    journal.append(MessageRecord({}))
    assert records(journal) == []
    await journal.commit()
    assert len(records(journal)) == 1


async def test_a_journal_that_a_cleaner_took_is_read_and_written_on(journal: Journal) -> None:
    journal.append(MessageRecord({"n": 1}))
    os.unlink(journal.path)
    journal.append(MessageRecord({"n": 2}))
    await journal.commit()
    assert [body["n"] for _, _, body in records(journal)] == [1, 2]


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
def test_any_tail_is_complete_and_in_order(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], after: int
) -> None:
    async def scenario() -> None:
        journal = Journal(str(tmp_path_factory.mktemp("journal") / "journal.jsonl"))
        for size in sizes:
            journal.append(MessageRecord({"x": "a" * size}))
        await journal.commit()
        assert [seq for seq, _, _ in records(journal, after)] == list(range(after + 1, len(sizes) + 1))
        await journal.close()

    asyncio.run(scenario())


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
    path = str(tmp_path / "journal.jsonl")
    journal = Journal(path)
    for _ in range(5):
        journal.append(MessageRecord({"x": "a" * size}))
    await journal.close()
    assert _last_records(path)[-1]["seq"] == 5


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
    journal = Journal(str(path))
    for number in range(20):
        journal.append(MessageRecord({"n": number}))
    await journal.close()
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
