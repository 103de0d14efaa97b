"""The worker bundle: built into the wheel, or made from a source tree and kept there, because that takes seconds."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

import ccb
from ccb.tunnel.wire.dataclass import dataclass

CACHE = Path(__file__).with_name("__pycache__")  # which version control ignores
_BUILDER = [Path(__file__).with_name(name) for name in ("build_bundle.py", "strip_source.py")]


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
    return replace(_load("worker"), commands=cache(lambda: _load("commands")))


def _load(name: str) -> Bundle:
    built = Path(__file__).with_name(f"{name}.bundle")
    try:
        return Bundle.of(built.read_bytes(), lambda _, form: built.with_suffix(f".{form}").read_bytes())
    except FileNotFoundError:
        data = cached_bundle(Path(ccb.__file__).parent, ccb.__version__, CACHE, name)
        return Bundle.of(data, lambda data, form: cached_form(data, form, CACHE / f"{name}.{form}"))


def cached_bundle(package: Path, version: str, folder: Path, name: str = "worker") -> bytes:
    """Return a bundle of the sources in `package`, built if one has changed since it was kept in `folder`."""
    sources = (package / "remote", package / "tunnel" / "wire")

    def built() -> bytes:
        from .build_bundle import build

        return build(*sources, version)[name]  # if a source has changed meanwhile, it has another key from now on

    return _cached(folder / f"{name}.bundle", _key(sources, version), built)


def cached_form(data: bytes, form: str, file: Path) -> bytes:
    """Return the bundle `data`, packed in `form`. Pack it only if `file` was not kept with that bundle."""
    return _cached(file, hashlib.sha256(data).digest(), lambda: _pack(data, form))


def _cached(file: Path, key: bytes, make: Callable[[], bytes]) -> bytes:
    """Return what `file` keeps under `key`. If that is nothing, or damaged, make it, and keep it where it can be
    written; another ccb, which may write at the same time, reads one whole."""
    with suppress(OSError):
        content = file.read_bytes()
        if content[:64] == key + hashlib.sha256(content[64:]).digest():
            return content[64:]
    data = make()
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        temporary = file.with_name(f".{file.name}.{os.getpid()}.{os.urandom(4).hex()}")
        try:
            temporary.write_bytes(key + hashlib.sha256(data).digest() + data)
            temporary.replace(file)
        finally:
            temporary.unlink(missing_ok=True)
    return data


def _key(sources: tuple[Path, Path], version: str) -> bytes:
    """Return a digest of everything that the bundle depends on. For a file that is its name, size and times."""
    digest = hashlib.sha256(f"{version}\0".encode())
    for path in sorted([*_BUILDER, *(path for folder in sources for path in folder.rglob("*.py"))]):
        info = path.stat()
        digest.update(f"{path}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}\n".encode())
    return digest.digest()
