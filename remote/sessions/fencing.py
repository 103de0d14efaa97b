"""The epoch that was granted last and the client that drives in it, kept on disk for the session's next daemon.

`ccb.remote.daemon.hello` reads the file, before anything else is imported.
"""

from __future__ import annotations

import logging
import os

from .session_files import private_file

log = logging.getLogger(__name__)

_MAX_NAME = 200


class Lease:
    """The driver's lease. `epoch` is the highest epoch that was ever granted. `driver` is the name of the client that
    holds it, "" when that client has left. A session in memory ends with its daemon and needs no file: `path` is ""."""

    def __init__(self, path: str, epoch: int, driver: str) -> None:
        self.epoch = epoch
        self.driver = driver
        self._path = path

    def grant(self, epoch: int, driver: str) -> None:
        """Give the lease to another driver."""
        self.epoch, self.driver = epoch, driver
        self._write(driver)

    def release(self) -> None:
        """Record that no client drives any more."""
        self.driver = ""
        self._write("")

    def _write(self, driver: str) -> None:
        """Write the file. A failure, for example a full disk, is only logged: a client must still be able to drive."""
        if not self._path:
            return
        try:
            with open(self._path + ".new", "w", encoding="utf-8", opener=private_file) as file:
                file.write("%d %s" % (self.epoch, " ".join(driver.split())[:_MAX_NAME]))
            os.replace(self._path + ".new", self._path)
        except OSError as error:
            log.warning("the file that says who drives cannot be written: %s", error)
