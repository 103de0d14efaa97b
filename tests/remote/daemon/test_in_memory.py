"""Sessions on hosts with full disks: new ones stay in memory, old ones stay in their files. Root only."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import calls, says
from tests.remote.host_commands.test_host_commands import command
from tests.remote.worker_process import WorkerHost, alive, file_limit, until

from ccb.remote.host_commands import session_watch
from ccb.remote.session_store import sockets
from ccb.remote.session_store.journal import Journal, MemoryFile, NotKept
from ccb.tunnel.wire.frames import Applied, Detach, Event, Ping, Pong
from ccb.tunnel.wire.journal_records import MessageRecord
from ccb.tunnel.wire.session_options import SessionOptions

DEADLINE_S = 60.0


@contextmanager
def disk(where: Path, options: str) -> Iterator[None]:
    where.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", str(where)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(where)], check=True)


def fill(where: Path) -> None:
    with contextlib.suppress(OSError), open(where / "full", "wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


async def test_everything_is_replayed_from_memory(host: WorkerHost, session: str) -> None:
    with file_limit(0):
        first = await host.drive(session)
    await first.opened("go")
    await first.drop()
    again = await host.drive(session, create=False)  # though there is room for a session on the disk now
    assert again.hello.pid == first.hello.pid
    await again.answers(says("done"))
    assert (await again.message("result"))["result"] == "done"
    await until(lambda: again.last_seq >= again.events[0].seq, "events have come")
    assert [event.seq for event in again.events] == list(range(1, again.last_seq + 1))
    await again.end()
    refused = await host.refused(session, create=False, in_memory=True)
    assert refused.code == "no_session" and "was in memory only" in refused.message
    assert host.runtime_files() == []
    assert not (host.home / ".local").exists()


async def test_who_leaves_a_session_in_memory_can_come_back(host: WorkerHost, session: str) -> None:
    """A worker with a journal on the disk would end at once."""
    with file_limit(0):
        first = await host.drive(session, idle_s=0.1)
    await first.turn("go", says("done"))
    await first.send(Detach(first.epoch, done=True))
    await first.rest()
    again = await host.drive(session, create=False)
    assert again.hello.pid == first.hello.pid
    assert (await again.message("result"))["result"] == "done"
    await again.stop()


async def test_commands_know_a_session_in_memory_that_is_continued_not_copied(host: WorkerHost, session: str) -> None:
    with file_limit(0):
        first = await host.drive(session)
    await first.turn("go", says("done"))
    await first.drop()
    copied = await host.refused(str(uuid.uuid4()), fork_of=session)
    assert copied.code == "no_storage" and "is in memory only" in copied.message
    ((_, logged),) = await command(host, "logs", session)
    assert "in memory only" in logged["text"]
    assert not [kind for kind, _ in await command(host, "gc") if kind in ("ended", "stopped")]
    latest: dict[str, Any] = {"continue": True}
    assert (await host.drive("", **latest)).hello.pid == first.hello.pid
    stopped = {body["session"]: body["how"] for _, body in await command(host, "stop", session)}
    assert stopped[session].endswith("it was in memory only and is gone") and not alive(first.hello.pid)


async def test_a_disk_without_room_for_the_last_file_is_left_as_it_was(host: WorkerHost, session: str) -> None:
    """There is room for a directory and a lock, but not for the socket."""
    with disk(host.runtime, "nr_inodes=3"):
        refused = await host.refused(session)
        assert refused.code == "no_storage" and os.strerror(errno.ENOSPC) in refused.message
        assert host.runtime_files() == []
    with disk(host.home / ".local", "nr_inodes=5"):  # up to the session, but no file
        laptop = await host.drive(str(uuid.uuid4()))
        assert laptop.hello.storage == "volatile"
        await laptop.next(Event)
        assert list((host.home / ".local").iterdir()) == []
        await laptop.stop()


@pytest.mark.parametrize("storage", ["disk", "volatile"])
async def test_a_session_whose_disk_is_full_is_found_again(host: WorkerHost, session: str, storage: str) -> None:
    full = host.home / ".local" if storage == "disk" else host.runtime
    if storage == "volatile":
        (host.home / ".local").write_text("in the way")
    with disk(full, "size=256k"):
        first = await host.drive(session)
        await first.next(Event)
        await first.opened("go")
        fill(full)
        await first.drop()
        found = await host.greeted(session, create=False)
        assert (found.pid, first.hello.storage, found.storage) == (first.hello.pid, storage, storage)
        await host.kill_worker(first.hello.pid)
        if storage == "volatile":
            (full / "full").unlink()
        # The last page of the journal has room for a few words.
        assert (await host.greeted(session, create=False)).seq > 0


async def test_a_viewers_answer_waits_for_room_on_the_disk(host: WorkerHost, session: str) -> None:
    where = host.home / ".local"
    with disk(where, "size=256k"):
        first = await host.drive(session, SessionOptions(client="ann", permission_prompts="stdio"))
        await first.begin("go", calls(("toolu_1", "Write", {"file_path": "a", "content": "b"})))
        asked = await first.message("control_request")
        viewer = await host.drive(session, {"client": "dash"}, role="viewer")
        viewer.epoch = 0  # which marks what a viewer sends on purpose
        fill(where)
        # Longer than what has room in the last page of the journal.
        await viewer.reply(asked["request_id"], {"behavior": "deny", "message": "no" * 4096}, "kept")
        await viewer.send(Ping(0, 1))
        await viewer.next(Pong)
        assert not any(isinstance(frame, Applied) for frame in viewer.frames)
        (where / "full").unlink()
        assert (await viewer.next(Applied)).id == "kept"
        await first.stop()


async def test_a_journal_in_memory_has_a_limit_and_stays_whole() -> None:
    journal = Journal("")
    journal._file = MemoryFile(200_000)
    text = "x" * 30_000
    with pytest.raises(NotKept, match=r"in memory only.*start a new session") as failed:
        for number in range(100):
            journal.append(MessageRecord({"n": number, "text": text}))
    assert failed.value.full
    assert journal.append(MessageRecord({"n": "small"})).seq == journal.seq
    await journal.commit()
    assert [record.body["n"] for record in journal.read(0)] == [0, 1, 2, 3, 4, 5, "small"]
    assert [record.body["n"] for record in journal.page(3, 40_000)] == [1]
    assert journal.tail_start(70_000) == 4
    await journal.close()


SQUATTER = """
import socket, sys
squat = socket.socket(socket.AF_UNIX)
squat.bind("\\0" + sys.argv[1])
squat.listen(0)
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("crowded", [False, True])
async def test_a_stranger_at_the_name_hinders_no_other_place(crowded: bool, host: WorkerHost, session: str) -> None:
    address = sockets.memory_address(session)
    python = ["setpriv", "--reuid", "65534", "--clear-groups", "/usr/bin/python3", "-c", SQUATTER]
    with subprocess.Popen([*python, address[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as squatter:
        assert squatter.stdout is not None
        assert squatter.stdout.readline() == b"ready\n"
        with socket.socket(socket.AF_UNIX) as waiting:
            if crowded:
                waiting.setblocking(False)
                with contextlib.suppress(BlockingIOError):  # another test's registry stands in the queue already
                    waiting.connect(address)
            laptop = await host.drive(session)
            assert laptop.hello.storage == "disk"
            await laptop.next(Event)
            await laptop.drop()
            assert (await host.greeted(session, create=False)).storage == "disk"
            with file_limit(0):
                assert (await host.refused(str(uuid.uuid4()), fork_of=session)).code == "no_storage"
        squatter.terminate()


def bound(session: str) -> tuple[socket.socket, str]:
    address = sockets.memory_address(session)
    claimed = sockets.claim(address)
    assert claimed is not None
    assert sockets.claim(address) is None
    listener = sockets.listen(address, claimed)
    os.close(claimed)
    listener.settimeout(DEADLINE_S)
    return listener, address


def test_a_watch_looks_again_when_a_session_begins_in_memory(session: str) -> None:
    assert session not in session_watch._stamps()
    listener, _ = bound(session)
    with listener:
        assert session in session_watch._stamps()


COMER = """
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect("\\0" + sys.argv[1])
s.sendall(b"comer")
s.recv(1)
"""


def accepted(listener: socket.socket, address: str) -> str:
    """What is said of the comer. Another test's registry, which knocks at every name of the host, is let go."""
    while True:
        client, _ = listener.accept()
        with client:
            client.settimeout(DEADLINE_S)
            if client.recv(5) == b"comer":
                return sockets.stranger(client, address)


@pytest.mark.parametrize(
    ("wrapper", "who"),
    [
        ([], ""),
        (["unshare", "--pid", "--fork"], "another container"),
        (["setpriv", "--reuid", "65534", "--clear-groups"], "another user (uid 65534)"),
    ],
)
def test_who_connects_to_a_name_is_known(wrapper: list[str], who: str, session: str) -> None:
    listener, address = bound(session)
    python = "/usr/bin/python3" if wrapper else sys.executable  # which every user may run
    with subprocess.Popen([*wrapper, python, "-c", COMER, address[1:]]), listener:
        said = accepted(listener, address)
    assert who in said if who else said == ""


async def test_no_copy_takes_over_a_session_in_memory_that_has_its_id(host: WorkerHost, session: str) -> None:
    source = str(uuid.uuid4())
    first = await host.drive(source)
    await first.next(Event)
    with file_limit(0):
        assert (await host.greeted(session)).storage == "memory"
    for fresh in (True, False):
        assert (await host.refused(session, fork_of=source, fresh=fresh)).code == "in_use"
    assert not host.state(session).exists()
