"""Files of the host: atomic replacement that nobody can lose a change to, and reads that nothing can block."""

from __future__ import annotations

import asyncio
import os
import stat
from pathlib import Path

import pytest

from ccb.remote.system.host import DirEntry, LocalHost
from ccb.remote.system.regular_files import ABSENT, FileChanged, FileKind, NotAFile, digest_of

OLD = b"old content\n"


def _names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


async def test_replace_keeps_the_mode_and_leaves_no_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_bytes(OLD)
    path.chmod(0o4751)
    info = await LocalHost().replace(str(path), b"new", digest_of(OLD))
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o4751
    assert (info.size, info.mtime_ns) == (3, path.stat().st_mtime_ns)
    assert _names(tmp_path) == ["run.sh"]


async def test_replace_refuses_a_file_that_is_another_version(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"somebody was faster")
    with pytest.raises(FileChanged):
        await LocalHost().replace(str(path), b"new", digest_of(OLD))
    assert path.read_bytes() == b"somebody was faster"
    assert _names(tmp_path) == ["a"]


async def test_of_many_changes_to_one_version_exactly_one_is_made(tmp_path: Path) -> None:
    path = tmp_path / "a"
    for _ in range(20):
        path.write_bytes(OLD)
        hosts = [LocalHost(), LocalHost()]  # two sessions
        attempts = [hosts[n % 2].replace(str(path), b"new %d" % n, digest_of(OLD)) for n in range(8)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        made = [n for n, result in enumerate(results) if not isinstance(result, FileChanged)]
        assert len(made) == 1
        assert path.read_bytes() == b"new %d" % made[0]
    assert _names(tmp_path) == ["a"]


async def test_replace_refuses_a_file_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileChanged):
        await LocalHost().replace(str(tmp_path / "a"), b"new", digest_of(OLD))
    assert _names(tmp_path) == []


async def test_a_new_file_takes_no_name_that_exists(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(OLD)
    with pytest.raises(FileChanged):
        await LocalHost().replace(str(path), b"new", ABSENT)
    assert path.read_bytes() == OLD


async def test_a_new_file_gets_its_directories_and_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "x" / "y" / "a"
    old = os.umask(0o027)
    try:
        await LocalHost().replace(str(path), b"new", ABSENT)
    finally:
        os.umask(old)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert _names(path.parent) == ["a"]


async def test_replace_writes_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "real" / "a"
    target.parent.mkdir()
    target.write_bytes(OLD)
    link = tmp_path / "link"
    link.symlink_to("real/a")
    await LocalHost().replace(str(link), b"new", digest_of(OLD))
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_replace_keeps_the_owner(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(OLD)
    os.chown(path, 12345, 54321)
    path.chmod(0o6755)
    await LocalHost().replace(str(path), b"new", digest_of(OLD))
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 54321)
    assert stat.S_IMODE(path.stat().st_mode) == 0o6755


async def test_a_full_disk_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(OLD)

    import resource
    import signal

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            await LocalHost().replace(str(path), b"x" * 5000, digest_of(OLD))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == OLD
    assert _names(tmp_path) == ["a"]


async def test_reading_never_waits_for_a_pipe_or_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path)):
        with pytest.raises(NotAFile):
            await LocalHost().read(path, 0, 10)
        assert LocalHost().peek(path, 10) is None


async def test_a_range_of_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    host = LocalHost()
    assert await host.read(str(tmp_path / "a"), 3, 4) == b"3456"
    assert await host.read(str(tmp_path / "a"), 8, 100) == b"89"
    assert host.peek(str(tmp_path / "a"), 10) == b"0123456789"
    assert host.peek(str(tmp_path / "a"), 9) is None


async def test_entries_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert await LocalHost().list(str(tmp_path)) == [
        DirEntry("dir", FileKind.DIRECTORY),
        DirEntry("file", FileKind.FILE),
        DirEntry("link", FileKind.LINK, "nowhere"),
        DirEntry("pipe", FileKind.OTHER),
    ]
    assert await LocalHost().stat(str(tmp_path / "link")) is None
    found = await LocalHost().stat(str(tmp_path / "link"), follow=False)
    assert found is not None
    assert found.kind is FileKind.LINK


def test_programs_are_never_taken_from_the_project(tmp_path: Path) -> None:
    project, system = tmp_path / "project" / "bin", tmp_path / "system"
    for directory in (project, system):
        directory.mkdir(parents=True)
        (directory / "rg").write_text("#!/bin/sh\n")
        (directory / "rg").chmod(0o755)
    link = tmp_path / "links"
    link.mkdir()
    (link / "rg").symlink_to(project / "rg")

    def found(*directories: object) -> str | None:
        path = os.pathsep.join(map(str, directories))
        return LocalHost(untrusted=[str(tmp_path / "project")], environ={"PATH": path}).which("rg")

    assert found(system) == str(system / "rg")
    assert found(project) is None
    assert found(link) is None
    assert found(".", "bin") is None
    assert found(project, system) == str(system / "rg")
