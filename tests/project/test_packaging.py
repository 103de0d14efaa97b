"""Wheel and sdist hold exactly the tree, and what is installed from them runs elsewhere."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

import ccb

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("local", "remote", "tunnel", "deploy")


def _tracked(*folders: str) -> set[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *folders], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name for name in listed.stdout.split("\0") if name}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> tuple[Path, Path]:
    """The sdist, and the wheel built from that sdist. All processes of a test run share them."""
    base = tmp_path_factory.getbasetemp()
    out = (base if worker_id == "master" else base.parent) / "dist"
    with out.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not any(out.glob("*.whl")):
            subprocess.run(
                [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
                check=True,
                capture_output=True,
            )
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.mark.thorough
def test_the_sdist_holds_every_tracked_file_of_the_rooms(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as archive:
        members = {member.name.split("/", 1)[1]: member for member in archive.getmembers() if "/" in member.name}
    assert not [name for name, member in members.items() if member.issym() or member.islnk()]
    folders = (*ROOMS, "tests", "evaluation")
    assert not _tracked(*folders, "pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md") - set(members)


@pytest.mark.thorough
def test_the_wheel_holds_the_rooms_under_ccb_and_the_worker_bundle(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as archive:
        names = {name for name in archive.namelist() if not name.split("/")[0].endswith(".dist-info")}
    expected = {f"ccb/{name}" for name in _tracked(*ROOMS, "docs/guide", "docs/reference", "docs/ccb.1")}
    expected |= {
        "ccb/__init__.py",
        "ccb/__init__.pyi",
        "ccb/__main__.py",
        "ccb/py.typed",
        f"ccb-{ccb.__version__}.data/data/share/man/man1/ccb.1",
        *(f"ccb/deploy/{part}.{each}" for part in ("worker", "commands") for each in ("bundle", "xz", "zlib")),
    }
    assert names == expected


@pytest.mark.timeout(180)
@pytest.mark.thorough
def test_the_installed_wheel_runs_from_another_directory(built: tuple[Path, Path], tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    pip = [sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"), "--quiet", "install", "--no-deps"]
    subprocess.run([*pip, "--disable-pip-version-check", "--no-compile", str(built[1])], check=True)
    (site,) = venv.glob("lib/python3*/site-packages")
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # to install them again takes 10 s of CPU
    elsewhere = tmp_path / "elsewhere"
    for trap in ROOMS:  # folders with the rooms' names in a user's project must not be imported
        (elsewhere / trap).mkdir(parents=True)
        (elsewhere / trap / "__init__.py").write_text("raise SystemExit('code of the user project ran')")
    env = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "LC_ALL": "C.UTF-8"}

    def run(*argv: str) -> str:
        done = subprocess.run(argv, cwd=elsewhere, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    ccb = str(venv / "bin" / "ccb")
    assert run(ccb, "--version").startswith("2.")
    assert "ssh" in run(ccb, "--help")
    assert "ssh" in run(str(venv / "bin" / "python"), "-m", "ccb", "--help")
    assert "# The sandbox" in run(ccb, "help", "sandbox")
    installed = run(
        str(venv / "bin" / "python"), "-I", "-c", "from ccb.deploy.bundle import load; print(load().sha256)"
    )
    source_env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    here = subprocess.run(
        [sys.executable, "-c", "from ccb.deploy.bundle import load; print(load().sha256)"],
        env=source_env, capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert installed == here.stdout, "the wheel carries another worker than the source builds"


@pytest.fixture(scope="module")
def installers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of pipx and uv."""
    venv = tmp_path_factory.mktemp("installers")
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    got = subprocess.run([venv / "bin/pip", "install", "-q", "pipx", "uv"], capture_output=True, text=True, check=False)
    if got.returncode:
        pytest.skip(f"the package index does not give pipx and uv: {got.stderr[-200:]}")
    return venv / "bin"


@pytest.mark.timeout(300)
@pytest.mark.thorough
@pytest.mark.parametrize(
    ("install", "said"),
    [
        (("pipx", "install", "WHEEL"), "pipx install --force ccb"),
        (("pipx", "install", "--pip-args=--find-links FOLDER", "ccb"), "pipx upgrade ccb"),
        (("uv", "tool", "install", "WHEEL"), "uv tool install --force ccb"),
        (("uv", "tool", "install", "--find-links", "FOLDER", "ccb"), "uv tool upgrade ccb"),
    ],
    ids=["pipx, the wheel", "pipx, an index", "uv, the wheel", "uv, an index"],
)
def test_pipx_and_uv_install_the_wheel(
    built: tuple[Path, Path], installers: Path, tmp_path: Path, install: tuple[str, ...], said: str
) -> None:
    names = ("PIPX_HOME", "PIPX_BIN_DIR", "PIPX_MAN_DIR", "UV_TOOL_DIR", "UV_TOOL_BIN_DIR", "UV_CACHE_DIR")
    own = {"HOME": str(tmp_path), "UV_PYTHON": sys.executable, "PIPX_DEFAULT_PYTHON": sys.executable}
    env = {**os.environ, **own, **{name: str(tmp_path / name) for name in names}}
    words = [each.replace("WHEEL", str(built[1])).replace("FOLDER", str(built[1].parent)) for each in install]
    done = subprocess.run([installers / words[0], *words[1:]], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    program = tmp_path / ("PIPX_BIN_DIR" if words[0] == "pipx" else "UV_TOOL_BIN_DIR") / "ccb"
    upgrade = subprocess.run([program, "upgrade"], env=env, capture_output=True, text=True, check=True)
    assert upgrade.stdout.splitlines()[-1] == f"Upgrade with: {said}"
    script = subprocess.run([program, "completion", "bash"], env=env, capture_output=True, text=True, check=True).stdout
    assert str(program.resolve().parent / "python") in script
    if words[0] == "pipx":  # it links manual pages, which uv does not
        assert ".TH CCB 1" in (tmp_path / "PIPX_MAN_DIR/man1/ccb.1").read_text()
