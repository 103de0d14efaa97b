"""A disk that fills up while the bundle is written: the next place is named, and no half-written file stays."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest
from tests.deploy.test_bootstrap import Host, fresh_bundle, small_disk
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until

from ccb.deploy.bootstrap import launch
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.wire.frames import Hello
from ccb.tunnel.wire.ndjson import FrameDecoder

INJECTED = {
    "the mark of what is made": ("write", "ENOSPC", 2),
    "write": ("write", "ENOSPC", 3),
    "the quota": ("write", "EDQUOT", 3),
    "fsync": ("fsync", "ENOSPC", 1),
    "rename": ("rename", "ENOSPC", 1),
}  # the call that fails, how, and when: the stub's first write asks for the bundle, the second one is that mark

SAID = {"ENOSPC": "No space left on device", "EDQUOT": "Disk quota exceeded"}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path / "home")


@asynccontextmanager
async def session(host: Host, python: str = sys.executable) -> AsyncIterator[Hello]:
    """A first session on the host, whose worker has said hello; over at the end."""
    params = {"session": str(uuid.uuid4()), "cwd": "/", "create": True}
    transport = LocalTransport(host.env)
    try:
        launched = await launch(transport, params, fresh_bundle(), candidates=[python])
        assert launched.uploaded
        decoder = FrameDecoder()
        frames = list(decoder.feed(launched.rest))
        while not frames:
            data = await launched.pipe.read()
            assert data
            frames += decoder.feed(data)
        (hello,) = frames
        assert isinstance(hello, Hello), hello
        yield hello
    finally:
        await transport.close()
    await until(lambda: not Path(f"/proc/{hello.pid}").exists())


def everything(top: Path) -> list[str]:
    return sorted(str(path.relative_to(top)) for path in top.rglob("*"))


def failing_python(directory: Path, call: str, error: str, when: int) -> str:
    """A Python for which the kernel fails one call, as strace can ask of it."""
    inject = f"-e trace={call} -e inject={call}:error={error}:when={when}"
    return str(shell_script(directory / "python3", f'exec strace -qq -o /dev/null {inject} {sys.executable} "$@"'))


@pytest.mark.parametrize("what", INJECTED)
@pytest.mark.quick_rows(1)
async def test_an_upload_that_fails_at(what: str, host: Host, tmp_path: Path) -> None:
    call, error, when = INJECTED[what]
    async with session(host, failing_python(tmp_path, call, error, when)) as hello:
        assert hello.notes[0].startswith(f"{host.cache}") and hello.notes[0].endswith(f": {SAID[error]}"), hello.notes
        runtime = host.home / "run" / "ccb" / "worker"
        assert f"the worker's program is in {runtime}" in hello.notes
        assert [path.name for path in runtime.iterdir()] == [f"{hello.bundle}.bundle"]
        assert not (host.home / ".cache").exists()
        assert hello.storage == "disk"


@pytest.fixture
def disks() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("size", ["64k", "64k,nr_inodes=2", "64k,nr_inodes=3"])
@pytest.mark.quick_rows(1)
async def test_a_disk_that_fills_up_in_the_middle_is_left_as_it_was(size: str, host: Host, disks: ExitStack) -> None:
    disks.enter_context(small_disk(host.home / ".cache", size))
    async with session(host) as hello:
        assert hello.notes[0].startswith(str(host.cache.parent)) and SAID["ENOSPC"] in hello.notes[0]
        assert f"the worker's program is in {host.home}/run/ccb/worker" in hello.notes
        assert everything(host.home / ".cache") == []


async def test_when_every_disk_fills_up_in_the_middle_the_program_is_in_memory(host: Host, disks: ExitStack) -> None:
    for name in (".cache", "run"):
        disks.enter_context(small_disk(host.home / name, "64k"))
    async with session(host, in_a_small_tmp(host)) as hello:
        tops = [note.rpartition("/ccb")[0] for note in hello.notes[:3]]
        assert tops == [f"{host.home}/.cache", f"{host.home}/run", "/tmp"], hello.notes
        assert all(SAID["ENOSPC"] in note for note in hello.notes[:3])
        assert "the worker's program is in memory only, and is sent again with every connection" in hello.notes
        assert everything(host.home / ".cache") == []
        assert not (host.home / "run" / "ccb" / "worker").exists()
        assert hello.storage == "disk"


SMALL_TMP = """\
exec unshare --mount sh -c '
mount --rbind {home} /mnt && mount -t tmpfs -o size=64k,mode=1777 tmpfs /tmp && mkdir -p {home} &&
mount --rbind /mnt {home} && cd / && exec {python} "$@"' small "$@"
"""


def in_a_small_tmp(host: Host) -> str:
    python = os.path.realpath(sys.executable)
    return str(shell_script(host.home / "python3", SMALL_TMP.format(home=host.home, python=python)))
