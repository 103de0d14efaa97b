"""The worker bundle: built into the wheel, or made from a source tree and kept there, because that takes seconds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib.util import cache_from_source
from pathlib import Path

import ccb
from ccb.tunnel.wire.dataclass import dataclass

_BUILDER = [str(Path(__file__).with_name(name)) for name in ("build_bundle.py", "strip_source.py")]


def _pack(data: bytes, form: str) -> bytes:
    from .build_bundle import pack

    return pack(data, form)


@dataclass(frozen=True)
class Bundle:
    """The bundle and its SHA-256 in hex. `commands` returns the bundle of the host commands."""

    data: bytes
    sha256: str
    pack: Callable[[bytes, str], bytes] = _pack
    commands: Callable[[], Bundle] | None = None

    @staticmethod
    def of(data: bytes, pack: Callable[[bytes, str], bytes] = _pack) -> Bundle:
        return Bundle(data, hashlib.sha256(data).hexdigest(), pack)

    def with_commands(self) -> list[Bundle]:
        """Return the bundles that a host command needs. The second one is loaded now."""
        return [self] if self.commands is None else [self, self.commands()]

    def packed(self, form: str) -> bytes:
        """Return the bundle in the form `xz` or `zlib`. Raise ImportError if this Python cannot make that form."""
        return self.pack(self.data, form)


def load() -> Bundle:
    """Return the bundle that was built into the wheel, or, in a source tree, the bundle of its sources."""
    return replace(_load("worker"), commands=lambda: _load("commands"))


def _load(name: str) -> Bundle:
    built = Path(__file__).with_name(f"{name}.bundle")
    try:
        return Bundle.of(built.read_bytes(), lambda _, form: built.with_suffix(f".{form}").read_bytes())
    except FileNotFoundError:
        folder = cache_folder()
        data = cached_bundle(Path(ccb.__file__).parent, ccb.__version__, folder, name)
        return Bundle.of(data, lambda data, form: cached_form(data, form, folder and folder / f"{name}.{form}"))


def cache_folder() -> Path | None:
    """Return the `__pycache__` folder beside this file, which version control ignores, or None if it is missing."""
    try:
        return Path(cache_from_source(__file__)).parent
    except NotImplementedError:  # this Python keeps no byte code
        return None


def cached_bundle(package: Path, version: str, folder: Path | None, name: str = "worker") -> bytes:
    """Return a bundle of the sources in `package`, built if one has changed since it was kept in `folder`."""
    sources = (package / "remote", package / "tunnel" / "wire")
    key = _key(sources, version)
    kept = _kept(folder and folder / f"{name}.bundle", key)
    if kept is not None:
        return kept
    from .build_bundle import build

    built = build(*sources, version)
    for each, data in built.items():  # if a source has changed meanwhile, it has another key from now on
        _keep(folder and folder / f"{each}.bundle", key, data)
    return built[name]


def cached_form(data: bytes, form: str, file: Path | None) -> bytes:
    """Return the bundle `data`, packed in `form`. Pack it only if `file` was not kept with that bundle."""
    key = hashlib.sha256(b"".join(Path(path).read_bytes() for path in _BUILDER) + data).digest()
    packed = _kept(file, key)
    if packed is None:
        packed = _pack(data, form)
        _keep(file, key, packed)
    return packed


def _key(sources: tuple[Path, Path], version: str) -> bytes:
    """Return a digest of everything that the bundle depends on. For a file that is its name, size and times."""
    digest = hashlib.sha256(f"{version}\0".encode())
    found = {path: Path(path).stat() for path in _BUILDER}
    for folder in sources:
        found.update(_files(str(folder)))
    for name, info in sorted(found.items()):
        digest.update(f"{name}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}\n".encode())
    return digest.digest()


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
    """Keep `data` where it can be written. Another ccb, which may write at the same time, reads one whole."""
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
