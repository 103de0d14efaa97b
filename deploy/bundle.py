"""The worker bundle: one reproducible zip of the worker's sources, carried inside the installed package."""

from __future__ import annotations

import hashlib
import io
import zipfile
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

MAX_SIZE = 300 * 1024
"""Largest bundle in bytes."""

_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Bundle:
    """The zip and the SHA-256 (hex) that names it everywhere."""

    data: bytes
    sha256: str

    @staticmethod
    def of(data: bytes) -> Bundle:
        return Bundle(data, hashlib.sha256(data).hexdigest())


def load() -> Bundle:
    """The bundle that was built into the wheel, or, in a source tree, one built now."""
    built = files("ccb.deploy").joinpath("worker.zip")
    if built.is_file():
        return Bundle.of(built.read_bytes())
    from ccb import __version__

    return build(files("ccb.remote"), files("ccb.tunnel").joinpath("wire"), __version__)


def build(remote: Traversable, wire: Traversable, version: str) -> Bundle:
    """The bundle of the given source folders. The same sources give the same bytes on every machine with the same zlib."""
    entries = {
        "ccb/__init__.py": f'__version__ = "{version}"\n'.encode(),
        "ccb/tunnel/__init__.py": b"",
        **_sources(remote, "ccb/remote"),
        **_sources(wire, "ccb/tunnel/wire"),
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system = 3
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, entries[name])
    data = out.getvalue()
    if len(data) > MAX_SIZE:
        raise ValueError(f"the worker bundle has {len(data)} bytes, over the limit of {MAX_SIZE}")
    return Bundle.of(data)


def _sources(folder: Traversable, prefix: str) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for item in folder.iterdir():
        if item.is_dir() and item.name != "__pycache__":
            found |= _sources(item, f"{prefix}/{item.name}")
        elif item.name.endswith(".py"):
            found[f"{prefix}/{item.name}"] = item.read_bytes().replace(b"\r\n", b"\n")
    return found
