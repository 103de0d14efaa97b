"""Copy a session under a new id, so that the copy can go on in another direction. The original is not touched and may
be running."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from typing import BinaryIO

from ccb.tunnel.wire.journal_records import ForkedRecord, in_session, parse_line, record_of, to_line

from . import session_paths
from .journal_summary import unused_origin
from .session_registry import SessionEntry

_BESIDES = ("outputs", "history")
"""The directories of a session that its copy gets as well: large outputs, and earlier versions of files."""


def fork(entry: SessionEntry, session: str) -> bool:
    """Copy the journal of `entry` up to its last whole record, with its large outputs and its file history.
    Return False and change nothing when a session of that id already exists. Raises OSError, NoPlace.
    """
    where = session_paths.find_paths(session)
    if not where.state:
        raise session_paths.NoPlace(where.notes[:-1])
    journal = os.path.join(where.state, "journal.jsonl")
    if os.path.exists(journal):
        return False
    temporary = "%s.new-%d" % (journal, os.getpid())
    try:
        with open(entry.journal, "rb") as source, open(temporary, "xb") as target:
            os.chmod(target.fileno(), 0o600)
            _copy(source, target, entry, session, where.state)
            target.flush()
            os.fsync(target.fileno())
        for name in _BESIDES:
            _copy_outputs(os.path.join(entry.directory, name), os.path.join(where.state, name))
        _copy_plan(os.path.join(entry.directory, session_paths.PLAN), os.path.join(where.state, session_paths.PLAN))
        return _put(temporary, journal)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if not os.path.exists(journal):
            for name in _BESIDES:
                shutil.rmtree(os.path.join(where.state, name), ignore_errors=True)
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(where.state, session_paths.PLAN))
            try:
                os.rmdir(where.state)
            except OSError:
                pass  # another connection is making the same copy


def _put(temporary: str, journal: str) -> bool:
    """Rename the finished copy to its final name. Return False when another connection has made the copy first."""
    try:
        os.link(temporary, journal)
    except FileExistsError:
        return False
    except OSError:  # a file system without hard links
        if os.path.exists(journal):
            return False
        os.rename(temporary, journal)
    return True


def unused_copy_of(session: str) -> str:
    """Return the id of the session that this one is an unused copy of; "" when it is not a copy or was driven since."""
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


def _copy_plan(source: str, target: str) -> None:
    """Copy the plan: both sessions change their own. Without a plan, do nothing."""
    with contextlib.suppress(OSError):
        shutil.copy(source, target, follow_symlinks=False)


def _copy_outputs(source: str, target: str) -> None:
    """Hard-link the files into the copy, or copy them where the file system has no hard links. A link is safe because
    they are never changed, only removed. Skip a file that disappears meanwhile: it is no longer needed."""
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
        except FileExistsError:
            continue
        except FileNotFoundError:
            continue
        except OSError:
            shutil.copyfile(old, new, follow_symlinks=False)
            os.chmod(new, 0o600)
