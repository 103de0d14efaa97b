"""Copy a session under a new id. The original is not touched and may be running."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import BinaryIO

from ccb.tunnel.wire.journal_records import ForkedRecord, in_session, parse_line, record_of, to_line

from ..system.regular_files import rename_to_new
from . import session_paths
from .journal_summary import unused_origin
from .session_registry import SessionEntry

_BESIDES = ("outputs", "history")  # directories of a session that its copy gets as well


def fork(entry: SessionEntry, session: str) -> bool:
    """Copy the journal of `entry`, and its files. Return False if there is such a session. Raises OSError, NoPlace."""
    where = session_paths.find_paths(session)
    if not where.state:
        raise session_paths.NoPlace(where.notes[:-1])
    journal = os.path.join(where.state, "journal.jsonl")
    if os.path.exists(journal):
        return False
    temporary, plan = "%s.new-%d" % (journal, os.getpid()), os.path.join(where.state, session_paths.PLAN)
    try:
        with open(entry.journal, "rb") as source, open(temporary, "xb") as target:
            os.chmod(target.fileno(), 0o600)
            _copy(source, target, entry, session, where.state)
            target.flush()
            os.fsync(target.fileno())
        for name in _BESIDES:
            _copy_outputs(os.path.join(entry.directory, name), os.path.join(where.state, name))
        with contextlib.suppress(OSError):  # there may be no plan; both sessions change their own
            shutil.copy(os.path.join(entry.directory, session_paths.PLAN), plan, follow_symlinks=False)
        return rename_to_new(temporary, journal)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if not os.path.exists(journal):
            for name in _BESIDES:
                shutil.rmtree(os.path.join(where.state, name), ignore_errors=True)
            for remove, path in ((os.unlink, plan), (os.rmdir, where.state)):
                with contextlib.suppress(OSError):  # another connection may be making the same copy
                    remove(path)


def unused_copy_of(session: str) -> str:
    """Return the id of the session that this one is an unused copy of; "" if it is none or was driven since."""
    try:
        return unused_origin(session_paths.find_paths(session).file("journal.jsonl"))
    except OSError:
        return ""


def _copy(source: BinaryIO, target: BinaryIO, entry: SessionEntry, session: str, state: str) -> None:
    seq = 0
    old_outputs, new_outputs = (
        json.dumps(os.path.join(each, "outputs") + "/", ensure_ascii=False)[1:-1].encode("utf-8", "replace")
        for each in (entry.directory, state)
    )
    for line in source:
        if not line.endswith(b"\n"):
            break  # the daemon of the original is still writing this record
        record = parse_line(line.replace(old_outputs, new_outputs))
        if record is None:
            target.write(line)
            continue
        seq = max(seq, record.seq)
        target.write(to_line(in_session(record, entry.session, session)))
    target.write(to_line(record_of(ForkedRecord(entry.session), seq + 1, time.time())))


def _copy_outputs(source: str, target: str) -> None:
    """Hard-link the files into the copy, or copy them where that fails: they are only ever removed, never changed."""
    try:
        names = [name for name in os.listdir(source) if not name.startswith(".")]
    except OSError:
        return
    if names:
        os.makedirs(target, 0o700, exist_ok=True)
    for name in names:
        old, new = os.path.join(source, name), os.path.join(target, name)
        try:
            os.link(old, new, follow_symlinks=False)
        except (FileExistsError, FileNotFoundError):  # it was removed meanwhile, so it is no longer needed
            continue
        except OSError:
            shutil.copyfile(old, new, follow_symlinks=False)
            os.chmod(new, 0o600)
