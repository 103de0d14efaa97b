"""Builds and packs the worker bundle: its files one behind the other, each as its name and its text with a zero byte
behind. The build hook of the wheel loads this module on its own."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from pathlib import Path

from .strip_source import without_prose, without_types

FORMS = ("xz", "zlib")  # of a packed bundle, the smallest first. Not every Python has `lzma`, here or on the host

_COMMANDS = "ccb/remote/host_commands/"

_LATER = "ccb/remote/permissions/shell/"
"""What the start of a session does not import: the host compiles what has come, so it comes last."""


def build(remote: Path, wire: Path, version: str) -> dict[str, bytes]:
    """Return the bundles of `remote` and `wire`: of the worker, and of what only host `commands` need beside it. The
    same sources give the same bytes under every Python."""
    entries = {"ccb/__init__.py": f'__version__ = "{version}"\n'.encode(), "ccb/tunnel/__init__.py": b""}
    for folder, place in ((remote, "ccb/remote"), (wire, "ccb/tunnel/wire")):
        for path in folder.rglob("*.py"):
            source = without_types(without_prose(path.read_text(encoding="utf-8")))
            entries[f"{place}/{path.relative_to(folder).as_posix()}"] = source.encode()
    in_order = sorted(entries.items(), key=lambda item: (item[0].startswith(_LATER), item[0]))
    commands = [item for item in in_order if item[0].startswith(_COMMANDS)]
    worker = [item for item in in_order if item not in commands]
    return {"worker": joined(dict(worker)), "commands": joined(dict(commands))}


def joined(files: Mapping[str, str | bytes]) -> bytes:
    """Return the bundle of these files. Raise ValueError if a zero byte is in one."""
    parts = [each.encode() if isinstance(each, str) else each for item in files.items() for each in item]
    if any(b"\0" in each for each in parts):
        raise ValueError("a file of the worker has a zero byte in it")
    return b"".join(each + b"\0" for each in parts)


def pack(data: bytes, form: str) -> bytes:
    """Return the bundle in one of FORMS. Raise ImportError if this Python cannot make that form."""
    if form == "zlib":
        return zlib.compress(data, 9)
    import lzma

    # The host needs as much memory as the dictionary has; the bundle is smaller than two megabytes.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 6, "dict_size": 1 << 21, "lc": 3, "pb": 0, "nice_len": 273}]
    return lzma.compress(data, check=lzma.CHECK_NONE, filters=filters)
