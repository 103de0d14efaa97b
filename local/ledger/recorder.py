"""Keep requests and answers of models in files of this machine, for who wants to read them later (`--record`)."""

from __future__ import annotations

import gzip
import re
from collections import OrderedDict
from pathlib import Path

_MAX_OPEN = 64
MAX_RECORDED = 4 * 1024**3
"""Bytes that one run keeps: a few bytes from a host can make a request of 8 MB."""

_NAME = re.compile(r"[^A-Za-z0-9-]")


class BodyRecorder:
    """Writes `SESSION/CALL.request.json.gz` and `SESSION/CALL.answer.gz` below a directory that only this user may
    enter, until it has kept MAX_RECORDED bytes. Blocking: for a thread. Every method may raise OSError."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._left = MAX_RECORDED
        self._answers: OrderedDict[Path, gzip.GzipFile] = OrderedDict()

    @property
    def full(self) -> bool:
        """Whether nothing more is kept."""
        return self._left <= 0

    def request(self, session: str, call_id: str, body: bytes) -> None:
        """Keep the body of a request, each on a line if a host gives one ID to several calls: nothing that was asked
        may vanish so."""
        if self.full:
            return
        path = self._path(session, call_id, "request.json.gz")
        before = path.stat().st_size if path.exists() else 0
        with gzip.open(path, "ab", compresslevel=1) as file:
            file.write(b"\n" + body if before else body)
        self._left -= path.stat().st_size - before

    def answer(self, session: str, call_id: str, piece: bytes) -> None:
        """Keep the next bytes of an answer. The files of the calls that were used last stay open."""
        if self.full:
            return
        self._left -= len(piece)
        path = self._path(session, call_id, "answer.gz")
        file = self._answers.pop(path, None) or gzip.GzipFile(path, "ab", compresslevel=1)
        self._answers[path] = file
        if len(self._answers) > _MAX_OPEN:
            self._answers.popitem(last=False)[1].close()
        file.write(piece)

    def close(self) -> None:
        """Finish the files."""
        while self._answers:
            self._answers.popitem()[1].close()

    def _path(self, session: str, call_id: str, end: str) -> Path:
        directory = self._directory / (_NAME.sub("_", session)[:80] or "unknown")
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory.chmod(0o700)
        return directory / f"{_NAME.sub('_', call_id)[:80] or 'call'}.{end}"
