"""A worker that runs from memory, as on a host: with the importer of the stub."""

from __future__ import annotations

from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_STUB = _ROOT / "deploy" / "stub.py"


def bundle_of_the_sources() -> bytes:
    found = {"ccb/__init__.py": b"__version__ = 'x'", "ccb/tunnel/__init__.py": b""}
    for top, name in (("remote", "ccb/remote"), ("tunnel/wire", "ccb/tunnel/wire")):
        for path in (_ROOT / top).rglob("*.py"):
            found[f"{name}/{path.relative_to(_ROOT / top)}"] = path.read_bytes()
    return b"".join(name.encode() + b"\0" + source + b"\0" for name, source in found.items())


def imports_from(bundle: Path) -> str:
    """Return a program's first lines, which read a bundle, remove its file, and import the worker from its bytes."""
    definitions = _STUB.read_text(encoding="utf-8").rpartition("main()")[0]
    return f"""
import os, sys
sys.argv[1:] = ["marker", "0" * 64, "0", ""]
exec({definitions!r})
with open({str(bundle)!r}, "rb") as file:
    sys.meta_path.insert(0, BundleImporter(file.read(), dict()))
os.unlink({str(bundle)!r})
"""
