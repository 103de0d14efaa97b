"""What runs, looked at while it may end."""

from __future__ import annotations

import psutil


def name_of(process: psutil.Process) -> str:
    """Its name, "" when it has ended meanwhile."""
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return ""
