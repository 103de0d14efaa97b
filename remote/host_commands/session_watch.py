"""`ccb dash`: report the sessions of this host, and from then on those that change, until the laptop has gone.

A worker touches the directory of all sessions with each change of its summary, so one look at the times of these
directories tells whether anything has changed. A worker that was killed, or is of an older version, tells nobody:
everything is read again now and then while one lives.
"""

from __future__ import annotations

import os
import select
import time

from ccb.tunnel.wire.frames import Json

from ..session_store import session_registry as registry
from ..session_store import sockets
from .reports import Reports

LOOK_S = 1.0
REREAD_S = 20.0
_AGES = ("age_s", "idle_s", "rss", "bytes")
"""Fields that change with time: no reason to report a session."""


def watch_sessions(reports: Reports, laptop: int = 0) -> None:
    """Report `session` for a new or changed one, `gone` for one that was removed, and `listed` after each round that
    had any. `laptop` can be read once the laptop has gone."""
    known: dict[str, Json] = {}
    stamps: list[object] = []
    unsure = True  # two changes may have the same time
    read_at = 0.0
    while not reports.gone:
        now, before, stamps = time.monotonic(), stamps, _stamps()
        lives = any(each["alive"] for each in known.values())
        if unsure or stamps != before or (lives and now - read_at >= REREAD_S):
            if _report_changes(known, reports) or not read_at:
                reports.report("listed", {})
            unsure, read_at = stamps != before, now
        if select.select([laptop], [], [], LOOK_S)[0] and not os.read(laptop, 4096):
            return


def _stamps() -> list[object]:
    stamps: list[object] = [*sockets.sessions_in_memory()]  # these have no directory
    for path in (*registry.state_directories(), *registry.runtime_directories()):
        try:
            stamps.append(os.stat(path).st_mtime_ns)
        except OSError:
            stamps.append(0)
    return stamps


def _report_changes(known: dict[str, Json], reports: Reports) -> bool:
    """Report what differs from `known`, and keep it there. Return whether anything did."""
    found = {entry.session: registry.described(entry) for entry in registry.sessions()}
    changed = [each for name, each in found.items() if _lasting(each) != _lasting(known.get(name, {}))]
    gone = [name for name in known if name not in found]
    for each in changed:
        reports.report("session", each)
    for name in gone:
        reports.report("gone", {"session": name})
    known.clear()
    known.update(found)
    return bool(changed or gone)


def _lasting(described: Json) -> Json:
    return {name: value for name, value in described.items() if name not in _AGES}
