"""A worker that runs from memory, as on a host: with the importer of the stub."""

from __future__ import annotations

from pathlib import Path

_STUB = Path(__file__).resolve().parents[2] / "deploy" / "stub.py"


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
