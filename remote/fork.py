"""A copy of a session under a new id, to go on in another direction; the old one is not touched, and may be running."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any, BinaryIO

from . import places
from .registry import Entry

Json = dict[str, Any]


def fork(entry: Entry, session: str) -> None:
    """Copy the journal of `entry` up to its last whole record, and the large outputs its conversation refers to.

    Raises OSError, NoPlace.
    """
    where = places.find_places(session)
    journal = os.path.join(where.state, "journal.jsonl")
    try:
        with open(entry.journal, "rb") as source, open(journal + ".new", "wb") as target:
            os.chmod(target.fileno(), 0o600)
            _copy(source, target, entry, session, where.state)
            target.flush()
            os.fsync(target.fileno())
        outputs = os.path.join(entry.directory, "outputs")
        if os.path.isdir(outputs):
            shutil.copytree(outputs, os.path.join(where.state, "outputs"), symlinks=True, dirs_exist_ok=True)
        os.replace(journal + ".new", journal)
    except BaseException:
        shutil.rmtree(where.state, ignore_errors=True)
        raise


def _copy(source: BinaryIO, target: BinaryIO, entry: Entry, session: str, state: str) -> None:
    seq, when = 0, 0.0
    old_outputs = json.dumps(os.path.join(entry.directory, "outputs"))[1:-1]
    new_outputs = json.dumps(os.path.join(state, "outputs"))[1:-1]
    for line in source:
        if not line.endswith(b"\n"):
            break  # the session is just writing it
        try:
            record = json.loads(line.replace(old_outputs.encode(), new_outputs.encode()))
            seq, when = int(record["seq"]), float(record["time"])
            body = record["body"]
        except (ValueError, KeyError, TypeError):
            target.write(line)
            continue
        if isinstance(body, dict):
            for name in ("session_id", "session"):
                if body.get(name) == entry.session:
                    body[name] = session
        target.write(_line(record))
    target.write(_line({"seq": seq + 1, "time": when, "kind": "forked", "body": {"from": entry.session}}))


def _line(record: Json) -> bytes:
    return json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
