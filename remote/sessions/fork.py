"""A copy of a session under a new id, to go on in another direction; the old one is not touched, and may be running."""

from __future__ import annotations

import json
import os
import shutil
import time
from typing import Any, BinaryIO

from . import paths
from .registry import Entry

Json = dict[str, Any]


def fork(entry: Entry, session: str) -> bool:
    """Copy the journal of `entry` up to its last whole record, and the large outputs its conversation refers to. False when there
    is a session of that id already, which stays as it is. Raises OSError, NoPlace.
    """
    where = paths.find_places(session)
    if not where.state:
        raise paths.NoPlace(where.notes[:-1])
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
        _copy_outputs(os.path.join(entry.directory, "outputs"), os.path.join(where.state, "outputs"))
        return _put(temporary, journal)
    finally:
        if os.path.exists(temporary):
            os.unlink(temporary)
        if not os.path.exists(journal):
            shutil.rmtree(os.path.join(where.state, "outputs"), ignore_errors=True)
            try:
                os.rmdir(where.state)
            except OSError:
                pass  # another connection makes the same copy


def _put(temporary: str, journal: str) -> bool:
    """Give the whole copy its name; False when another connection was first."""
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
    """The session that this one is a copy of; "" when it is none, or was driven since."""
    of = ""
    try:
        with open(paths.find_places(session).file("journal.jsonl"), "rb") as file:
            for line in file:
                if b'"forked"' not in line and b'"driver"' not in line:
                    continue
                try:
                    record = json.loads(line)
                    if record["kind"] in ("forked", "driver"):
                        of = str(record["body"].get("from") or "")
                except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                    continue
    except OSError:
        return ""
    return of


def _copy(source: BinaryIO, target: BinaryIO, entry: Entry, session: str, state: str) -> None:
    seq = 0
    old_outputs, new_outputs = (
        json.dumps(os.path.join(each, "outputs") + "/", ensure_ascii=False)[1:-1].encode("utf-8", "replace")
        for each in (entry.directory, state)
    )
    for line in source:
        if not line.endswith(b"\n"):
            break  # the session is just writing it
        try:
            record = json.loads(line.replace(old_outputs, new_outputs))
            seq = max(seq, int(record["seq"]))
            body = record["body"]
        except (ValueError, KeyError, TypeError, RecursionError):
            target.write(line)
            continue
        _rename(body, entry.session, session)
        if isinstance(body, dict):
            _rename(body.get("body"), entry.session, session)
        target.write(_line(record))
    body = {"from": entry.session}
    target.write(_line({"seq": seq + 1, "time": round(time.time(), 3), "kind": "forked", "body": body}))


def _rename(body: object, old: str, new: str) -> None:
    """Public messages and the options name their session."""
    if isinstance(body, dict):
        for name in ("session_id", "session"):
            if body.get(name) == old:
                body[name] = new


def _line(record: Json) -> bytes:
    text = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "replace") + b"\n"


def _copy_outputs(source: str, target: str) -> None:
    """The files are never changed, only removed, so another name for them is enough where the file system has that. What
    goes while it is copied was not needed any more."""
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
