"""The files of a bundle, and compiled copies of the worker, as tests put them on a host."""

from __future__ import annotations

import hashlib
import marshal

from ccb.deploy.build_bundle import joined
from ccb.deploy.bundle import Bundle
from ccb.remote.daemon.compiled_copy import header_of


def files_of(bundle: bytes) -> dict[str, str]:
    parts = bundle.decode().split("\0")
    return dict(zip(parts[:-1:2], parts[1::2], strict=True))


def packed(codes: dict[str, bytes], digest: str) -> bytes:
    """Return the bytes of a copy with this marshalled code, by file, of the bundle with this hash."""
    body = header_of(digest) + marshal.dumps(codes)
    return hashlib.sha256(body).digest() + body


def worker_bundle(main: str) -> Bundle:
    """A bundle whose worker is this source, with a function `start`."""
    return Bundle.of(joined({"ccb/__init__.py": "", "ccb/remote/__init__.py": "", "ccb/remote/main.py": main}))
