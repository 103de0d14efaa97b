"""The private files of a session: log, plan, driver lease."""

from __future__ import annotations

import logging
import os
from io import TextIOWrapper

from ccb.tunnel.wire.dataclass import dataclass

from .session_paths import PLAN

log = logging.getLogger(__name__)

_MAX_NAME = 200


class DriverLease:
    """`epoch` is the highest granted, `driver` who holds it. `hello` reads the file; a session in memory has none."""

    def __init__(self, path: str, epoch: int, driver: str) -> None:
        self.epoch, self.driver, self._path = epoch, driver, path

    def grant(self, epoch: int, driver: str) -> None:
        """Note who drives. A failure to write is only logged: a client must still be able to drive."""
        self.epoch, self.driver = epoch, driver
        try:
            if self._path:
                replace_private(self._path, "%d %s" % (epoch, " ".join(driver.split())[:_MAX_NAME]))
        except OSError as error:
            log.warning("the file that says who drives cannot be written: %s", error)

    def release(self) -> None:
        self.grant(self.epoch, "")


_MAX_LOG = 1024 * 1024


class _PrivateLog(logging.FileHandler):
    """A log of limited size for its owner; the one before it is kept. (`logging.handlers` imports for 3 ms.)"""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self.stream is not None and self.stream.tell() > _MAX_LOG:
                os.replace(self.baseFilename, self.baseFilename + ".1")
                self.stream.close()
                self.stream = self._open()
        except OSError:
            self.handleError(record)
        super().emit(record)

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding="utf-8", opener=private_file)


def replace_private(path: str, text: str) -> None:
    with open(path + ".new", "w", encoding="utf-8", errors="replace", newline="", opener=private_file) as file:
        file.write(text)
    os.replace(path + ".new", path)


def private_file(path: str, flags: int) -> int:
    """Open a file of a session with mode 0600, not through a link, as `open(…, opener=private_file)`."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def log_to(path: str) -> None:
    """Log messages from INFO on to the file at `path`, nothing with "" (a session in memory)."""
    root = logging.getLogger()
    if not path:
        root.addHandler(logging.NullHandler())
        return
    handler = _PrivateLog(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    root.addHandler(handler)
    root.setLevel(logging.INFO)


MAX_CHARS = 100_000  # the longest plan that the person is asked about


@dataclass(frozen=True)
class PlanFile:
    """`path` is "" for a session in memory, which has no directory."""

    path: str = ""

    @staticmethod
    def beside(outputs: str) -> PlanFile:
        return PlanFile(os.path.join(os.path.dirname(outputs), PLAN) if outputs else "")

    def read(self) -> str:
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with open(fd, encoding="utf-8", errors="replace", newline="") as file:
                return file.read(MAX_CHARS + 1).strip()
        except OSError:
            return ""

    def write(self, text: str) -> None:
        replace_private(self.path, text + "\n")
