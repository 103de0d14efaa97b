"""Files of the host: atomic replacement that nobody can lose a change to, and reads that nothing can block."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.remote.worker_process import file_limit
from tests.support.machine.programs import shell_script

from ccb.remote.system import regular_files
from ccb.remote.system.host import DirEntry, Host
from ccb.remote.system.process import marked
from ccb.remote.system.regular_files import ABSENT, FileChanged, FileInfo, FileKind, NotAFile, digest_of

OLD = b"old content\n"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    (path := tmp_path / "a").write_bytes(OLD)
    return path


async def _replace(path: Path, new: bytes = b"new", known: bytes = OLD, unkept: str = "") -> FileInfo:
    return await Host().replace(str(path), new, digest_of(known), unkept=unkept)


def _names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


async def test_replace_keeps_the_mode_and_leaves_no_temporary_file(old: Path, tmp_path: Path) -> None:
    old.chmod(0o4751)
    info = await _replace(old)
    assert old.read_bytes() == b"new"
    assert stat.S_IMODE(old.stat().st_mode) == 0o4751
    assert (info.size, info.mtime_ns) == (3, old.stat().st_mtime_ns)
    assert _names(tmp_path) == ["a"]


async def test_replace_refuses_a_file_that_is_another_version(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"somebody was faster")
    with pytest.raises(FileChanged):
        await _replace(path)
    with pytest.raises(FileChanged):
        await Host().replace(str(path), b"new", ABSENT)
    assert path.read_bytes() == b"somebody was faster"
    with pytest.raises(FileChanged):
        await _replace(tmp_path / "gone")
    assert _names(tmp_path) == ["a"]


@pytest.mark.parametrize("other", ["a", "sub/b"], ids=["renamed", "in place"])
async def test_of_many_changes_to_one_version_exactly_one_is_made(tmp_path: Path, other: str) -> None:
    (tmp_path / "sub").mkdir()
    paths = tmp_path / "a", tmp_path / other
    paths[0].write_bytes(OLD)
    if other != "a":
        os.link(*paths)
    for _ in range(20):
        paths[0].write_bytes(OLD)
        hosts = [Host(), Host()]  # two sessions, each may know the file by another name
        attempts = [hosts[n % 2].replace(str(paths[n % 2]), b"new %d" % n, digest_of(OLD)) for n in range(8)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        made = [n for n, result in enumerate(results) if not isinstance(result, FileChanged)]
        assert len(made) == 1
        assert paths[0].read_bytes() == b"new %d" % made[0]
    assert _names(tmp_path) == ["a", "sub"]


async def test_a_new_file_gets_its_directories_and_the_usual_mode(tmp_path: Path) -> None:
    path = tmp_path / "x" / "y" / "a"
    old = os.umask(0o027)
    try:
        await Host().replace(str(path), b"new", ABSENT)
    finally:
        os.umask(old)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert _names(path.parent) == ["a"]


async def test_replace_writes_through_a_link(old: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (link := tmp_path / "sub" / "link").symlink_to("../a")
    await _replace(link)
    assert link.is_symlink() and _names(link.parent) == ["link"]
    assert old.read_bytes() == b"new"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
async def test_replace_keeps_the_owner(old: Path) -> None:
    os.chown(old, 12345, 54321)
    old.chmod(0o6755)
    await _replace(old)
    assert (old.stat().st_uid, old.stat().st_gid) == (12345, 54321)
    assert stat.S_IMODE(old.stat().st_mode) == 0o6755


@pytest.mark.parametrize("names", [["a"], ["a", "b"]], ids=["renamed", "in place"])
async def test_a_full_disk_changes_nothing(old: Path, tmp_path: Path, names: list[str]) -> None:
    for other in names[1:]:
        os.link(old, tmp_path / other)
    with file_limit(1000), pytest.raises(OSError, match="too large"):
        await _replace(old, b"x" * 5000)
    assert old.read_bytes() == OLD
    assert _names(tmp_path) == names


async def test_reading_never_waits_for_a_pipe_or_a_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero", str(tmp_path)):
        with pytest.raises(NotAFile):
            await Host().read(path, 0, 10)


async def test_a_range_of_bytes_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    host = Host()
    assert await host.read(str(tmp_path / "a"), 3, 4) == b"3456"
    assert await host.read(str(tmp_path / "a"), 8, 100) == b"89"


async def test_entries_say_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert await Host().list(str(tmp_path)) == [
        DirEntry("dir", FileKind.DIRECTORY),
        DirEntry("file", FileKind.FILE),
        DirEntry("link", FileKind.LINK, "nowhere"),
        DirEntry("pipe", FileKind.OTHER),
    ]
    assert await Host().stat(str(tmp_path / "link")) is None


def test_programs_are_never_taken_from_the_project(tmp_path: Path) -> None:
    project, system = tmp_path / "project" / "bin", tmp_path / "system"
    for directory in (project, system, link := tmp_path / "links"):
        directory.mkdir(parents=True)
    for directory in (project, system):
        shell_script(directory / "rg", "")
    (link / "rg").symlink_to(project / "rg")

    def found(*directories: object) -> str | None:
        path = os.pathsep.join(map(str, directories))
        return Host(untrusted=[str(tmp_path / "project")], environ={"PATH": path}).which("rg")

    assert found(system) == str(system / "rg")
    assert found(project) is None
    assert found(link) is None
    assert found(".", "bin") is None
    assert found(project, system) == str(system / "rg")


async def test_a_program_that_takes_too_long_is_ended_with_what_it_started() -> None:
    with contextlib.closing(Host()) as host:
        assert await host.output(["sh", "-c", "echo said; sleep 300 & sleep 300"], 1.0, 100) == (None, b"said\n")
        assert marked(host.session) == []
        assert await host.output(["sh", "-c", "echo said; exit 3"], 60.0, 100) == (3, b"said\n")


def as_other_user(work: Callable[[], Coroutine[Any, Any, object]], groups: tuple[int, ...] = ()) -> str:
    """Run `work` in a child process of another user, with the groups given. What it raises comes back as text."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        said = b"ok"
        try:
            os.setgroups(groups)
            os.setgid(12345)
            os.setuid(12345)
            asyncio.run(work())
        except BaseException as error:  # noqa: BLE001 - the parent reads it
            said = f"{type(error).__name__}: {error}".encode()
        os.write(into, said)
        os._exit(0)
    os.close(into)
    with open(out, "rb") as said_by:
        text = said_by.read().decode()
    os.waitpid(pid, 0)
    return text


async def test_all_hard_links_of_a_file_see_the_new_content(old: Path, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    os.link(old, two := tmp_path / "sub" / "two")
    inode = old.stat().st_ino
    info = await _replace(two, b"new, and longer than before\n")
    assert old.read_bytes() == two.read_bytes() == b"new, and longer than before\n"
    assert (old.stat().st_ino, info.links, info.size) == (inode, 2, 28)
    await _replace(old, b"short", two.read_bytes())
    assert two.read_bytes() == b"short" and _names(tmp_path) == ["a", "sub"] and _names(two.parent) == ["two"]


async def test_what_is_written_in_place_must_have_been_kept_before(old: Path, tmp_path: Path) -> None:
    os.link(old, tmp_path / "two")
    with pytest.raises(OSError, match=r"could not be kept before \(the disk is full\)"):
        await _replace(old, unkept="the disk is full")
    assert old.read_bytes() == OLD


async def test_a_link_in_the_place_of_the_file_is_not_followed(
    old: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.link(old, tmp_path / "two")
    (secret := tmp_path / "secret").write_bytes(OLD)
    check = regular_files._to_change

    def swapped(path: str) -> os.stat_result:
        found = check(path)
        old.unlink()
        old.symlink_to(secret)
        return found

    monkeypatch.setattr(regular_files, "_to_change", swapped)
    with pytest.raises(FileChanged):
        await _replace(old)
    assert secret.read_bytes() == OLD


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be other users")
async def test_the_file_of_a_colleague_stays_theirs(tmp_path: Path) -> None:
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        each.chmod(each.stat().st_mode | 0o055)
    (team := tmp_path / "team").mkdir()
    (shared := team / "plan.md").write_bytes(OLD)
    for path, mode in ((team, 0o2775), (shared, 0o664)):
        os.chown(path, 2222, 3333)
        path.chmod(mode)
    before = shared.stat()
    assert as_other_user(lambda: _replace(shared), (3333,)) == "ok"
    after = shared.stat()
    assert shared.read_bytes() == b"new"
    assert all(getattr(after, name) == getattr(before, name) for name in ("st_ino", "st_uid", "st_gid", "st_mode"))
    assert _names(team) == ["plan.md"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be other users")
@pytest.mark.parametrize("mode", [0o555, 0o1777], ids=["closed directory", "sticky directory"])
async def test_a_writable_file_is_written_where_no_name_may_change(tmp_path: Path, mode: int) -> None:
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        each.chmod(each.stat().st_mode | 0o055)
    (place := tmp_path / "place").mkdir()
    (path := place / "app.conf").write_bytes(OLD)
    path.chmod(0o666)
    place.chmod(mode)
    assert as_other_user(lambda: _replace(path)) == "ok"
    assert path.read_bytes() == b"new" and path.stat().st_uid == 0
    assert _names(place) == ["app.conf"]
    path.chmod(0o444)
    said = as_other_user(lambda: _replace(path, b"newer", b"new"))
    assert said.startswith("PermissionError") and path.read_bytes() == b"new"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
async def test_a_file_that_is_mounted_by_itself_is_written_in_place(tmp_path: Path) -> None:
    (source := tmp_path / "source").write_bytes(OLD)
    (path := tmp_path / "mounted").write_bytes(b"under the mount")
    if subprocess.run(["mount", "--bind", source, path], capture_output=True, check=False).returncode:
        pytest.skip("nothing can be mounted here")
    try:
        await _replace(path)
        assert source.read_bytes() == b"new"
    finally:
        subprocess.run(["umount", path], check=True)
    assert path.read_bytes() == b"under the mount" and _names(tmp_path) == ["mounted", "source"]


async def test_attributes_are_kept_and_none_is_added(old: Path) -> None:
    try:
        os.setxattr(old, "user.note", b"mine")
    except OSError:
        pytest.skip("the file system has no attributes")
    await _replace(old)
    assert {name: os.getxattr(old, name) for name in os.listxattr(old)} == {"user.note": b"mine"}


@pytest.mark.skipif(os.getuid() != 0, reason="only root can mount")
async def test_a_container_that_has_the_file_mounted_sees_the_new_content(tmp_path: Path) -> None:
    (path := tmp_path / "app conf").write_bytes(OLD)
    (place := tmp_path / "in the container").write_bytes(b"")
    script = 'mount --bind "$1" "$2" && echo mounted && read -r _ && cat "$2"'
    argv = ["unshare", "-m", "sh", "-c", script, "sh", str(path), str(place)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as container:
        assert container.stdin and container.stdout
        if container.stdout.readline() != b"mounted\n":
            pytest.skip("nothing can be mounted here")
        await _replace(path)
        assert container.communicate(b"\n", timeout=60)[0] == b"new"
    assert _names(tmp_path) == ["app conf", "in the container"]


def test_the_temporary_file_of_a_write_is_removed_only_when_nobody_writes_it(tmp_path: Path) -> None:
    with regular_files._temporary(str(tmp_path), 0o600) as (temp, _):
        regular_files.remove_left_files([str(tmp_path), "/no/such/directory"])
        assert os.path.lexists(temp)
    Path(temp).touch()
    regular_files.remove_left_files([str(tmp_path)])
    assert _names(tmp_path) == []
