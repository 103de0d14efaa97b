"""Who drives a session, on disk for its next daemon; read by `greeting`, before anything else is imported."""

from __future__ import annotations

import logging
import os

from .session_files import private_file

log = logging.getLogger(__name__)


def write_lease(path: str, epoch: int, driver: str) -> None:
    """The highest epoch ever granted, and who holds it. Where there is no room for it, a driver that comes back is more than that;
    a session in memory (no path) has no next daemon."""
    if not path:
        return
    try:
        with open(path + ".new", "w", encoding="utf-8", opener=private_file) as file:
            file.write("%d %s" % (epoch, " ".join(driver.split())[:200]))
        os.replace(path + ".new", path)
    except OSError as error:
        log.warning("who drives is not on disk: %s", error)
