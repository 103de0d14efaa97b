"""A disk that fills up while the bundle is written: the next place is named, and no half-written file stays."""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.deploy.test_bootstrap import Host, fresh_bundle, hello_of
from tests.support.machine.programs import shell_script
from tests.support.machine.waiting import until

from ccb.deploy.bootstrap import launch
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.wire.frames import Hello

INJECTED = {
    "a directory": ("mkdir", "ENOSPC", 2),
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
async def session(host: Host, python: str) -> AsyncIterator[Hello]:
    """A first session on the host, whose worker has said hello; over at the end."""
    params = {"session": str(uuid.uuid4()), "cwd": "/", "create": True}
    transport = LocalTransport(host.env)
    try:
        launched = await launch(transport, params, fresh_bundle(), candidates=[python])
        assert launched.uploaded
        hello = await hello_of(launched)
        yield hello
    finally:
        await transport.close()
    await until(lambda: not Path(f"/proc/{hello.pid}").exists())


def failing_python(directory: Path, call: str, error: str, when: int) -> str:
    """A Python for which the kernel fails one call, as strace can ask of it."""
    inject = f"-e trace={call} -e inject={call}:error={error}:when={when}"
    return str(shell_script(directory / "python3", f'exec strace -qq -o /dev/null {inject} {sys.executable} "$@"'))


@pytest.mark.parametrize("what", INJECTED)
@pytest.mark.quick_rows(1)
async def test_an_upload_that_fails_at(what: str, host: Host, tmp_path: Path) -> None:
    call, error, when = INJECTED[what]
    async with session(host, failing_python(tmp_path, call, error, when)) as hello:
        assert hello.notes[0].startswith(f"{host.cache.parent}") and hello.notes[0].endswith(f": {SAID[error]}"), (
            hello.notes
        )
        runtime = host.home / "run" / "ccb" / "worker"
        assert f"the worker's program is in {runtime}" in hello.notes
        assert [path.name for path in runtime.iterdir()] == [f"{hello.bundle}.bundle"]
        assert not (host.home / ".cache").exists()
        assert hello.storage == "disk"
