"""The sessions of this user on this host, found by their state directories."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

from . import identity, places
from .summary import read_summary

Json = dict[str, Any]

_ID = re.compile(r"[0-9a-zA-Z][0-9a-zA-Z_-]{0,63}")
_NO_SESSION = "0" * 36  # as long as any: the runtime directory depends on the length
_TAIL = 256 * 1024


class Entry:
    """One session. `directory` is its state directory; `summary` what is known of it."""

    def __init__(self, session: str, directory: str, summary: Json) -> None:
        self.session = session
        self.directory = directory
        self.summary = summary

    @property
    def cwd(self) -> str:
        return str(self.summary.get("cwd") or "")

    @property
    def updated(self) -> float:
        """Seconds of the host's clock."""
        value = self.summary.get("updated")
        return float(value) if isinstance(value, (int, float)) else 0.0

    @property
    def alive(self) -> bool:
        """Whether its daemon runs here."""
        return identity.is_alive(self.summary)

    @property
    def elsewhere(self) -> str:
        """The other host that may run its daemon, when the home is shared; "" when it is none."""
        if "pid" not in self.summary or identity.on_this_machine(self.summary):
            return ""
        return str(self.summary.get("hostname") or "another host")

    @property
    def journal(self) -> str:
        return os.path.join(self.directory, "journal.jsonl")


def state_directories() -> list[str]:
    """The directories that hold one directory for each session, whether they exist or not."""
    found = []
    home = places.home_directory()
    top = os.environ.get("XDG_STATE_HOME") or ""
    if not top.startswith("/"):
        top = os.path.join(home, ".local", "state") if home else ""
    if top:
        found.append(os.path.join(top, "ccb", "sessions"))
    found += [os.path.join(runtime, "sessions") for runtime in runtime_directories()]
    return found


def runtime_directories() -> list[str]:
    """Where sockets and locks may be, whether they exist or not: a login may lack the variables of another one."""
    found = []
    xdg = os.environ.get("XDG_RUNTIME_DIR") or ""
    if xdg.startswith("/"):
        found.append(os.path.join(xdg, "ccb"))
    system = "/run/user/%d/ccb" % os.getuid()
    if system not in found:
        found.append(system)
    found.append("/tmp/ccb-%d" % os.getuid())  # noqa: S108 - looked at, not trusted
    home = places.home_directory()
    if home:
        found.append(os.path.join(home, ".ccb-run"))
    return found


def is_ours(path: str) -> bool:
    """A directory, no link to one, of this user."""
    import stat

    try:
        info = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(info.st_mode) and info.st_uid == os.getuid()


def sessions() -> list[Entry]:
    """All of them, the one used last first. Those that were never begun are not among them."""
    found = []
    for top in state_directories():
        if not is_ours(top):
            continue
        for name in os.listdir(top):
            directory = os.path.join(top, name)
            if _ID.fullmatch(name) and is_ours(directory):
                entry = _entry(name, directory)
                if entry is not None:
                    found.append(entry)
    found.sort(key=lambda entry: entry.updated, reverse=True)
    return found


def _entry(session: str, directory: str) -> Entry | None:
    journal = os.path.join(directory, "journal.jsonl")
    try:
        info = os.stat(journal)
    except OSError:
        return None
    if not info.st_size:
        return None
    summary = read_summary(directory)
    if not summary.get("cwd"):
        summary = {**derived(journal), **summary}
    summary.setdefault("updated", info.st_mtime)
    return Entry(session, directory, summary)


def derived(journal: str) -> Json:
    """A summary from both ends of a journal."""
    summary: Json = {"state": "ended"}
    try:
        with open(journal, "rb") as file:
            first = json.loads(file.readline(1 << 20))
            summary["cwd"] = os.path.realpath(str(first["body"]["cwd"]))
            summary["created"] = first["time"]
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL))
            lines = file.read().split(b"\n")
    except (OSError, ValueError, KeyError, TypeError):
        return summary
    for line in lines:
        try:
            record = json.loads(line)
            if record["kind"] == "input" and record["body"]["body"]["type"] == "user":
                summary["prompt"] = prompt_text(record["body"]["body"])
        except (ValueError, KeyError, TypeError):
            continue
    return summary


def prompt_text(body: Json) -> str:
    """The start of a user message, on one line."""
    message = body.get("message")
    content = message.get("content") if isinstance(message, dict) else ""
    if isinstance(content, list):
        content = " ".join(str(block.get("text", "")) for block in content if isinstance(block, dict))
    return " ".join(str(content)[:2000].split())[:200]


def latest_of(path: str) -> Entry | None:
    """The session of that canonical path which was used last."""
    for entry in sessions():
        if entry.cwd == path:
            return entry
    return None


def by_prefix(text: str) -> list[Entry]:
    """The sessions whose id starts so; an exact one alone."""
    exact, near = [], []
    for entry in sessions():
        if entry.session == text:
            exact.append(entry)
        elif len(text) >= 4 and entry.session.startswith(text):
            near.append(entry)
    return exact or near


def described(entry: Entry) -> Json:
    """The body of a `session` report. Ages are seconds on this host's clock."""
    summary, alive, now = entry.summary, entry.alive, time.time()
    created = summary.get("created")
    pid = summary.get("pid") if alive else None
    try:
        size = os.path.getsize(entry.journal)
    except OSError:
        size = 0
    return {
        "session": entry.session,
        "cwd": entry.cwd,
        "state": str(summary.get("state") or "idle") if alive else "ended",
        "alive": alive,
        "age_s": round(max(0.0, now - created), 1) if isinstance(created, (int, float)) else 0.0,
        "idle_s": round(max(0.0, now - entry.updated), 1),
        "prompts": _count(summary.get("prompts")),
        "prompt": str(summary.get("prompt") or "")[:200],
        "driver": str(summary.get("driver") or "") if alive else "",
        "viewers": _count(summary.get("viewers")) if alive else 0,
        "pid": pid if isinstance(pid, int) else 0,
        "rss": resident(pid) if isinstance(pid, int) else 0,
        "bytes": size,
        "host": entry.elsewhere,
    }


def _count(value: object) -> int:
    return value if isinstance(value, int) else 0


def resident(pid: int) -> int:
    """Bytes of memory of a process; 0 where the system does not say."""
    try:
        with open("/proc/%d/statm" % pid, encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
