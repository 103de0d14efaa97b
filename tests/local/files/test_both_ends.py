"""The two halves of a copy against each other, and each against another half that lies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import socket
import struct
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.local.files.both_ends import copy_channel as protocol
from ccb.local.files.both_ends import receiver as receiving
from ccb.local.files.both_ends.copy_host import failure
from ccb.local.files.both_ends.receiver import Receiver, part_name
from ccb.local.files.both_ends.sender import Sender

Part = dict[str, object] | bytes
BIG = protocol.RESUMABLE + 3 * protocol.PIECE + 17


class Count:
    """How many bytes were written."""

    bytes = 0


def half(end: socket.socket, wire: Count, limit: int | None = None) -> protocol.CopyChannel:
    """A channel over one end of a socket, which breaks after `limit` bytes were written."""

    def write(data: bytes) -> None:
        if limit is not None and wire.bytes + len(data) > limit:
            end.shutdown(socket.SHUT_WR)  # closed with unread bytes, it would take back what it has sent
            raise protocol.StreamEnded
        wire.bytes += len(data)
        end.sendall(data)

    return protocol.CopyChannel(lambda: end.recv(300_000), write)


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
        with contextlib.suppress(OSError):
            while here.recv(65536):  # as the program on the host does
                pass
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


def test_a_copy_that_broke_off_goes_on_where_it_was_unless_that_is_of_another_file(tmp_path: Path) -> None:
    source, copy, part = tmp_path / "source", tmp_path / "copy", tmp_path / part_name("copy")
    source.write_bytes(os.urandom(BIG))
    with pytest.raises(protocol.StreamEnded):
        carry(source, copy, limit=protocol.RESUMABLE + protocol.PIECE + protocol.PIECE // 2)
    assert not copy.exists()
    there = part.stat().st_size
    assert there >= protocol.RESUMABLE
    assert carry(source, copy).bytes < BIG - there + 2000
    assert copy.read_bytes() == source.read_bytes() and not part.exists()
    assert carry(source, copy).bytes < 2000, "what is there already is not copied again"
    part.write_bytes(os.urandom(protocol.RESUMABLE))
    copy.write_bytes(os.urandom(BIG))
    carry(source, copy)
    assert copy.read_bytes() == source.read_bytes()


def test_an_existing_file_keeps_its_mode_and_a_link_in_its_place_is_not_written_through(tmp_path: Path) -> None:
    source, copy, victim = tmp_path / "source", tmp_path / "copy", tmp_path / "victim"
    source.write_bytes(b"new")
    source.chmod(0o755)
    copy.write_bytes(b"old")
    copy.chmod(0o640)
    carry(source, copy)
    assert (copy.read_bytes(), copy.stat().st_mode & 0o777) == (b"new", 0o640)
    carry(source, tmp_path / "private", private=True)
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o600, "it is nobody else's"
    victim.write_bytes(b"mine")
    copy.unlink()
    copy.symlink_to(victim)
    (tmp_path / part_name("copy")).hardlink_to(victim)
    carry(source, copy)
    assert victim.read_bytes() == b"mine"
    assert copy.read_bytes() == b"new" and not copy.is_symlink()


def test_a_target_that_cannot_be_is_named_as_is_what_the_other_end_cannot_send(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"x")
    with (tmp_path / part_name("copy")).open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(protocol.CannotCopy, match="another copy"):
            carry(source, tmp_path / "copy")
    (tmp_path / "copy/name").mkdir(parents=True)
    with pytest.raises(protocol.CannotCopy, match="under which name"):
        carry(source, tmp_path, "..")
    with pytest.raises(protocol.CannotCopy, match="a folder of this name"):
        carry(source, tmp_path / "copy", "name")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(protocol.CannotCopy, match="a device, pipe or socket of this name"):
        carry(source, tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(FileNotFoundError, match="no such folder"):
        received(f"{tmp_path}/nowhere/", {"is": "source"}, name="name")
    with pytest.raises(protocol.CannotCopy, match="a link or a file of this name"):
        carry(tmp_path / "copy", tmp_path, "source")
    with pytest.raises(protocol.OtherEndFailed) as failed:
        carry(tmp_path / "nothing", tmp_path / "new")
    assert failed.value.code == errno.ENOENT and failed.value.path.endswith("nothing")
    with pytest.raises(protocol.OtherEndFailed, match="neither a file nor a folder"):
        carry(Path("/dev/null"), tmp_path / "new")


def _said(*parts: Part) -> protocol.CopyChannel:
    written = [(b"d", part) if isinstance(part, bytes) else (b"m", json.dumps(part).encode()) for part in parts]
    return _reading(b"".join(kind + struct.pack(">I", len(part)) + part for kind, part in written))


def _reading(*data: bytes) -> protocol.CopyChannel:
    """A channel whose other end has said this, in these pieces."""
    left = list(filter(None, data))
    return protocol.CopyChannel(lambda: left.pop(0) if left else b"", lambda data: None)


def received(target: str, *parts: Part, name: str = "copy", most: int = 0) -> None:
    Receiver(_said(*parts), protocol.CopyProgress(), most=most).receive(target, name)


def _file(path: str, data: bytes) -> list[Part]:
    digest = hashlib.sha256(data).hexdigest()
    pieces: list[Part] = [data] if data else []
    return [{"is": "file", "path": path, "bytes": len(data), "mode": 0o4777}, *pieces, {"is": "sum", "sha256": digest}]


def _announced(files: int, size: int, *parts: Part) -> list[Part]:
    return [{"is": "source", "folder": True, "files": files, "bytes": size, "mode": 0o700}, *parts]


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
    parts: list[Part] = [{"is": "source", "folder": True, "mode": 0o700}]
    for path in paths:
        parts += [{"is": "folder", "path": path, "mode": 0}] if folder else _file(path, b"evil")
    with contextlib.suppress(protocol.CannotCopy, ValueError, OSError, protocol.StreamEnded):
        received(str(top), *parts, {"is": "end"}, name="target")
    assert listing(outside) == {"x": b"mine"}
    assert {path.name for path in top.iterdir()} == {"outside", "target"}
    assert not any(path.lstat().st_mode & 0o7000 or "\x1b" in path.name for path in top.rglob("*"))


@pytest.mark.parametrize(
    ("parts", "most", "why"),
    [
        ([{"is": "source"}, {"is": "file", "bytes": 3}, b"four"], 0, ""),
        ([{"is": "source"}, {"is": "file", "bytes": 3}, b""], 0, ""),
        ([{"is": "source"}, {"is": "file", "bytes": -1}], 0, ""),
        ([{"is": "source"}, {"is": "file", "bytes": "3"}], 0, ""),
        ([{"is": "source"}, {"is": "file", "bytes": protocol.RESUMABLE}, {"is": "from", "bytes": 5}], 0, ""),
        ([{"is": "source"}, b"data"], 0, ""),
        ([{"is": "get", "path": "/etc/shadow"}], 0, ""),
        ([{"is": "source"}, {"is": "file", "bytes": 1}, b"x", {"is": "sum", "sha256": "0"}], 0, ""),
        ([b"x" * (protocol.MAX_PIECE + 1)], 0, ""),
        (_announced(1, 10, {"is": "file", "path": "a", "bytes": 1 << 40}), 0, "more than it has announced"),
        (_announced(1, 1, *_file("a", b"1"), {"is": "file", "path": "b", "bytes": 1 << 30}), 0, "more than it has"),
        (_announced(1, 1, *_file("a", b"1") * 3), 5, "it is a folder"),
        ([{"is": "source", "bytes": 6 << 20}], 5 << 20, "it has 6,291,456 bytes, more than 5,242,880"),
        ([{"is": "source", "bytes": 1}, {"is": "file", "bytes": 6}], 5, "more than it has announced"),
    ],
)
def test_a_sender_that_lies_or_sends_more_than_it_has_announced_gets_nothing_kept(
    tmp_path: Path, parts: list[Part], most: int, why: str
) -> None:
    copy = tmp_path / "copy"
    with pytest.raises(protocol.CannotCopy if why else (ValueError, protocol.CannotCopy), match=why or None):
        received(str(copy), *parts, most=most)
    assert not copy.is_file() and not (copy / "b").exists() and (bool(why) or not copy.exists())


@given(st.binary(max_size=64))
def test_bytes_that_are_no_part_of_a_copy_are_refused(data: bytes) -> None:
    channel = _reading(data)
    with pytest.raises((ValueError, protocol.StreamEnded, protocol.OtherEndFailed)):
        while True:
            channel.next()


@given(st.lists(st.one_of(st.binary(max_size=300), st.integers(0, 2**63 - 1)), max_size=20), st.integers(1, 50))
def test_what_is_sent_in_any_pieces_is_what_comes(parts: list[bytes | int], piece: int) -> None:
    wire = bytearray()
    channel = protocol.CopyChannel(bytes, wire.extend)
    for part in parts:
        channel.alive()
        channel.give(part, counted=False) if isinstance(part, bytes) else channel.taken(part)

    reading = _reading(*(bytes(wire[at : at + piece]) for at in range(0, len(wire), piece)))
    assert [reading.next() for _ in parts] == parts


class Connection:
    """A window that is filled and emptied on a connection with this round trip."""

    def __init__(self) -> None:
        self._now = 0.0
        self._window = protocol.Window(lambda: self._now)

    def round_trips(self, count: int, rate: float = 1e9, busy_s: float = 0.0) -> int:
        """Its size after `count` on a connection of 20 ms and `rate` bytes a second, every third so much longer."""
        for turn in range(count):
            while not self._window.full:
                self._window.send(protocol.PIECE)
            self._now += 0.02 + self._window.size / rate + busy_s * (turn % 3 == 2)
            self._window.take(self._window.sent)
        return self._window.size


def test_the_window_grows_on_a_quick_connection_and_shrinks_when_a_queue_builds_up() -> None:
    connection = Connection()
    assert connection.round_trips(20) == protocol.Window.LARGEST
    assert connection.round_trips(40, rate=1e6) < 3 * protocol.Window.SMALLEST
    assert connection.round_trips(40) == protocol.Window.LARGEST
    assert Connection().round_trips(60, busy_s=0.38) > 16 * protocol.PIECE, "such as of a laptop that draws"


def test_a_sender_cannot_make_folders_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "_MORE_ENTRIES", 5)
    folders: list[Part] = [{"is": "folder", "path": f"f{number}", "mode": 0o700} for number in range(20)]
    with pytest.raises(protocol.CannotCopy, match="more than it has announced"):
        received(str(tmp_path / "copy"), *_announced(1, 0, *folders))
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


def test_counts_are_asked_for_a_few_times_in_a_window() -> None:
    window = protocol.Window(lambda: 0.0)
    asked = 0
    for _ in range(2_000):
        if window.send(protocol.PIECE):
            asked += 1
            window.take(window.sent)
        assert not window.full
    assert asked < 2_000 / 20
