"""A bug on the host before a session has begun is a refusal with evidence, not a traceback on the person's terminal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

_SOURCE = Path(__file__).resolve().parents[2] / "src"
_BUG = """
import sys
from ccb.remote import main
from ccb.remote.host_commands import host_command as commands
main._find_or_start = lambda start: [][1]
commands._run = lambda params, bundle, reports: [][1]
sys.exit(main.start(%r, "b" * 64, "disk"))
"""


@pytest.mark.parametrize("params", [{"session": "x"}, {"command": "ps"}])
def test_a_bug_is_a_refusal_with_the_places_in_the_code(params: dict[str, str], tmp_path: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(_SOURCE)}
    argv = [sys.executable, "-S", "-c", _BUG % params]
    done = subprocess.run(argv, env=env, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (1, b"")
    refused = json.loads(done.stdout)
    assert (refused["t"], refused["code"]) == ("refused", "internal") and "a bug in the worker" in refused["message"]
    assert refused["data"]["bug"] == "IndexError: list index out of range"
    assert refused["data"]["passed"].split()[-1] == "<string>:5" if "session" in params else "<string>:6"
