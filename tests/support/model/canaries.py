"""The keys of the tests as canaries: after a test, nothing that it has written may hold one.

A key is on purpose where a test puts it for ccb to find. These places are listed here, each with its reason; everything
else (logs, errors, journals, crash reports, ledgers, recorded calls, homes of hosts) is searched byte by byte."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

KEY = b"sk-ant-test-key-0000"  # the key that the whole test kit uses (`fake_model.API_KEY`)
ON_PURPOSE = re.compile(
    r"(^|/)(?:"
    r"keyring\.json"  # the keyring of the test kit, which is a file
    r"|key|passphrase|secret\.txt"  # what a helper command prints
    r")$"
)

_PIECE = 1 << 20
_MAX_FILE = 64 << 20


def keys_in(directory: Path) -> list[str]:
    """Return the files below `directory` that hold the key, each with what surrounds it there."""
    found: list[str] = []
    for path in _files(directory):
        relative = str(path.relative_to(directory))
        if not ON_PURPOSE.search(relative):
            found += [f"{relative}: {text!r}" for text in _places(path)]
    return found


def keys_left_by_workers(top: Path, uid: int) -> list[str]:
    """Return the files that hold the key and that workers of a user have left below `top`, the directory for temporary
    files."""
    return [f"{each}/{text}" for each in sorted(top.glob(f"ccb-{uid}*")) for text in keys_in(each)]


def _files(directory: Path) -> Iterator[Path]:
    for where, _, names in os.walk(directory):
        for name in names:
            path = Path(where, name)
            try:
                about = path.lstat()
            except OSError:
                continue
            if stat.S_ISREG(about.st_mode) and 0 < about.st_size <= _MAX_FILE:
                yield path


def _places(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            before = b""
            while piece := file.read(_PIECE):
                text = before + piece
                at = text.find(KEY)
                if at >= 0:
                    yield text[max(0, at - 60) : at + 60]
                    return
                before = text[-100:]
    except OSError:
        return
