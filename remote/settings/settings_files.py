"""Reads a settings file on the host. A file that cannot be used becomes a problem in words, never an exception."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Callable

from ccb.tunnel.wire.dataclass import dataclass

from ..system.host import is_under

Json = dict[str, Any]

_MAX_BYTES = 256 * 1024


def read_text(path: str, within: str = "") -> str | None:
    """Return the text of a regular file of at most 256 KiB, None without one. Raise ValueError if it cannot be used, as
    one that a link leads to out of the directory `within`: a clone could bring any text of the person's into the
    conversation. Does not block on a FIFO."""
    if within:
        path = os.path.realpath(path)
        if not is_under(path, within):
            raise ValueError("it is behind a link that leads out of the project")
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


@dataclass(frozen=True)
class SettingsFile:
    """A settings file. `values` are None if it cannot be used, `problem` says why. `lines` are the lines of its values,
    and `notes` sentences about keys that stand twice."""

    values: Json | None
    problem: str = ""
    lines: Mapping[str, int] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def read_settings_file(path: str) -> SettingsFile | None:
    """Return what a file says, None without a file."""
    try:
        text = read_text(path)
        if text is None:
            return None
        from ccb.tunnel.wire.settings_text import lines_in, load_settings  # most sessions have no such file

        values = load_settings(text) if text.strip() else {}
        if not isinstance(values, dict):
            raise ValueError("it is not a JSON object")
    except json.JSONDecodeError as error:
        return SettingsFile(None, f"{path}, line {error.lineno}: {error.msg}")
    except UnicodeDecodeError:
        return SettingsFile(None, f"{path}: it is not UTF-8 text")
    except (ValueError, RecursionError) as error:
        return SettingsFile(None, f"{path}: {error}")
    lines, again = lines_in(text)
    notes = (
        f"{path}, line {line}: {name} stands here again: entries of both count, of single values the last"
        for name, line in again.items()
    )
    return SettingsFile(values, "", lines, tuple(notes))


def read_settings(path: str, report: Callable[[str], None]) -> Json | None:
    """Return the JSON object in a file, None without one. A file that cannot be used is reported, with the line, and
    counts as none."""
    file = read_settings_file(path)
    for text in filter(None, (file.problem, *file.notes) if file is not None else ()):
        report(text)
    return file.values if file is not None else None
