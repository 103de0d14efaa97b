"""The bundles of a source tree, kept from one start of ccb to the next.

Building takes several seconds, and packing half a second of every first contact with a host. An installed wheel
never comes here: what it needs is built in.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import cache_from_source
from pathlib import Path

_BUILDER = Path(__file__).with_name("bundling")


def cache_folder() -> Path | None:
    """Return the folder for what is kept of this source tree.

    It is that of the byte code of this room: version control ignores that already, and whoever may write there could
    change the code of ccb as well.
    """
    try:
        return Path(cache_from_source(__file__)).parent
    except NotImplementedError:  # this Python keeps no byte code
        return None


def cached_bundle(package: Path, version: str, folder: Path | None, name: str = "worker") -> bytes:
    """Return a bundle of the sources in `package`. Build all of them only if a source has changed since they were kept
    in `folder`."""
    sources = (package / "remote", package / "tunnel" / "wire")
    key = _key(sources, version)
    kept = _kept(folder and folder / f"{name}.bundle", key)
    if kept is not None:
        return kept
    from .bundling.build import build

    built = build(*sources, version)
    if _key(sources, version) == key:  # else a source changed while the bundles were built
        for each, data in built.items():
            _keep(folder and folder / f"{each}.bundle", key, data)
    return built[name]


def cached_form(data: bytes, form: str, file: Path | None) -> bytes:
    """Return the bundle `data`, packed in `form`. Pack it only if `file` was not kept with that bundle."""
    key = hashlib.sha256(_builder() + data).digest()
    kept = _kept(file, key)
    if kept is not None:
        return kept
    from .bundling.build import pack

    packed = pack(data, form)
    _keep(file, key, packed)
    return packed


def cached_stub(source: bytes, file: Path | None) -> str:
    """Return the stub with this source as it travels. Pack it only if it has changed since it was kept in `file`."""
    key = hashlib.sha256(_builder() + source).digest()
    packed = _kept(file, key)
    if packed is None:
        from .bundling.build import pack_stub

        packed = pack_stub(source)
        _keep(file, key, packed)
    return packed.decode("ascii")


def _key(sources: tuple[Path, Path], version: str) -> bytes:
    """Return a digest of everything that the bundle depends on. For a file that is its name, size and times."""
    digest = hashlib.sha256(f"{version}\0".encode())
    found: dict[str, os.stat_result] = {}
    for folder in (_BUILDER, *sources):
        found.update(_files(str(folder)))
    for name, info in sorted(found.items()):
        digest.update(f"{name}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}\n".encode())
    return digest.digest()


def _builder() -> bytes:
    return b"".join(path.read_bytes() for path in sorted(_BUILDER.glob("*.py")))


def _files(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield entry.path, entry.stat()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _files(entry.path)


def _kept(file: Path | None, key: bytes) -> bytes | None:
    """Return what was kept under `key`, None if there is nothing, if it has another key, or if it is damaged."""
    if file is None:
        return None
    try:
        content = file.read_bytes()
    except OSError:
        return None
    data = content[64:]
    return data if content[:64] == key + hashlib.sha256(data).digest() else None


def _keep(file: Path | None, key: bytes, data: bytes) -> None:
    """Keep `data` in a source tree that can be written. Another ccb, which may write at the same time, reads one of
    both whole."""
    if file is None:
        return
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            temporary.write_bytes(key + hashlib.sha256(data).digest() + data)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
