"""The person's own commands and skills, as they travel from the laptop to the worker."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Iterable

from ..dataclass import dataclass

MAX_BYTES = 1 << 20
"""Most bytes of all files together, as JSON."""


@dataclass(frozen=True)
class OwnFile:
    """One text file. `path` is relative to the person's `.claude` directory."""

    path: str
    text: str
    executable: bool = False


def pack(files: Iterable[OwnFile]) -> str:
    """Return files as a text, "" for none."""
    listed = [[each.path, each.text, each.executable] for each in files]
    return base64.b64encode(zlib.compress(json.dumps(listed).encode(), 9)).decode() if listed else ""


def unpack(packed: str) -> list[OwnFile]:
    """Return the files in a text that `pack` has made. Raise ValueError for anything else."""
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(packed), MAX_BYTES + 1)
        files = [OwnFile(str(path), str(text), bool(executable)) for path, text, executable in json.loads(data)]
    except (zlib.error, TypeError, RecursionError) as error:
        raise ValueError(f"the files cannot be read: {error}") from None
    for each in files:
        if any(part in ("", ".", "..") for part in each.path.split("/")) or "\0" in each.path:
            raise ValueError(f"{each.path!r} is no path of a file")
    return files
