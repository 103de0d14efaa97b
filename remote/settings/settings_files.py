"""Reads a settings file on the host. A file that cannot be used becomes a problem in words, never an exception."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from typing import Any, Callable

Json = dict[str, Any]

_MAX_BYTES = 256 * 1024


def read_text(path: str) -> str | None:
    """Return the text of a regular file of at most 256 KiB, None without one. Raise ValueError if it cannot be used.
    Does not block on a FIFO."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"it cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is not a file")
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise ValueError(f"it is larger than {_MAX_BYTES} bytes")
    return data.decode("utf-8-sig")


def digest_of(text: str) -> str:
    """Return what identifies a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_settings(path: str, report: Callable[[str], None]) -> Json | None:
    """Return the JSON object in a file, None without one. A file that cannot be used is reported, with the line, and
    counts as none."""
    try:
        text = read_text(path)
        values = None if text is None else json.loads(text)
        if values is not None and not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
    except json.JSONDecodeError as error:
        report(f"{path}, line {error.lineno}: {error.msg}")
        return None
    except UnicodeDecodeError:
        report(f"{path}: it is not UTF-8 text")
        return None
    except (ValueError, RecursionError) as error:
        report(f"{path}: {error}")
        return None
    return values
