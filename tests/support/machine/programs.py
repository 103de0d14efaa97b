"""Programs for tests to run; only the standard library, because the worker's tests use it."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def shell_script(path: Path, text: str) -> Path:
    """Make a program of `text`, which may name another interpreter than /bin/sh in its first line."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text if text.startswith("#!") else f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def with_sources() -> dict[str, str]:
    """Return the environment of a Python that imports what this one does."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
