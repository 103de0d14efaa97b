"""A session that moves to another machine: what leaves, what arrives, and who owns it meanwhile.

A move has three steps. The target gets the whole session into `arriving`, checked and on its disk. The source gets the
mark `moved`, with which no worker goes on there. The target gives the session its names. Whatever is cut off in
between, one side owns the session: the source until its mark is on the disk, then the target. Steps may be repeated.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from typing import BinaryIO

from ccb.tunnel.wire import session_archive as archive
from ccb.tunnel.wire.journal_records import ForkedRecord, OptionsRecord, parse_line, record_of, to_line

from ..system.regular_files import sync_directory
from .journal import MAX_RECORD
from .session_files import private_file
from .session_paths import MOVED, STOPPED
from .session_registry import NAME, SessionEntry

ARRIVING, LEAVING = "arriving", "leaving"  # directories below that of the session
_COMPLETE = "complete"  # file in `arriving`: the session has arrived whole
_BESIDE = (archive.PLAN, archive.TITLE)
_BELOW = (archive.OUTPUTS, archive.HISTORY)


def pack(entry: SessionEntry, path: str, tree: str = "") -> int:
    """Write the archive of a session, with the bundle `tree` of its files. Return the size of its journal."""
    size = journal_size(entry)
    manifest = archive.Manifest(
        entry.session, os.path.realpath(entry.cwd), os.path.join(entry.directory, archive.OUTPUTS)
    )
    with _new_file(path) as file:
        archive.begin(file, manifest)
        with open(entry.journal, "rb") as journal:
            archive.add_member(file, archive.JOURNAL, journal, size)
        for name in (*_BESIDE, *_names_below(entry.directory)):
            _add(file, name, os.path.join(entry.directory, name))
        if tree:
            _add(file, archive.TREE, tree)
        archive.end(file)
    return size


def journal_size(entry: SessionEntry) -> int:
    """Return the size of a journal without a last record that is cut off. It grows when the session goes on."""
    with open(entry.journal, "rb") as journal:
        size = journal.seek(0, os.SEEK_END)
        start = max(0, size - MAX_RECORD)
        journal.seek(start)
        return start + journal.read(size - start).rfind(b"\n") + 1


def _names_below(directory: str) -> list[str]:
    names = []
    for folder in _BELOW:
        with contextlib.suppress(FileNotFoundError):
            names += [f"{folder}/{name}" for name in sorted(os.listdir(os.path.join(directory, folder)))]
    return [name for name in names if archive.most_bytes(name) >= 0]


def _add(file: BinaryIO, name: str, path: str) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:  # there is no plan, or an old version was removed meanwhile
        return
    with open(fd, "rb") as source:
        archive.add_member(file, name, source, os.fstat(fd).st_size)


def leave(entry: SessionEntry, to: str) -> None:
    """Mark the session as moved, durably. Its locks are held."""
    path = os.path.join(entry.directory, MOVED)
    with _new_file(path + ".new") as file:
        file.write(json.dumps({"to": to}).encode())
    os.replace(path + ".new", path)
    sync_directory(entry.directory)
    shutil.rmtree(os.path.join(entry.directory, LEAVING), ignore_errors=True)


def unpack(path: str, state: str, session: str, to: str) -> bool:
    """Unpack an archive into `arriving` below the state directory `state`. The session works in the real path `to` from
    now on. Return whether a bundle of files came along. Raise BadArchive, also for a journal that no worker wrote."""
    place = os.path.join(state, ARRIVING)
    for folder in (*_BELOW, os.path.dirname(archive.TREE)):  # git gets at nothing else than the bundle
        os.mkdir(os.path.join(place, folder), 0o700)
    with open(path, "rb") as file:
        for name, pieces in archive.members(file):
            with _new_file(os.path.join(place, name)) as target:  # a name of the closed table
                target.writelines(pieces)
    with open(os.path.join(place, archive.MANIFEST), "rb") as file:
        manifest = archive.Manifest.read(file.read())
    if manifest.session != session:
        raise archive.BadArchive("it is another session")
    journal = os.path.join(place, archive.JOURNAL)
    arrived = ForkedRecord(session, root=manifest.root, to=to, outputs=manifest.outputs)
    last = _last_number(journal, session)
    with open(journal, "ab") as file:
        file.write(to_line(record_of(arrived, last + 1, time.time())))
        os.fsync(file.fileno())
    for folder in (*_BELOW, "."):
        sync_directory(os.path.join(place, folder))
    return os.path.exists(os.path.join(place, archive.TREE))


def complete(state: str) -> None:
    """Note that the session has arrived whole. From now on only the source decides what becomes of it."""
    with _new_file(os.path.join(state, ARRIVING, _COMPLETE)):
        pass
    sync_directory(os.path.join(state, ARRIVING))


def is_complete(state: str) -> bool:
    return os.path.exists(os.path.join(state, ARRIVING, _COMPLETE))


def settle(state: str) -> None:
    """Give the session that has arrived its names, in place of one that has moved away earlier. Its locks are held."""
    place = os.path.join(state, ARRIVING)
    for name in (NAME, STOPPED):
        with contextlib.suppress(FileNotFoundError):  # they tell of its earlier stay here
            os.unlink(os.path.join(state, name))
    for name in (*_BELOW, *_BESIDE, archive.JOURNAL):  # the journal last: with it the session is there
        if os.path.exists(os.path.join(place, name)):  # else an earlier attempt has renamed it
            shutil.rmtree(os.path.join(state, name), ignore_errors=True)  # a folder of its earlier stay
            os.replace(os.path.join(place, name), os.path.join(state, name))
    sync_directory(state)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(state, MOVED))
    sync_directory(state)
    discard(state)


def discard(state: str) -> None:
    """Throw away what has arrived. From the first moment on it is not complete any more."""
    place = os.path.join(state, ARRIVING)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(place, _COMPLETE))
    shutil.rmtree(place, ignore_errors=True)


def _last_number(path: str, session: str) -> int:
    """Return the number of the last record of a journal that came from elsewhere. Raise BadArchive if it is damaged, or
    is not the journal of that session: its numbers are what a worker counts with."""
    last = 0
    with open(path, "rb") as file:
        for line in iter(lambda: file.readline(MAX_RECORD + 1), b""):
            record = parse_line(line) if line.endswith(b"\n") else None
            if record is None or record.seq != last + 1:
                raise archive.BadArchive("its journal is damaged after record %d" % last)
            first = record.content if not last else None
            if not last and not (isinstance(first, OptionsRecord) and first.session == session):
                raise archive.BadArchive("its journal is that of another session")
            last = record.seq
    if not last:
        raise archive.BadArchive("its journal is empty")
    return last


@contextlib.contextmanager
def _new_file(path: str) -> Iterator[BinaryIO]:
    """Write a private file, which is on the disk at the end."""
    with open(path, "wb", opener=private_file) as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
