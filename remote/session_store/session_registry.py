"""Find sessions, and their summaries: caches of what journals say, with the process and host that own the session."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator

from ccb.tunnel.wire.frames import Json

from . import session_paths, sockets
from .locks import elsewhere, is_alive
from .node_claim import UNSHARED, NodeClaim
from .refusal import HostRefusal, no_session
from .session_directory import is_same_directory
from .session_files import replace_private

_ID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_-]{0,63}")
_MAX_HELLO = 256 * 1024
_ASK_S = 2.0
ASKS = "requires_action"  # the state of a session with an open question
TITLE = "title"  # the file with the name that a list has given to a session

_MAX_EARLIER = 20
_OF_WORKTREE = re.compile(r"/\.claude/worktrees/[^/]+")
_DERIVED = ("cwd", "created")  # taken from the journal when the summary does not have them


class SessionEntry:
    """A session. `directory` is its state directory, "" when it is in memory only; `summary` has its known fields."""

    def __init__(self, session: str, directory: str, summary: Json) -> None:
        self.session, self.directory, self.summary = session, directory, summary

    @property
    def cwd(self) -> str:
        return str(self.summary.get("cwd") or "")

    @property
    def updated(self) -> float:
        value = self.summary.get("updated")
        return float(value) if isinstance(value, (int, float)) else 0.0

    def works_in(self, path: str) -> bool:
        """Return whether a canonical path is its directory, or the one in which its worktree was made."""
        return path in (self.cwd, _OF_WORKTREE.sub("", self.cwd))

    def is_now_in(self, path: str) -> bool:
        """Return whether the directory at `path` is its own, or holds its worktree, under whatever names."""
        found = _OF_WORKTREE.search(self.cwd)
        places = [path, path + self.cwd[found.start() :]] if found else [path]
        return any(is_same_directory(each, self.summary.get("root")) for each in places)

    @property
    def alive(self) -> bool:
        return is_alive(self.summary)

    @property
    def pid(self) -> int:
        """The process of its worker; 0 when none lives."""
        return _count(self.summary.get("pid")) if self.alive else 0

    @property
    def elsewhere(self) -> str:
        """The name of another host that may run its daemon because it shares the home; "" for none."""
        return elsewhere(self.summary)

    @property
    def moved_to(self) -> str:
        return moved_to(self.directory)

    @property
    def journal(self) -> str:
        return os.path.join(self.directory, "journal.jsonl") if self.directory else ""


def moved_to(directory: str) -> str:
    """Return where the session of a state directory has moved to, "" if it has not."""
    path = os.path.join(directory, session_paths.MOVED)
    return str(read_object(path).get("to") or "another machine") if directory and os.path.lexists(path) else ""


def check_not_moved(directory: str) -> None:
    """Raise HostRefusal if the session of a state directory has moved to another machine."""
    place = moved_to(directory)
    if place:
        do = "Go on with it there, or give the same `ccb move` again."
        raise HostRefusal("in_use", "the session has moved to %s" % place, {"do": do})


def state_directories() -> list[str]:
    """Return the directories that may hold state directories of sessions. They need not exist."""
    durable, _ = session_paths.durable_directory("")
    volatile = [os.path.join(runtime, "sessions") for runtime in runtime_directories()]
    return [os.path.dirname(durable), *volatile] if durable else volatile


def runtime_directories() -> list[str]:
    """Return where sockets and locks may be: another login may have had another environment."""
    xdg, home = os.environ.get("XDG_RUNTIME_DIR") or "", session_paths.home_directory()
    found = [
        os.path.join(xdg, "ccb"),
        "/run/user/%d/ccb" % os.getuid(),
        "/tmp/ccb-%d" % os.getuid(),  # noqa: S108 - looked at, not trusted
        os.path.join(home, ".ccb-run"),
    ]
    return [path for path in dict.fromkeys(found) if path.startswith("/")]


def worker_directories() -> list[str]:
    """Return the directories that may hold bundles, as deploy/stub.py does. They need not exist."""
    home = session_paths.home_directory()
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    if not cache.startswith("/"):
        cache = os.path.join(home, ".cache") if home else ""
    tops = ([os.path.join(cache, "ccb")] if cache else []) + runtime_directories()
    return [os.path.join(top, "worker") for top in tops]


def is_ours(path: str) -> bool:
    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def ours_in(tops: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield those of our directories that are there, with the names in them."""
    for top in filter(is_ours, tops):
        yield top, sorted(os.listdir(top))


def directories() -> list[tuple[str, str]]:
    places = [(name, os.path.join(top, name)) for top, names in ours_in(state_directories()) for name in names]
    return [(name, directory) for name, directory in places if _ID.fullmatch(name) and is_ours(directory)]


def live_sessions() -> dict[str, Json]:
    """Return the owners of the sessions with a daemon here, by lock file, or by hello for those in memory."""
    found: dict[str, Json] = {}
    for session in sockets.sessions_in_memory():
        if _ID.fullmatch(session):
            address = sockets.memory_address(session)
            owner = _hello_at(address).get("summary")
            if isinstance(owner, dict) and is_alive(owner):
                found[session] = {**owner, "socket": address}
    for top, names in ours_in(runtime_directories()):
        for name in names:
            if name.endswith(".lock") and _ID.fullmatch(name[:-5]):
                owner = read_object(os.path.join(top, name))
                if is_alive(owner):
                    found[name[:-5]] = {"socket": os.path.join(top, name[:-5] + ".sock"), **owner}
    return found


def _hello_at(address: str) -> Json:
    """Return the hello of the daemon at a name in memory; {} when it is not ours or does not answer."""
    deadline = time.monotonic() + _ASK_S
    try:
        daemon = sockets.connect(address, deadline)
        if daemon is None:
            return {}
        answer = b""
        with daemon:
            while not answer.endswith(b"\n") and len(answer) < _MAX_HELLO and time.monotonic() < deadline:
                answer += daemon.recv(65536) or b"\n"
        hello = json.loads(answer)
    except (OSError, ValueError, RecursionError, sockets.Stranger):
        return {}
    return hello if isinstance(hello, dict) else {}


def read_object(path: str) -> Json:
    """Return the JSON object in a small file of a session, {} for none. A link is not followed."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(fd, "rb") as file:
            data = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def sessions() -> list[SessionEntry]:
    """Return all sessions that have begun, the most recently used first."""
    owners = live_sessions()
    entries = (_entry(session, directory, owners.get(session)) for session, directory in directories())
    found = [entry for entry in entries if entry is not None]
    there = {entry.session for entry in found}
    for session, owner in owners.items():
        if sockets.in_memory(owner["socket"]) and owner.get("state") and session not in there:
            found.append(SessionEntry(session, "", owner))
    found.sort(key=lambda entry: entry.updated, reverse=True)
    return found


def _entry(session: str, directory: str, owner: Json | None) -> SessionEntry | None:
    journal = os.path.join(directory, "journal.jsonl")
    try:
        info = os.lstat(journal)
    except OSError:
        return None
    if not info.st_size or not stat.S_ISREG(info.st_mode):
        return None
    summary = read_summary(directory)
    if not (summary.get("cwd") and summary.get("created")):
        known = {name: value for name, value in summary.items() if value or name not in _DERIVED}
        summary = {**summary_of(journal), **known}
    return SessionEntry(session, directory, {"updated": info.st_mtime, **summary, **(owner or {})})


def summary_of(journal: str) -> Json:
    from .journal_summary import summarize_ends  # not every start needs it

    try:
        ends = summarize_ends(journal)
    except OSError:
        return {"prompts": 0}
    known = {"created": ends.first, "cwd": os.path.realpath(ends.cwd) if ends.cwd else ""}
    known["prompt"] = ends.prompt if ends.prompts else ""
    return {"prompts": ends.prompts, **{name: value for name, value in known.items() if value}}


def latest_of(path: str) -> SessionEntry | None:
    """Return the session of a canonical path used last, one with a prompt if possible; of its worktrees, too."""
    known = [entry for entry in sessions() if not entry.moved_to]
    there = [entry for entry in known if entry.works_in(path) or entry.is_now_in(path)]
    there = there or [entry for entry in known if path in _listed(entry.summary.get("earlier"))]
    return next((each for each in there if each.summary.get("prompts") != 0), there[0] if there else None)


def earlier_directories(state_directory: str, cwd: str) -> list[str]:
    """Return the canonical paths in which a session has worked before `cwd`, the oldest first."""
    before = read_summary(state_directory) if state_directory else {}
    known = [*_listed(before.get("earlier")), str(before.get("cwd") or cwd)]
    return [each for each in dict.fromkeys(known) if each != cwd][-_MAX_EARLIER:]


def _listed(value: object) -> list[str]:
    return [str(each) for each in value] if isinstance(value, list) else []


def the_one(wanted: str, known: Iterable[SessionEntry]) -> SessionEntry:
    """Return the session with this id, or the only one whose id starts so (4 characters). Raise HostRefusal."""
    near = [entry for entry in known if entry.session.startswith(wanted)] if session_paths.is_session_id(wanted) else []
    found = [entry for entry in near if entry.session == wanted] or (near if len(wanted) >= 4 else [])
    if len(found) != 1:
        raise no_session(wanted, [each.session for each in found])
    return found[0]


def described(entry: SessionEntry) -> Json:
    summary, alive, now = entry.summary, entry.alive, time.time()
    given = read_object(os.path.join(entry.directory, TITLE)) if entry.directory else {}  # the name given by a list
    title = str(given.get("title") or "") if given.get("over") == (summary.get("title") or "") else ""
    created = summary.get("created")
    live = summary if alive or entry.elsewhere else {"state": "moved" if entry.moved_to else "ended"}
    size, used = _count(summary.get("bytes")), entry.updated
    with contextlib.suppress(OSError):
        info = os.stat(entry.journal)
        size = info.st_size
        used = max(used, info.st_mtime) if alive else used  # during a long turn the summary does not change
    return {
        "session": entry.session,
        "cwd": entry.cwd,
        "state": str(live.get("state") or "idle"),
        "alive": alive,
        "age_s": round(max(0.0, now - created), 1) if isinstance(created, (int, float)) else 0.0,
        "idle_s": round(max(0.0, now - used), 1),
        "prompts": _count(summary.get("prompts")),
        "prompt": (title or str(summary.get("prompt") or ""))[:200],
        "last": str(summary.get("asked" if live.get("state") == ASKS else "said") or "")[:200],
        "driver": str(live.get("driver") or ""),
        "driver_away": bool(live.get("driver")) and live.get("away") is True,
        "viewers": _count(live.get("viewers")),
        "pid": entry.pid,
        "rss": resident(entry.pid),
        "bytes": size,
        "host": entry.elsewhere,
        "job": str(summary.get("job") or "") if entry.elsewhere else "",
        "storage": "" if entry.directory else "memory",
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def resident(pid: int) -> int:
    try:
        with open("/proc/%d/statm" % pid, encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def created_at(state_directory: str) -> float:
    """Return when a session was created, in seconds of the host's clock, by its summary, else its journal, else now."""
    for read, name in ((read_summary, ""), (summary_of, "journal.jsonl")) if state_directory else ():
        when = read(os.path.join(state_directory, name)).get("created")
        if isinstance(when, (int, float)) and when > 0:
            return float(when)
    return time.time()


log = logging.getLogger(__name__)

NAME = "summary.json"
OWNER = ("hostname", "boot", "job", "node", "pid", "started", "socket", "bundle", "mark")
"""The fields that are absent once the owner has ended normally."""

_MAX_BYTES = 64 * 1024


class SummaryFile:
    """The summary of a running daemon, without a directory not written. `fields` is always the same object."""

    def __init__(self, state_directory: str, fixed: Json, claim: NodeClaim = UNSHARED) -> None:
        self._path = os.path.join(state_directory, NAME) if state_directory else ""
        self._claim = claim
        self.fields: Json = dict(fixed)
        self._written = ""

    def update(self, **fields: object) -> None:
        self.fields.update(fields)
        text = json.dumps(self.fields, ensure_ascii=False)
        if not self._path or text == self._written or not self._claim.holds():
            return
        try:
            replace_private(self._path, text)
            self._written = text
            os.utime(os.path.dirname(os.path.dirname(self._path)))  # for who watches all sessions
        except OSError as error:
            log.warning("the summary of the session cannot be written: %s", error)

    def remove_owner(self) -> None:
        for name in OWNER:
            self.fields.pop(name, None)
        self.update()


def read_summary(state_directory: str) -> Json:
    return read_object(os.path.join(state_directory, NAME))
