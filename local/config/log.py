"""The log file of this machine: warnings always, everything with --debug, never secrets or message bodies (see
`redaction`).

The first line creates the file: `$XDG_STATE_HOME/ccb/ccb-<pid>.log`, mode 0600.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .reports.redaction import PublicFormatter

_MAX_BYTES = 8 * 1024 * 1024
_MAX_FILES = 20
_QUIET = ("asyncio", "asyncssh", "textual", "markdown_it", "aiohttp.access")


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the directory where ccb keeps files on this machine between runs. It may not exist."""
    base = environ.get("XDG_STATE_HOME", "")
    if not Path(base).is_absolute():
        base = str(Path(environ["HOME"] if environ.get("HOME") else Path.home()) / ".local" / "state")
    return Path(base) / "ccb"


class _OnDemand(logging.Handler):
    """Opens its file with the first record. If that fails it logs nothing: a log must not end the program."""

    def __init__(self, path: Path, formatter: logging.Formatter, *, keeps_others: bool = False) -> None:
        super().__init__()
        self._keeps_others = keeps_others
        self.path = path
        self._line = formatter
        self._file: logging.Handler | None = None
        self._broken = False

    def emit(self, record: logging.LogRecord) -> None:
        if self._file is None and not self._broken:
            try:
                self._file = self._open()
            except OSError:
                self._broken = True
        if self._file is not None:
            self._file.emit(record)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()

    def _open(self) -> logging.Handler:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        logs = [] if self._keeps_others else sorted(self.path.parent.glob("ccb-*.log*"), key=_age)
        for old in logs[:-_MAX_FILES]:
            old.unlink(missing_ok=True)
        os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600))
        from logging.handlers import RotatingFileHandler  # 3 ms, and most runs log nothing

        file = RotatingFileHandler(self.path, maxBytes=_MAX_BYTES, backupCount=1, encoding="utf-8")
        file.setFormatter(self._line)
        return file


@contextlib.contextmanager
def logging_to_file(
    *,
    debug: bool,
    environ: Mapping[str, str] = os.environ,
    commands: Iterable[str] = (),
    own_file: str | None = None,
) -> Iterator[Path]:
    """Write the program's log to its file while the context is open; yields the path of the file. It is `own_file` if
    the person names one.

    `commands` are the commands that lead to the host; the log shows only their programs, not their arguments.
    """
    path = Path(own_file).expanduser() if own_file else state_dir(environ) / f"ccb-{os.getpid()}.log"
    handler = _OnDemand(path, PublicFormatter(environ, commands), keeps_others=own_file is not None)
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if debug else logging.WARNING)
    quiet = {name: logging.getLogger(name).level for name in _QUIET}
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.INFO if debug else logging.ERROR)
    try:
        yield path
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        for name, level in quiet.items():
            logging.getLogger(name).setLevel(level)
        handler.close()


def _age(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
