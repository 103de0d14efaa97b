"""What the worker imports before hello: each module is compiled from the bundle, so they must stay few and small."""

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
%s
main.chosen_session({"session": "00000000-0000-4000-8000-000000000000", "cwd": "~", "create": True})
json.dump(sorted(sys.modules), sys.stdout)
"""
_BEGIN = """
import json, os, sys
from ccb.remote.daemon import daemon_start as start
start._import_what_the_daemon_needs()
from ccb.remote.permissions.engine import LaunchRules, PermissionEngine
from ccb.remote.permissions.modes import Sandbox
from ccb.remote.tools.toolset import default_tools, make_context
context = make_context("/", "")
engine = PermissionEngine(LaunchRules(Sandbox(context.cages)), cwd="/", home="/home")
tools = {tool.name: tool for tool in default_tools()}
engine.decide(tools["Read"], {"file_path": "/etc/hosts"})
json.dump(sorted(sys.modules), sys.stdout)
"""
_START = """
import json, sys
from ccb.remote.daemon import daemon_start as start
%s
json.dump(sorted(sys.modules), sys.stdout)
"""
_EVERY_CONNECTION = [
    "main",
    "session_store",
    "session_store.locks",
    "session_store.refusal",
    "session_store.session_paths",
    "session_store.sockets",
]


@pytest.mark.parametrize(
    ("start", "more"),
    [
        (
            "from ccb.remote.daemon import daemon_start",
            ["daemon", "daemon.daemon_start", "daemon.hello", "session_store.node_claim"],
        ),
        ("", []),
    ],
)
def test_only_what_it_takes_is_imported_before_hello(start: str, more: list[str], tmp_path: Path) -> None:
    """First when a daemon has to be started; then when one is alive."""
    modules = _modules_after(_CHOOSE % start, tmp_path)
    ours = [name[11:] for name in modules if name.startswith("ccb.remote.")]
    assert ours == sorted([*_EVERY_CONNECTION, *more])
    assert not {"asyncio", "typing", "dataclasses", "logging", "subprocess", "shutil", "difflib"} & set(modules)


def test_a_session_that_runs_no_command_does_not_import_what_reads_commands(tmp_path: Path) -> None:
    """Nor TLS, which asyncio would import and the worker never speaks, nor what only later work needs."""
    modules = _modules_after(_BEGIN, tmp_path)
    reads_commands = ("ccb.remote.permissions.shell",)
    assert "ccb.remote.daemon.daemon" in modules and "ccb.remote.tools.bash" in modules
    assert not [name for name in modules if name.startswith(reads_commands)]
    later = {"ssl", "_ssl", "uuid", "platform", "shutil", "tempfile", "difflib", "logging.handlers", "pickle"}
    assert not later & set(modules)


@pytest.mark.parametrize("parts", [0, 3, 99])
def test_who_waits_for_the_laptop_imports_only_what_the_daemon_needs_until_its_word(parts: int, tmp_path: Path) -> None:
    word = f"words = iter([0] * {parts} + [1]); start.import_ahead(lambda: next(words))"
    begin, ahead, daemon = (
        set(_modules_after(_START % then, tmp_path)) for then in ("", word, "start._import_what_the_daemon_needs()")
    )
    assert {0: not ahead - begin, 3: "dataclasses" in ahead, 99: "ccb.tunnel.wire.journal_records" in ahead}[parts]
    assert ("asyncio" in ahead) is (parts == 99) and ahead <= daemon and "ssl" not in ahead


def _modules_after(program: str, home: Path) -> list[str]:
    """Return the names of the modules that a program has imported; it prints them as JSON."""
    done = _run(program, home)
    assert done.returncode == 0, done.stderr
    modules: list[str] = json.loads(done.stdout)
    return modules


def _run(program: str, home: Path) -> subprocess.CompletedProcess[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(_SOURCE)}
    argv = [sys.executable, "-S", "-c", program]
    return subprocess.run(argv, env=env, capture_output=True, check=False, timeout=60)


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
    done = _run(_BUG % params, tmp_path)
    assert (done.returncode, done.stderr) == (1, b"")
    refused = json.loads(done.stdout)
    assert (refused["t"], refused["code"]) == ("refused", "internal") and "a bug in the worker" in refused["message"]
    assert refused["data"]["bug"] == "IndexError: list index out of range"
    assert refused["data"]["passed"].split()[-1] == "<string>:5" if "session" in params else "<string>:6"
