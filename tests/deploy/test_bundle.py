"""The bundle that a source tree keeps: the one of its sources as they are now, and built once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ccb.deploy import build_bundle as builder
from ccb.deploy.bundle import cached_bundle, cached_form


@pytest.fixture
def package(tmp_path: Path) -> Path:
    sources = {"main.py": "A = 1\n", "agent/turn.py": "", "host_commands/gc.py": "B = 1\n"}
    for name, text in {
        **{f"remote/{name}": text for name, text in sources.items()},
        "tunnel/wire/frames.py": "",
    }.items():
        (tmp_path / "ccb" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "ccb" / name).write_text(text)
    return tmp_path / "ccb"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "__pycache__"


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The worker's bundles that were built."""
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
    commands = cached_bundle(package, "1", folder, "commands")
    assert (built, commands) == ([first], b"ccb/remote/host_commands/gc.py\0B = 1\n\0")
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
    assert (
        cached_bundle(package, "1", folder) == cached_bundle(package, "1", folder) == cached_bundle(package, "1", None)
    )
    assert len(built) == 3


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


def test_two_that_write_at_once_leave_a_whole_file(package: Path, folder: Path, built: list[bytes]) -> None:
    together = threading.Barrier(4)
    found: list[bytes] = []

    def start() -> None:
        together.wait(10)
        found.append(cached_bundle(package, "1", folder))

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(found) == 4
    assert len(set(found)) == 1
    builds = len(built)
    assert cached_bundle(package, "1", folder) == found[0]
    assert len(built) == builds


def test_a_form_is_packed_once_for_a_bundle(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packs: list[str] = []
    pack = builder.pack

    def counted(data: bytes, form: str) -> bytes:
        packs.append(form)
        return pack(data, form)

    monkeypatch.setattr(builder, "pack", counted)
    for form in builder.FORMS:
        file = folder / f"worker.{form}"
        first = cached_form(b"bundle", form, file)
        assert cached_form(b"bundle", form, file) == first
        assert cached_form(b"newer", form, file) == pack(b"newer", form)
    assert packs == ["xz", "xz", "zlib", "zlib"]
    assert cached_form(b"newer", "xz", None) == cached_form(b"newer", "xz", folder / "worker.xz")
