"""The worker bundle as this ccb carries it: built into the wheel, or made from the sources of a source tree."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import ccb


@dataclass(frozen=True)
class Bundle:
    """The zip, and its SHA-256 in hex, which identifies it everywhere."""

    data: bytes
    sha256: str

    @staticmethod
    def of(data: bytes) -> Bundle:
        return Bundle(data, hashlib.sha256(data).hexdigest())


def load() -> Bundle:
    """Return the bundle that was built into the wheel, or, in a source tree, the bundle of its sources."""
    try:
        return Bundle.of(Path(__file__).with_name("worker.zip").read_bytes())
    except FileNotFoundError:
        from .bundle_cache import cache_file, cached_bundle

        return Bundle.of(cached_bundle(Path(ccb.__file__).parent, ccb.__version__, cache_file()))
