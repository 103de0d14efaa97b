"""The worker bundle: reproducible, small, Python 3.9 without packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.worker.compiled import files_of

from ccb import __version__
from ccb.deploy.build_bundle import build
from ccb.deploy.bundle import load

ROOT = Path(__file__).resolve().parents[2]


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    hooks, context = (shutil.copytree(ROOT / "remote" / room, tmp_path / room) for room in ("hooks", "context"))
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert build(hooks, context, __version__) == build(ROOT / "remote/hooks", ROOT / "remote/context", __version__)


def test_a_change_of_a_source_changes_the_name(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "remote" / "hooks", tmp_path / "remote")
    before = build(tmp_path / "remote", tmp_path / "remote", __version__)
    with (tmp_path / "remote" / "__init__.py").open("a", encoding="utf-8") as file:
        file.write("changed = True\n")
    assert build(tmp_path / "remote", tmp_path / "remote", __version__) != before


def test_the_bundle_is_small_and_holds_the_worker_only() -> None:
    bundle = load()
    assert len(bundle.packed("xz")) <= 305 * 1024  # a first start waits for it
    assert len(bundle.packed("zlib")) <= 385 * 1024
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


@pytest.mark.thorough
def test_every_python_gives_the_same_bytes() -> None:
    versions = Path(os.environ.get("PYENV_ROOT", "/root/.pyenv")) / "versions"
    pythons = [path for path in sorted(versions.glob("3.1[1-4]*/bin/python3")) if path.is_file()]
    program = (
        "import sys; from pathlib import Path; root = Path(sys.argv[1]); sys.path.insert(0, str(root));"
        "from deploy.build_bundle import build; built = build(root / 'remote', root / 'tunnel' / 'wire', '1');"
        "import hashlib; print(hashlib.sha256(b''.join(built.values())).hexdigest())"
    )
    answers = {
        subprocess.run(
            [str(python), "-I", "-c", program, str(ROOT)], capture_output=True, check=True, timeout=60
        ).stdout
        for python in [Path(sys.executable), *pythons]
    }
    assert len(answers) == 1
