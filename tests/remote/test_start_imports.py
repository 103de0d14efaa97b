"""What a start imports before hello: each module is compiled from the zip, so few and small ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).resolve().parents[2] / "src"
_START = """
import json, os, sys
from ccb.remote import main
from ccb.remote.sessions import paths, selection
main.chosen_session({"session": "00000000-0000-4000-8000-000000000000", "cwd": "~", "create": True})
json.dump(sorted(sys.modules), sys.stdout)
"""


def test_a_start_imports_only_what_it_takes(tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(_SOURCE)}
    done = subprocess.run([sys.executable, "-S", "-c", _START], env=env, capture_output=True, check=True, timeout=60)
    modules = json.loads(done.stdout)
    ours = [name[11:] for name in modules if name.startswith("ccb.remote.")]
    assert ours == [
        "daemon",
        "daemon.bridge",
        "daemon.hello",
        "main",
        "sessions",
        "sessions.directory",
        "sessions.identity",
        "sessions.paths",
        "sessions.refusal",
        "sessions.selection",
        "sessions.sockets",
    ]
    assert not {"asyncio", "typing", "dataclasses", "logging", "subprocess", "shutil", "difflib"} & set(modules)
