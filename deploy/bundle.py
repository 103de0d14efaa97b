"""The worker bundle as this ccb carries it: built into the wheel, or made from the sources of a source tree."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import ccb
from ccb.tunnel.wire.dataclass import dataclass


def _pack(data: bytes, form: str) -> bytes:
    from .bundling.build import pack

    return pack(data, form)


@dataclass(frozen=True)
class Bundle:
    """The bundle, and its SHA-256 in hex, which identifies it everywhere. `pack` makes it smaller, or has kept the
    result. `commands` returns the bundle of the host commands, which a session does not need."""

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
        from .bundle_cache import cache_folder, cached_bundle, cached_form

        folder = cache_folder()
        data = cached_bundle(Path(ccb.__file__).parent, ccb.__version__, folder, name)
        return Bundle.of(data, lambda data, form: cached_form(data, form, folder and folder / f"{name}.{form}"))
