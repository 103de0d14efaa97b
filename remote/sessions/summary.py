"""What `ccb ps` shows of a session, in a small file beside its journal.

A cache for the eyes of people and for finding sessions: the journal stays the truth. It also says which process owns the
session, for hosts that share a home.
"""

from __future__ import annotations

import json
import logging
import os
from typing import Any

Json = dict[str, Any]

log = logging.getLogger(__name__)

NAME = "summary.json"
OWNER = ("hostname", "boot", "pid", "started", "socket", "bundle", "mark")
"""The fields that name the owning process; absent when it has ended well."""

_MAX_BYTES = 64 * 1024


class SummaryFile:
    """Kept by the session's daemon. `fixed` holds the fields that never change, among them those of OWNER. Without a directory
    there are only `fields`, one and the same object all the time."""

    def __init__(self, state_directory: str, fixed: Json) -> None:
        self._path = os.path.join(state_directory, NAME) if state_directory else ""
        self.fields: Json = dict(fixed)
        self._written = b""

    def update(self, **fields: object) -> None:
        """Change fields; written at once when that changes anything. A failure is logged, never raised."""
        self.fields.update(fields)
        self._write()

    def remove_owner(self) -> None:
        """The owning process is about to end."""
        for name in OWNER:
            self.fields.pop(name, None)
        self._write()

    def _write(self) -> None:
        if not self._path:
            return
        data = json.dumps(self.fields, ensure_ascii=False).encode("utf-8", "replace")
        if data == self._written:
            return
        try:
            fd = os.open(self._path + ".new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "wb") as file:
                file.write(data)
            os.replace(self._path + ".new", self._path)
            self._written = data
        except OSError as error:
            log.warning("the summary of the session cannot be written: %s", error)


def read_summary(state_directory: str) -> Json:
    """The fields, {} when there is none or it is damaged."""
    try:
        fd = os.open(os.path.join(state_directory, NAME), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            data = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
