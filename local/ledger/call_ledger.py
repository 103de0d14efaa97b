"""The ledger: a SQLite file with a row for each model call, and what the audit has seen."""

from __future__ import annotations

import fcntl
import math
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Literal, TypeVar

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.proxy.metering import CallReport
from ccb.tunnel.wire.dataclass import dataclass


def dollars(amount: float) -> str:
    """Return an amount in cents, or with two digits that tell something if it is smaller: $1.50, $0.02, $0.00045."""
    if not amount or abs(amount) >= 0.01:
        return f"${amount:,.2f}"
    digits = 1 - math.floor(math.log10(abs(amount)))
    return f"${amount:.{min(digits, 12)}f}".rstrip("0")


@dataclass(frozen=True)
class CallPlace:
    session: str = ""
    host: str = ""
    directory: str = ""


@dataclass(frozen=True)
class Spent:
    usd: float = 0.0
    tokens: int = 0


@dataclass(frozen=True)
class UsageSum:
    """The calls of one group. `last` is a Unix time, `estimated` counts those without all tokens told."""

    group: str
    calls: int
    failed: int
    input_tokens: int
    cache_write_tokens: int
    cache_read_tokens: int
    output_tokens: int
    usd: float
    last: float
    estimated: int = 0


@dataclass(frozen=True)
class AuditEntry:
    """Something that this machine has seen of a session. `at` is the Unix time. `kind`:

    - `prompt`: what the person, or the program in their place, said; `asked`: the newest user text of a request;
      `also`: another text of a request that no model has written, such as a system prompt.
    - `wanted`: a tool call in an answer of a model; `there`: one that the provider runs itself; `decided`: what was
      answered here when the host asked about it; `result`: what the host sent to the model as its result.
    - `unseen`: results of calls that were not seen here, because another client drove or the ledger is younger;
      `tampering`: a result of a call that no model made.
    - `unchecked`: a request that was too large to look at, or a part of one; `unrecorded`: bodies are not kept
      from here on; `revoked`: the person has ended all model calls.
    """

    kind: str
    at: float
    call: str = ""
    tool_use: str = ""
    name: str = ""
    text: str = ""
    host: str = ""


By = Literal["host", "model", "day", "session"]
Found = TypeVar("Found")

_BUSY_MS = 5_000
_VERSION = 7
_MAX_SUMS = 5_000
_TABLE = """
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY, began REAL NOT NULL, session TEXT NOT NULL, host TEXT NOT NULL, directory TEXT NOT NULL,
    call TEXT NOT NULL, model TEXT NOT NULL, input INTEGER NOT NULL, cache_write INTEGER NOT NULL,
    cache_read INTEGER NOT NULL, output INTEGER NOT NULL, usd REAL NOT NULL, first_byte_s REAL NOT NULL,
    duration_s REAL NOT NULL, status INTEGER NOT NULL, complete INTEGER NOT NULL, request_bytes INTEGER NOT NULL,
    digest TEXT NOT NULL, estimated INTEGER NOT NULL DEFAULT 0
)"""
_COLUMNS = (
    "began, session, host, directory, call, model, input, cache_write, cache_read, output, usd, first_byte_s, "
    "duration_s, status, complete, request_bytes, digest, estimated"
)
_ESTIMATED = "ALTER TABLE calls ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0"  # ledgers of versions before 5
_EVENTS = """
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, session TEXT NOT NULL, host TEXT NOT NULL, kind TEXT NOT NULL,
    call TEXT NOT NULL, tool_use TEXT NOT NULL, name TEXT NOT NULL, text TEXT NOT NULL
)"""
_RESERVATIONS = """
CREATE TABLE IF NOT EXISTS reservations (
    id INTEGER PRIMARY KEY, at REAL NOT NULL, owner TEXT NOT NULL, session TEXT NOT NULL, host TEXT NOT NULL,
    usd REAL NOT NULL, tokens INTEGER NOT NULL
)"""
_SETTLEMENTS = "CREATE TABLE IF NOT EXISTS settlements (reservation INTEGER PRIMARY KEY, at REAL NOT NULL)"
_OPEN = (  # the reservations without a settlement: to look for them among all would take longer with each call
    "CREATE TABLE IF NOT EXISTS open_reservations (id INTEGER PRIMARY KEY)",
    "CREATE TRIGGER IF NOT EXISTS opened AFTER INSERT ON reservations "
    "BEGIN INSERT INTO open_reservations VALUES (NEW.id); END",
    "CREATE TRIGGER IF NOT EXISTS settled AFTER INSERT ON settlements "
    "BEGIN DELETE FROM open_reservations WHERE id = NEW.reservation; END",
    "INSERT OR IGNORE INTO open_reservations "
    "SELECT id FROM reservations WHERE id NOT IN (SELECT reservation FROM settlements)",
)
_FORWARDED = "CREATE TABLE IF NOT EXISTS forwarded (row INTEGER PRIMARY KEY)"  # the last call that was
_FLEETS = "CREATE TABLE IF NOT EXISTS fleets (session TEXT PRIMARY KEY, fleet TEXT NOT NULL)"
_INDEXES = (
    "CREATE INDEX IF NOT EXISTS fleets_fleet ON fleets (fleet)",
    "CREATE INDEX IF NOT EXISTS reservations_at ON reservations (at)",
    "CREATE INDEX IF NOT EXISTS calls_began ON calls (began)",
    "CREATE INDEX IF NOT EXISTS calls_session ON calls (session, began)",
    "CREATE INDEX IF NOT EXISTS events_session ON events (session, id)",
    "CREATE INDEX IF NOT EXISTS events_tool_use ON events (tool_use) WHERE kind = 'wanted'",
)
_APPEND_ONLY = tuple(
    f"CREATE TRIGGER IF NOT EXISTS {name} BEFORE {change} ON {table} BEGIN SELECT RAISE(ABORT, '{said}'); END"
    for table, kept, whole in (
        ("calls", "kept", "all_calls"),
        ("events", "kept_events", "all_events"),
        ("reservations", "kept_reservations", "all_reservations"),
        ("settlements", "kept_settlements", "all_settlements"),
    )
    for name, change, said in ((kept, "UPDATE", "rows are not changed"), (whole, "DELETE", "rows are not removed"))
)
_DAY = "date(began, 'unixepoch', 'localtime')"
_OF = {
    "session": "session = :session",
    "host": "host = :host",
    "fleet": "session IN (SELECT session FROM fleets WHERE fleet = :fleet)",
}
_GROUPS: Mapping[By, str] = {"host": "host", "model": "model", "session": "session", "day": _DAY}


class CallLedger(AbstractContextManager["CallLedger"]):
    """The open file. Use as a context manager. Every method may raise sqlite3.Error."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = path.with_suffix(".lock")
        self._sums: dict[tuple[object, ...], tuple[int, Spent]] = {}  # each up to a row
        with self._alone():  # SQLite does not wait for another one that switches to WAL
            if not path.exists():  # to close an open file later would drop the locks of this process on it
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600))
            base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=_BUSY_MS / 1000)
            self._base = base
            if base.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
                base.execute("PRAGMA journal_mode=WAL")
            base.execute("PRAGMA synchronous=NORMAL")
            if base.execute("PRAGMA user_version").fetchone()[0] < _VERSION:
                tables = (_TABLE, _EVENTS, _RESERVATIONS, _SETTLEMENTS, _FORWARDED, _FLEETS)
                for statement in (*tables, *_INDEXES, *_APPEND_ONLY, *_OPEN):
                    base.execute(statement)
                if "estimated" not in {row[1] for row in base.execute("PRAGMA table_info(calls)")}:
                    base.execute(_ESTIMATED)
                base.execute(f"PRAGMA user_version={_VERSION}")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._base.close()

    def add(self, place: CallPlace, report: CallReport) -> None:
        tokens = report.tokens
        row = (
            *(report.began, place.session, place.host, place.directory, report.call_id, report.model),
            *(tokens.input, tokens.cache_write, tokens.cache_read, tokens.output, report.cost_usd),
            *(report.first_byte_s, report.duration_s, report.status, report.complete),
            *(report.request_bytes, report.digest, report.estimated),
        )
        marks = ", ".join("?" * len(row))
        self.run(f"INSERT INTO calls ({_COLUMNS}) VALUES ({marks})", _storable(row))  # noqa: S608 - fixed names

    def note(self, place: CallPlace, entries: Sequence[AuditEntry]) -> None:
        columns = "at, session, host, kind, call, tool_use, name, text"
        insert = f"INSERT INTO events ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608 - fixed names
        with self.transaction():
            for each in entries:
                row = (each.at, place.session, place.host, each.kind, each.call, each.tool_use, each.name, each.text)
                self.run(insert, _storable(row))

    def has_wanted(self, tool_use: str) -> bool:
        query = "SELECT 1 FROM events WHERE tool_use = ? AND kind = 'wanted' LIMIT 1"
        return bool(self.run(query, _storable((tool_use,))))

    def audited(self, session: str) -> list[tuple[str, AuditEntry]]:
        """Return what was seen of the sessions whose ID begins so, in order, each with its ID."""
        query = (
            "SELECT session, kind, at, call, tool_use, name, text, host FROM events "
            "WHERE substr(session, 1, length(:session)) = :session ORDER BY id"
        )
        return [(str(row[0]), AuditEntry(*row[1:])) for row in self.run(query, {"session": session})]

    def join(self, fleet: str, sessions: Iterable[str]) -> None:
        """Let the calls that sessions make from now on count for a fleet."""
        with self.transaction():
            for each in sessions:
                self.run("INSERT OR IGNORE INTO fleets VALUES (?, ?)", (each, fleet))

    def spent(self, since: float = 0.0, **of: str) -> Spent:
        """Return what calls have cost that began at `since` or later, of all or `of` one session, host or fleet."""
        key = since, *of.items()
        last, before = self._sums.get(key, (0, Spent()))
        where = "id > :last AND +began >= :since" if last else "began >= :since"  # the + keeps an index out of it
        total = "TOTAL(usd), SUM(input + cache_write + cache_read + output), (SELECT MAX(id) FROM calls)"
        query = f"SELECT {total} FROM calls WHERE {where}{of_place(of)}"  # noqa: S608 - fixed names
        found = self.run(query, {**of, "since": since, "last": last})
        (usd, tokens, newest), *_ = found
        spent = Spent(before.usd + float(usd), before.tokens + int(tokens or 0))
        if len(self._sums) >= _MAX_SUMS:
            self._sums.clear()
        self._sums[key] = newest or 0, spent
        return spent

    def sums(self, by: By, *, since: float = 0.0) -> list[UsageSum]:
        """Return the sums of the calls that began at `since` or later, the group that was used last at the end."""
        query = (
            f"SELECT {_GROUPS[by]} AS name, COUNT(*), SUM(NOT complete OR status >= 400), SUM(input), "  # noqa: S608
            "SUM(cache_write), SUM(cache_read), SUM(output), TOTAL(usd), MAX(began) AS last, SUM(estimated) "
            "FROM calls WHERE began >= :since GROUP BY name ORDER BY last"
        )
        return [UsageSum(str(row[0]), *row[1:]) for row in self.run(query, {"since": since})]

    def places(self, most: int = 50) -> list[tuple[str, str, float]]:
        """Return the hosts and directories of calls, with the time of the last one, the newest first."""
        query = (
            "SELECT host, directory, MAX(began) AS last FROM calls WHERE host != '' AND directory != '' "
            "GROUP BY host, directory ORDER BY last DESC LIMIT :most"
        )
        return [(str(host), str(where), float(last)) for host, where, last in self.run(query, {"most": most})]

    def hosts_of(self, session: str) -> list[str]:
        """Return the hosts of calls of sessions whose ID begins so."""
        query = (
            "SELECT DISTINCT host FROM calls "
            "WHERE substr(session, 1, length(:session)) = :session AND host != '' LIMIT 10"
        )
        return [str(host) for (host,) in self.run(query, {"session": session})]

    def not_forwarded(self, most: int) -> list[dict[str, Any]]:
        """Return the next calls that were not forwarded yet, as objects with the names of the columns."""
        last = "(SELECT IFNULL(MAX(row), 0) FROM forwarded)"
        query = f"SELECT id, {_COLUMNS} FROM calls WHERE id > {last} ORDER BY id LIMIT ?"  # noqa: S608 - fixed names
        names = ["id", *_COLUMNS.split(", ")]
        return [dict(zip(names, row, strict=True)) for row in self.run(query, (most,))]

    def forwarded(self, row: int) -> None:
        self.run("INSERT OR IGNORE INTO forwarded VALUES (?)", (row,))

    def forget_texts(self, before: float) -> None:
        """Remove what the audit has noted before a time. Calls and their costs stay."""
        with self.transaction():
            self.run("DROP TRIGGER IF EXISTS all_events", ())
            self.run("DELETE FROM events WHERE at < ?", (before,))
            for statement in _APPEND_ONLY:
                self.run(statement, ())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Be the one who writes. SQLite has no queue for those that wait, so of many some would never have luck."""
        lock = os.open(self._lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with self._alone(), self._base:
            self._base.execute("BEGIN IMMEDIATE")
            yield

    def run(self, statement: str, values: Mapping[str, object] | Sequence[object]) -> Sequence[tuple[Any, ...]]:
        return self._base.execute(statement, values).fetchall()


def of_place(of: Iterable[str]) -> str:
    """Return the conditions for what is given of `session`, `host` and `fleet`."""
    return "".join(f" AND {_OF[each]}" for each in of)


def _storable(row: Sequence[object]) -> list[object]:
    """Return a row whose texts can be stored: SQLite has no form for halves of characters."""
    return [value.encode("utf-8", "replace").decode() if isinstance(value, str) else value for value in row]


def ledger_path(state: Path) -> Path:
    return state / "ledger.sqlite3"


def read_ledger(state: Path, read: Callable[[CallLedger], Found], nothing: Found) -> Found:
    """Return what `read` returns for the ledger, or `nothing` if no ledger exists yet. Raise ConfigError."""
    if not ledger_path(state).exists():
        return nothing
    with open_ledger(state) as ledger:
        try:
            return read(ledger)
        except sqlite3.Error as error:
            raise ConfigError(f"the ledger {ledger_path(state)} cannot be read", evidence=str(error)) from error


def open_ledger(state: Path) -> CallLedger:
    try:
        return CallLedger(ledger_path(state))
    except (OSError, sqlite3.Error) as error:
        raise ConfigError(
            f"the ledger {ledger_path(state)} cannot be used",
            evidence=str(error),
            do="Move the file away, and try again.",
        ) from error
