"""The two halves of a copy against each other, and each against another half that lies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import select
import socket
import struct
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.local.files.both_ends import copy_channel as protocol
from ccb.local.files.both_ends import receiver as receiving
from ccb.local.files.both_ends.copy_host import failure
from ccb.local.files.both_ends.receiver import Receiver, part_name
from ccb.local.files.both_ends.sender import Sender

BIG = protocol.RESUMABLE + 3 * protocol.PIECE + 17


class Count:
    def __init__(self) -> None:
        self.bytes = 0

    def __call__(self, size: int) -> None:
        self.bytes += size


def half(end: socket.socket, wire: Count, limit: int | None = None) -> protocol.CopyChannel:
    """A channel over one end of a socket, which breaks after `limit` bytes were written."""

    def write(parts: Sequence[bytes]) -> None:
        data = b"".join(parts)
        if limit is not None and wire.bytes + len(data) > limit:
            end.close()
            raise protocol.StreamEnded
        wire(len(data))
        try:
            end.sendall(data)
        except OSError:
            # As ThreadPipe: what the other end has sent before it went is read first.
            if end.fileno() < 0 or not select.select([end], [], [], 0)[0]:
                raise protocol.StreamEnded from None

    def read(least: int) -> list[bytes]:
        try:
            data = end.recv(300_000)
        except OSError:
            return []
        return [data] if data else []

    return protocol.CopyChannel(read, write)


def carry(source: Path, target: Path, name: str = "name", *, limit: int | None = None, private: bool = False) -> Count:
    """Copy `source` to `target`; return the bytes that the sender wrote. Raise what the receiver raises."""
    here, there = socket.socketpair()
    wire = Count()

    def send() -> None:
        channel = half(here, wire, limit)
        try:
            Sender(channel, protocol.CopyProgress()).send(str(source))
        except protocol.StreamEnded:
            pass
        except (OSError, protocol.CannotCopy) as error:
            channel.say("failed", **failure(error))
        here.close()

    sending = threading.Thread(target=send)
    sending.start()
    try:
        Receiver(half(there, Count()), protocol.CopyProgress(), private=private).receive(str(target), name)
    finally:
        there.close()
        sending.join(10)
    return wire


def listing(root: Path) -> dict[str, bytes | None]:
    found = sorted(root.rglob("*"))
    return {str(path.relative_to(root)): path.read_bytes() if path.is_file() else None for path in found}


@pytest.mark.parametrize("size", [0, 1, protocol.PIECE, protocol.PIECE + 1, BIG])
def test_a_file_arrives_as_it_is(tmp_path: Path, size: int) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(size))
    carry(source, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == source.read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"source", "copy"}


def test_a_folder_arrives_without_links_and_devices(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "a/b/c").mkdir(parents=True)
    (source / "a/b/c/deep").write_bytes(b"deep")
    (source / "a/script").write_bytes(b"#!")
    (source / "a/script").chmod(0o755)
    (source / "empty").mkdir()
    (source / "link").symlink_to("/etc/passwd")
    (source / "drives\x1b[2Jterminals").touch()
    os.mkfifo(source / "pipe")
    carry(source, tmp_path / "copy")
    assert listing(tmp_path / "copy") == {
        "a": None, "a/b": None, "a/b/c": None, "a/b/c/deep": b"deep", "a/script": b"#!", "empty": None,
    }  # fmt: skip
    assert os.access(tmp_path / "copy/a/script", os.X_OK)
    (tmp_path / "there").mkdir()
    carry(source, tmp_path / "there", "mine")
    assert listing(tmp_path / "there/mine") == listing(tmp_path / "copy")


def test_a_copy_that_broke_off_goes_on_where_it_was(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(os.urandom(BIG))
    with pytest.raises(protocol.StreamEnded):
        carry(source, copy, limit=protocol.RESUMABLE + protocol.PIECE + protocol.PIECE // 2)
    assert not copy.exists()
    part = tmp_path / part_name("copy")
    there = part.stat().st_size
    assert there >= protocol.RESUMABLE
    assert carry(source, copy).bytes < BIG - there + 2000
    assert copy.read_bytes() == source.read_bytes() and not part.exists()
    assert carry(source, copy).bytes < 2000, "what is there already is not copied again"


def test_what_is_there_of_another_file_is_not_gone_on_with(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(os.urandom(BIG))
    (tmp_path / part_name("copy")).write_bytes(os.urandom(protocol.RESUMABLE))
    copy.write_bytes(os.urandom(BIG))
    carry(source, copy)
    assert copy.read_bytes() == source.read_bytes()


def test_an_existing_file_keeps_its_mode_and_a_private_one_is_nobody_elses(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(b"new")
    source.chmod(0o755)
    copy.write_bytes(b"old")
    copy.chmod(0o640)
    carry(source, copy)
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (b"new", 0o640)
    carry(source, tmp_path / "private", private=True)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_the_target_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    source, victim = tmp_path / "source", tmp_path / "victim"
    source.write_bytes(b"new")
    victim.write_bytes(b"mine")
    (tmp_path / "copy").symlink_to(victim)
    (tmp_path / part_name("copy")).hardlink_to(victim)
    carry(source, tmp_path / "copy")
    assert victim.read_bytes() == b"mine"
    assert (tmp_path / "copy").read_bytes() == b"new" and not (tmp_path / "copy").is_symlink()


def test_a_second_copy_to_the_same_file_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with (tmp_path / part_name("copy")).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(protocol.CannotCopy, match="another copy"):
            carry(source, tmp_path / "copy")


def test_a_target_that_cannot_be_is_named(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    (tmp_path / "copy/name").mkdir(parents=True)
    with pytest.raises(protocol.CannotCopy, match="under which name"):
        carry(source, tmp_path, "..")
    with pytest.raises(protocol.CannotCopy, match="a folder of this name"):
        carry(source, tmp_path / "copy", "name")
    with pytest.raises(protocol.CannotCopy, match="no such folder"):
        Receiver(_said({"is": "source"}), protocol.CopyProgress()).receive(f"{tmp_path}/nowhere/", "name")
    with pytest.raises(protocol.CannotCopy, match="a link or a file of this name"):
        carry(tmp_path / "copy", tmp_path, "source")


def test_the_other_end_says_why_it_cannot(tmp_path: Path) -> None:
    with pytest.raises(protocol.OtherEndFailed) as failed:
        carry(tmp_path / "nothing", tmp_path / "copy")
    assert failed.value.code == errno.ENOENT and failed.value.path.endswith("nothing")
    with pytest.raises(protocol.OtherEndFailed, match="neither a file nor a folder"):
        carry(Path("/dev/null"), tmp_path / "copy")


def _said(*parts: dict[str, object] | bytes) -> protocol.CopyChannel:
    frames = [
        (b"d" + struct.pack(">I", len(part)) + part)
        if isinstance(part, bytes)
        else (b"m" + struct.pack(">I", len(json.dumps(part))) + json.dumps(part).encode())
        for part in parts
    ]
    return _reading(b"".join(frames))


def _reading(*data: bytes) -> protocol.CopyChannel:
    """A channel whose other end has said this, in these pieces."""
    left = list(filter(None, data))
    return protocol.CopyChannel(lambda least: [left.pop(0) for _ in left[:2]], lambda parts: None)


def _file(path: str, data: bytes) -> list[dict[str, object] | bytes]:
    digest = hashlib.sha256(data).hexdigest()
    pieces: list[dict[str, object] | bytes] = [data] if data else []
    return [{"is": "file", "path": path, "bytes": len(data), "mode": 0o4777}, *pieces, {"is": "sum", "sha256": digest}]


_HOSTILE_NAMES = ["", "\0", "x\0y", "x\x1b]0;y\x07", "..", ".", "/", "/etc/passwd", "a/../../b", "../b", "a//b", "a/"]
_HOSTILE = st.one_of(
    st.sampled_from([*_HOSTILE_NAMES, "link/x", "a/./b", "x/../y"]),
    st.lists(st.sampled_from(["..", ".", "", "a", "link", "loop", "b"]), min_size=1, max_size=5).map("/".join),
    st.text(max_size=8),
)


@given(paths=st.lists(_HOSTILE, min_size=1, max_size=4), folder=st.booleans())
def test_nothing_lands_outside_the_target(
    tmp_path_factory: pytest.TempPathFactory, paths: list[str], folder: bool
) -> None:
    top = tmp_path_factory.mktemp("hostile")
    outside, target = top / "outside", top / "target"
    outside.mkdir()
    target.mkdir()
    (outside / "x").write_bytes(b"mine")
    (target / "link").symlink_to(outside)
    (target / "loop").symlink_to("loop")
    parts: list[dict[str, object] | bytes] = [{"is": "source", "folder": True, "mode": 0o700}]
    for path in paths:
        parts += [{"is": "folder", "path": path, "mode": 0}] if folder else _file(path, b"evil")
    with contextlib.suppress(protocol.CannotCopy, ValueError, OSError, protocol.StreamEnded):
        Receiver(_said(*parts, {"is": "end"}), protocol.CopyProgress()).receive(str(top), "target")
    assert listing(outside) == {"x": b"mine"}
    assert {path.name for path in top.iterdir()} == {"outside", "target"}
    assert not any(path.lstat().st_mode & 0o7000 or "\x1b" in path.name for path in top.rglob("*"))


@pytest.mark.parametrize(
    "parts",
    [
        [{"is": "source"}, {"is": "file", "bytes": 3}, b"four"],
        [{"is": "source"}, {"is": "file", "bytes": 3}, b""],
        [{"is": "source"}, {"is": "file", "bytes": -1}],
        [{"is": "source"}, {"is": "file", "bytes": "3"}],
        [{"is": "source"}, {"is": "file", "bytes": protocol.RESUMABLE}, {"is": "from", "bytes": 5}],
        [{"is": "source"}, b"data"],
        [{"is": "get", "path": "/etc/shadow"}],
        [{"is": "source"}, {"is": "file", "bytes": 1}, b"x", {"is": "sum", "sha256": "0"}],
        [b"x" * (protocol.MAX_PIECE + 1)],
    ],
)
def test_a_sender_that_lies_gets_nothing_kept(tmp_path: Path, parts: list[dict[str, object] | bytes]) -> None:
    with pytest.raises((ValueError, protocol.CannotCopy)):
        Receiver(_said(*parts), protocol.CopyProgress()).receive(str(tmp_path / "copy"), "copy")
    assert not (tmp_path / "copy").exists()


@given(st.binary(max_size=64))
def test_bytes_that_are_no_part_of_a_copy_are_refused(data: bytes) -> None:
    channel = _reading(data)
    with pytest.raises((ValueError, protocol.StreamEnded, protocol.OtherEndFailed)):
        while True:
            channel.next()


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 2**63 - 1)), max_size=20), st.integers(1, 50))
def test_what_is_sent_in_any_pieces_is_what_comes(parts: list[bytes | int], piece: int) -> None:
    wire = bytearray()
    channel = protocol.CopyChannel(lambda least: [], lambda parts: wire.extend(b"".join(parts)))
    for part in parts:
        channel.alive()
        channel.give(part, counted=False) if isinstance(part, bytes) else channel.taken(part)

    reading = _reading(*(bytes(wire[at : at + piece]) for at in range(0, len(wire), piece)))
    found = [reading.next() for _ in parts]
    assert [b"".join(each) if isinstance(each, list) else each for each in found] == parts


def test_the_window_grows_on_a_quick_connection_and_shrinks_when_a_queue_builds_up() -> None:
    now = [0.0]
    window = protocol.Window(lambda: now[0])

    def round_trips(count: int, rate: float) -> int:
        """Fill the window and empty it `count` times on a connection of 20 ms and `rate` bytes a second."""
        for _ in range(count):
            while not window.full:
                window.send(protocol.PIECE)
            now[0] += 0.02 + window.size / rate
            window.take(window.sent)
        return window.size

    assert round_trips(20, 1e9) == protocol.Window.LARGEST
    assert round_trips(40, 1e6) < 3 * protocol.Window.SMALLEST
    assert round_trips(40, 1e9) == protocol.Window.LARGEST


def _announced(files: int, size: int, *parts: dict[str, object] | bytes) -> list[dict[str, object] | bytes]:
    return [{"is": "source", "folder": True, "files": files, "bytes": size, "mode": 0o700}, *parts]


@pytest.mark.parametrize(
    ("parts", "most", "why"),
    [
        (_announced(1, 10, {"is": "file", "path": "a", "bytes": 1 << 40}), 0, "more than it has announced"),
        (_announced(1, 1, *_file("a", b"1"), {"is": "file", "path": "b", "bytes": 1 << 30}), 0, "more than it has"),
        (_announced(1, 1, *_file("a", b"1") * 3), 5, "it is a folder"),
        ([{"is": "source", "bytes": 6 << 20}], 5 << 20, "it is larger than 5 MB"),
        ([{"is": "source", "bytes": 1}, {"is": "file", "bytes": 6}], 5, "more than it has announced"),
    ],
)
def test_a_sender_cannot_send_much_more_than_it_has_announced(
    tmp_path: Path, parts: list[dict[str, object] | bytes], most: int, why: str
) -> None:
    with pytest.raises(protocol.CannotCopy, match=why):
        Receiver(_said(*parts), protocol.CopyProgress(), most=most).receive(str(tmp_path / "copy"), "copy")
    assert not (tmp_path / "copy").is_file() and not (tmp_path / "copy/b").exists()


def test_a_sender_cannot_make_folders_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_MORE_ENTRIES", 5)
    names = [f"f{number}" for number in range(20)]
    folders: list[dict[str, object] | bytes] = [{"is": "folder", "path": name, "mode": 0o700} for name in names]
    with pytest.raises(protocol.CannotCopy, match="more than it has announced"):
        Receiver(_said(*_announced(1, 0, *folders)), protocol.CopyProgress()).receive(str(tmp_path / "copy"), "copy")
    assert len(list((tmp_path / "copy").iterdir())) == 7


def test_a_file_that_changes_while_it_is_sent_is_never_kept(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(os.urandom(8 << 20))

    class Shrinks(protocol.CopyProgress):
        def moved(self, size: int) -> None:
            os.truncate(source, 3 << 20)

    ours, theirs = socket.socketpair()
    failed: list[str] = []

    def send() -> None:
        with theirs:
            try:
                Sender(half(theirs, Count()), Shrinks()).send(str(source))
            except protocol.CannotCopy as error:
                failed.append(error.why)

    sending = threading.Thread(target=send)
    sending.start()
    with ours, pytest.raises(protocol.StreamEnded):
        Receiver(half(ours, Count()), protocol.CopyProgress()).receive(str(tmp_path / "copy"), "copy")
    sending.join()
    assert failed == ["it has become shorter meanwhile"] and not (tmp_path / "copy").exists()


def test_a_busy_moment_does_not_shrink_the_window_of_a_quick_connection() -> None:
    now = [0.0]
    window = protocol.Window(lambda: now[0])
    for turn in range(60):
        while not window.full:
            window.send(protocol.PIECE)
        now[0] += 0.4 if turn % 3 == 2 else 0.02  # such as of a laptop that draws
        window.take(window.sent)
    assert window.size > 16 * protocol.PIECE


def test_counts_are_asked_for_a_few_times_in_a_window() -> None:
    window = protocol.Window(lambda: 0.0)
    asked = 0
    for _ in range(2_000):
        if window.send(protocol.PIECE):
            asked += 1
            window.take(window.sent)
        assert not window.full
    assert asked < 2_000 / 20
