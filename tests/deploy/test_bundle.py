"""The bundle of a source tree, built once and kept; reproducible, small, Python 3.9 without packages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.worker.compiled import files_of

from ccb import __version__
from ccb.deploy import build_bundle as builder
from ccb.deploy.build_bundle import build
from ccb.deploy.bundle import cached_bundle, cached_form, load


@pytest.fixture
def package(tmp_path: Path) -> Path:
    sources = {"remote/main.py": "A = 1\n", "remote/agent/turn.py": "", "remote/host_commands/gc.py": "B = 1\n"}
    for name, text in {**sources, "tunnel/wire/frames.py": ""}.items():
        (tmp_path / "ccb" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ccb" / name).write_text(text)
    return tmp_path / "ccb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "__pycache__"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    builds: list[bytes] = []
    build = builder.build

    def counted(remote: Path, wire: Path, version: str) -> dict[str, bytes]:
        bundles = build(remote, wire, version)
        builds.append(bundles["worker"])
        return bundles

    monkeypatch.setattr(builder, "build", counted)
    return builds


def test_the_second_start_does_not_build(package: Path, folder: Path, built: list[bytes]) -> None:
    first = cached_bundle(package, "1", folder)
    assert cached_bundle(package, "1", folder) == first
    assert [cached_bundle(package, "1", folder, "commands") for _ in range(2)] == [
        b"ccb/remote/host_commands/gc.py\0B = 1\n\0"
    ] * 2
    assert built == [first, first], "once for each of the two"
    assert sorted(each.name for each in folder.iterdir()) == ["commands.bundle", "worker.bundle"]


def test_every_change_of_the_sources_builds_again(package: Path, folder: Path, built: list[bytes]) -> None:
    source = package / "remote" / "main.py"

    def same_size_and_time() -> None:
        old = source.stat()
        source.write_text("A = 3\n")
        os.utime(source, ns=(old.st_atime_ns, old.st_mtime_ns))

    changes: list[Callable[[], object]] = [
        lambda: source.write_text("A = 2\n"),
        same_size_and_time,
        (package / "remote" / "agent" / "turn.py").unlink,
        lambda: (package / "tunnel" / "wire" / "records.py").write_text(""),
        lambda: source.rename(package / "remote" / "start.py"),
    ]
    cached_bundle(package, "1", folder)
    for number, change in enumerate(changes, start=2):
        change()
        cached_bundle(package, "1", folder)
        assert len(built) == number
    cached_bundle(package, "2", folder)
    assert len(set(built)) == len(changes) + 2


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:70] + b"!" + data[71:], lambda _: b""])
def test_a_damaged_file_is_replaced(package: Path, folder: Path, damage: object, built: list[bytes]) -> None:
    assert callable(damage)
    first = cached_bundle(package, "1", folder)
    file = folder / "worker.bundle"
    file.write_bytes(damage(file.read_bytes()))
    assert cached_bundle(package, "1", folder) == first
    assert cached_bundle(package, "1", folder) == first
    assert len(built) == 2


def test_a_source_tree_that_cannot_be_written_builds_each_time(package: Path, folder: Path, built: list[bytes]) -> None:
    folder.write_text("not a directory")
    assert cached_bundle(package, "1", folder) == cached_bundle(package, "1", folder)
    assert len(built) == 2


def test_a_source_that_changes_meanwhile_is_not_taken_for_the_built_one(
    package: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = builder.build

    def build_and_edit(remote: Path, wire: Path, version: str) -> dict[str, bytes]:
        data = build(remote, wire, version)
        (remote / "main.py").write_text("A = 22\n")
        return data

    with monkeypatch.context() as patch:
        patch.setattr(builder, "build", build_and_edit)
        cached_bundle(package, "1", folder)
    assert cached_bundle(package, "1", folder) == build(package / "remote", package / "tunnel" / "wire", "1")["worker"]


def test_a_form_is_packed_once_for_a_bundle(folder: Path) -> None:
    file = folder / "worker.zlib"
    first = cached_form(b"bundle", "zlib", file)
    written = file.stat().st_ino
    assert (cached_form(b"bundle", "zlib", file), file.stat().st_ino) == (first, written)
    assert cached_form(b"newer", "zlib", file) == builder.pack(b"newer", "zlib") != first


ROOT = Path(__file__).resolve().parents[2]


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    hooks, context = (shutil.copytree(ROOT / "remote" / room, tmp_path / room) for room in ("hooks", "context"))
    for path in tmp_path.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    assert build(hooks, context, __version__) == build(ROOT / "remote/hooks", ROOT / "remote/context", __version__)


def test_the_bundle_is_small_and_holds_the_worker_only() -> None:
    bundle = load()
    assert len(bundle.packed("xz")) <= 320 * 1024  # a first start waits for it
    assert len(bundle.packed("zlib")) <= 410 * 1024
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
    words = ("-I", "-c", program, str(ROOT))
    runs = [
        subprocess.run([each, *words], capture_output=True, check=True) for each in (sys.executable, *map(str, pythons))
    ]
    answers = {each.stdout for each in runs}
    assert len(answers) == 1
