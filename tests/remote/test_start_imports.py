"""What the worker imports before hello: each module is compiled from the zip, so they must stay few and small."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_SOURCE = Path(__file__).resolve().parents[2] / "src"
_CHOOSE = """
import json, os, sys
from ccb.remote import main
from ccb.remote.daemon import %s
main.chosen_session({"session": "00000000-0000-4000-8000-000000000000", "cwd": "~", "create": True})
json.dump(sorted(sys.modules), sys.stdout)
"""
_EVERY_CONNECTION = [
    "daemon",
    "main",
    "sessions",
    "sessions.directory",
    "sessions.identity",
    "sessions.ownership",
    "sessions.paths",
    "sessions.refusal",
    "sessions.selection",
    "sessions.sockets",
]


@pytest.mark.parametrize(
    ("entry", "more"), [("start", ["daemon.hello", "daemon.start"]), ("bridge", ["daemon.bridge"])]
)
def test_only_what_it_takes_is_imported_before_hello(entry: str, more: list[str], tmp_path: Path) -> None:
    """`start` when a daemon has to be started: the bridge is imported beside it. `bridge` when one is alive."""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(_SOURCE)}
    argv = [sys.executable, "-S", "-c", _CHOOSE % entry]
    done = subprocess.run(argv, env=env, capture_output=True, check=True, timeout=60)
    modules = json.loads(done.stdout)
    ours = [name[11:] for name in modules if name.startswith("ccb.remote.")]
    assert ours == sorted([*_EVERY_CONNECTION, *more])
    assert not {"asyncio", "typing", "dataclasses", "logging", "subprocess", "shutil", "difflib"} & set(modules)
