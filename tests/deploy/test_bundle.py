"""The worker bundle and the command line that carries the stub: reproducible, small, Python 3.9 without packages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb import __version__
from ccb.deploy.bundle import Bundle, load
from ccb.deploy.bundling.build import FORMS, build
from ccb.deploy.bundling.files import files_of
from ccb.deploy.command import bootstrap_command

ROOT = Path(__file__).resolve().parents[2]
MARKER = "ab" * 16


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    hooks, tasks = (shutil.copytree(ROOT / "remote" / room, tmp_path / room) for room in ("hooks", "tasks"))
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert build(hooks, tasks, __version__) == build(ROOT / "remote/hooks", ROOT / "remote/tasks", __version__)


def test_a_change_of_a_source_changes_the_name(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "remote" / "hooks", tmp_path / "remote")
    before = build(tmp_path / "remote", tmp_path / "remote", __version__)
    with (tmp_path / "remote" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("changed = True\n")
    assert build(tmp_path / "remote", tmp_path / "remote", __version__) != before


def test_the_bundle_is_small_and_holds_the_worker_only() -> None:
    bundle = load()
    assert len(bundle.packed("xz")) <= FORMS["xz"] == 300 * 1024  # a first start waits for it
    assert len(bundle.packed("zlib")) <= FORMS["zlib"] == 380 * 1024
    names = files_of(bundle.data)
    _, commands = load().with_commands()
    assert {name.rpartition("/")[0] for name in files_of(commands.data)} >= {"ccb/remote/host_commands"}
    assert not [name for name in names if "host_commands" in name]
    assert {name.split("/")[1] for name in names} == {"__init__.py", "remote", "tunnel"}
    assert all(name.endswith(".py") for name in names)


@pytest.mark.sources
def test_the_worker_and_the_stub_need_no_more_than_python_3_9() -> None:
    vermin = Path(sys.executable).with_name("vermin")
    targets = [str(ROOT / "remote"), str(ROOT / "tunnel" / "wire"), str(ROOT / "deploy" / "stub.py")]
    command = [str(vermin), "--target=3.9-", "--no-tips", "--no-parse-comments", *targets]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "Minimum required versions:" in done.stdout


def test_the_command_line_is_one_short_line_that_every_shell_reads_alike() -> None:
    command = bootstrap_command(MARKER, load(), {"session": "s", "cwd": "/srv/app"})
    assert "\n" not in command
    assert command.count("'") == 2
    assert command.startswith("exec /bin/sh -c '")
    assert "!" not in command, "csh expands ! even between single quotes"
    assert len(command) < 16 * 1024


@given(st.dictionaries(st.text(max_size=10), st.text(max_size=60), max_size=4))
def test_parameters_cannot_break_out_of_the_command_line(params: dict[str, str]) -> None:
    command = bootstrap_command(MARKER, Bundle.of(b"bundle"), params)
    assert command.count("'") == 2
    assert re.fullmatch(r"[A-Za-z0-9+/=]*", command.split(f"{MARKER} ")[1].split()[2])
