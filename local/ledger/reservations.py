"""What the calls that are under way may cost, for all ccb of this machine: set aside in the ledger, so that a budget
holds over all of them together.

A reservation is a row, and its settlement is another. A ccb that has died settles nothing more: it held a lock, which
the system has taken from it, and whoever finds that settles in its place.
"""

from __future__ import annotations

import fcntl
import os
import time
import uuid
from contextlib import suppress
from pathlib import Path

from ccb.tunnel.wire.dataclass import dataclass

from .entries import CallPlace, Spent
from .store import CallLedger

_OLDEST_S = 24 * 3600.0
"""Seconds after which a reservation counts no more, whoever made it: no call lasts that long."""


@dataclass(frozen=True)
class _Open:
    row: int
    at: float
    owner: str
    session: str
    host: str
    usd: float
    tokens: int


class Reservations:
    """The reservations in an open ledger. `directory` holds a locked file for each running ccb that has made some.

    Every method may raise sqlite3.Error and OSError. Callers put steps that belong together into one
    `CallLedger.transaction`.
    """

    def __init__(self, ledger: CallLedger, directory: Path) -> None:
        self._ledger = ledger
        self._directory = directory
        self._owner = f"{os.getpid()}-{uuid.uuid4().hex}"
        self._lock: int | None = None
        self._settled = 0  # the rows up to this one

    def add(self, place: CallPlace, usd: float, tokens: int) -> int:
        """Set something aside for a call, and return the number of its row."""
        if self._lock is None:
            self._lock = self._locked()
        self._ledger.run(
            "INSERT INTO reservations (at, owner, session, host, usd, tokens) "
            "VALUES (:at, :owner, :session, :host, :usd, :tokens)",
            {
                "at": time.time(),
                "owner": self._owner,
                "session": place.session,
                "host": place.host,
                "usd": usd,
                "tokens": tokens,
            },
        )
        ((row,),) = self._ledger.run("SELECT last_insert_rowid()", {})
        return int(row)

    def settle(self, row: int) -> None:
        """Note that a call has ended, whose cost is in the ledger now."""
        self._ledger.run("INSERT OR IGNORE INTO settlements VALUES (:row, :at)", {"row": row, "at": time.time()})

    def open(self, *, since: float = 0.0, session: str | None = None, host: str | None = None) -> Spent:
        """Return what is set aside for the calls that began at `since` or later, of one session or host if it is
        given."""
        usd, tokens = 0.0, 0
        for each in self._all_open():
            if each.at >= since and session in (None, each.session) and host in (None, each.host):
                usd += each.usd
                tokens += each.tokens
        return Spent(usd, tokens)

    def close(self) -> None:
        """Let the lock go: nothing of this owner is open any more."""
        if self._lock is not None:
            (self._directory / self._owner).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    def _all_open(self) -> list[_Open]:
        query = (
            "SELECT id, at, owner, session, host, usd, tokens FROM reservations AS each WHERE id > :settled "
            "AND at > :oldest AND NOT EXISTS (SELECT 1 FROM settlements WHERE reservation = each.id) ORDER BY id"
        )
        oldest = time.time() - _OLDEST_S
        ((newest,),) = self._ledger.run("SELECT MAX(id) FROM reservations", {})
        found = [_Open(*row) for row in self._ledger.run(query, {"settled": self._settled, "oldest": oldest})]
        gone = {owner for owner in {each.owner for each in found} - {self._owner} if not self._lives(owner)}
        for each in found:
            if each.owner in gone:
                self.settle(each.row)
        still = [each for each in found if each.owner not in gone]
        self._settled = still[0].row - 1 if still else int(newest or 0)
        return still

    def _locked(self) -> int:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        lock = os.open(self._directory / self._owner, flags, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return lock

    def _lives(self, owner: str) -> bool:
        """Return whether an owner still holds its lock. One that has died loses its file, too."""
        path = self._directory / owner
        try:
            lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        with suppress(FileNotFoundError):
            path.unlink()
        return False
