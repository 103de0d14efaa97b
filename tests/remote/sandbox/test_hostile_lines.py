"""Hundreds of hostile lines in the cage that only reads: nothing is written, started, read outside or connected."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ccb.remote.sandbox.cage_server import Availability, CageServer

_WORLD = Path(__file__).with_name("hostile_world.py")
_PLAIN_USER = 12345
_NEEDS = "import sys, ccb.remote, tests.remote.sandbox; sys.exit(sys.version_info < (3, 9))"

pytestmark = pytest.mark.slow


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="ccb-hostile-", dir="/tmp"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def _environment(home: Path) -> dict[str, str]:
    sources = os.pathsep.join(os.path.abspath(path) for path in sys.path if path)
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": sources}


def _as_plain_user(home: Path) -> tuple[str, dict[str, Any]]:
    """Return an interpreter, and the options of `subprocess.run` for a user who is not root."""
    options: dict[str, Any] = {}
    if os.getuid() == 0:
        options = {"user": _PLAIN_USER, "group": _PLAIN_USER, "extra_groups": []}
        os.chown(home, _PLAIN_USER, _PLAIN_USER)
    root = Path(__file__).parents[3]
    environment = {**_environment(home), "PYTHONPATH": f"{root}/src{os.pathsep}{root}"}
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            subprocess.run([python, "-c", _NEEDS], check=True, cwd="/", env=environment, capture_output=True, **options)
        except (OSError, subprocess.CalledProcessError):
            continue
        return python, {**options, "env": environment}
    pytest.skip("no Python here can be run, with these sources, by a user who is not root")


def _run(place: Path, user: str, abi: int, cage: str, nth: int = 1) -> dict[str, Any]:
    python, options = sys.executable, dict[str, Any](env=_environment(place))
    if user == "plain":
        python, options = _as_plain_user(place)
    elif os.getuid() != 0:
        pytest.skip("only root is root")
    argv = [python, str(_WORLD), str(place / "world"), str(abi), cage, str(nth)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", timeout=110, **options)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def _newest() -> Availability:
    with contextlib.closing(CageServer()) as server:
        return server.availability()


@pytest.mark.parametrize(("user", "abi", "nth"), [("plain", 99, 3), ("root", 99, 1), ("plain", 4, 6), ("plain", 1, 6)])
@pytest.mark.quick_rows(1)
def test_no_line_does_harm_under_landlock(place: Path, user: str, abi: int, nth: int) -> None:
    """Also where the kernel has only an old Landlock. Root passes by the modes of files, but not by the cage."""
    newest = _newest().abi
    if not newest or newest < abi != 99:
        pytest.skip(f"this kernel has ABI {newest} of Landlock")
    found = _run(place, user, abi, "read-only", nth)
    assert (found["mechanism"], found["abi"]) == ("Landlock", min(abi, newest))
    assert found["found"] == []
    assert found["lines"] > 200 / nth


@pytest.mark.parametrize(("user", "nth"), [("plain", 6), ("root", 3)])
@pytest.mark.quick_rows(1)
def test_no_line_does_harm_in_namespaces(place: Path, user: str, nth: int) -> None:
    """On a kernel without Landlock."""
    found = _run(place, user, 0, "read-only", nth)
    if not found["mechanism"]:
        pytest.skip("this machine allows no namespaces")
    assert found["mechanism"] == "namespaces"
    assert found["found"] == []


@pytest.mark.parametrize(("user", "nth"), [("plain", 5), ("root", 2)])
@pytest.mark.quick_rows(1)
def test_in_the_workspace_harm_stays_in_the_project(place: Path, user: str, nth: int) -> None:
    available = _newest()
    if not available.workspace:
        pytest.skip(available.why)
    assert _run(place, user, 99, "workspace", nth)["found"] == []


def test_without_a_cage_they_do_harm(place: Path) -> None:
    assert _run(place, "plain", 99, "none")["harmful"] > 100
