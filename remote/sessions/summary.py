"""The summary of a session: a small file beside its journal. `ccb ps` shows it, and look-ups of sessions read it.

The summary is a cache; the journal is authoritative. It also names the process that owns the session, for hosts that
share a home directory.
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
"""The fields that name the owning process. They are absent after it has ended normally."""

_MAX_BYTES = 64 * 1024


class SummaryFile:
    """The summary file of a running daemon. `fixed` has the fields that never change, including those of OWNER. Without
    a state directory nothing is written. `fields` is always the same object."""

    def __init__(self, state_directory: str, fixed: Json) -> None:
        self._path = os.path.join(state_directory, NAME) if state_directory else ""
        self.fields: Json = dict(fixed)
        self._written = b""

    def update(self, **fields: object) -> None:
        """Change fields, and write the file if a value differs. A failure is logged, not raised."""
        self.fields.update(fields)
        self._write()

    def remove_owner(self) -> None:
        """Remove the fields of OWNER: the owning process is about to end."""
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
    """Return the fields of a summary, {} when there is no file or it is damaged."""
    try:
        fd = os.open(os.path.join(state_directory, NAME), os.O_RDONLY | os.O_NOFOLLOW)
        with os.fdopen(fd, "rb") as file:
            data = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}
