"""Wrong input: one clear message that says what to do, its own exit code, no traceback, nothing left on the host."""

from __future__ import annotations

import shutil
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
from tests.remote.daemon.test_in_memory import disk
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import Sshd
from tests.support.hosts.sshd import sshd as serve
from tests.support.machine.processes import processes_of
from tests.support.machine.programs import shell_script
from tests.support.person.laptop import Laptop

BUSYBOX = Path(shutil.which("busybox") or "/bin/busybox")


def gone(host: Host) -> bool:
    """Whether nothing of the user runs any more, after a while."""
    _, left = psutil.wait_procs(processes_of(host.user), timeout=10)
    return not left


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["ssh", "host", "--permision-mode", "plan"], "--permission-mode"),
        (["ssh", "host:/x"], "needs a terminal"),
        (["ssh", "host", "-p"], "prompt"),
    ],
)
async def test_a_wrong_command_line_is_code_2(laptop: Laptop, argv: list[str], says: str) -> None:
    done = await laptop.run(argv)
    assert done.code == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) <= 4


async def test_no_credential_is_said_before_anything_is_connected(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        argv = host.ssh("-p", "hi", path="", port=server.getsockname()[1])
        nobody = "keyring.backends.fail.Keyring"
        done = await host.laptop.run(argv, ANTHROPIC_API_KEY="", PYTHON_KEYRING_BACKEND=nobody)
        assert done.refuses(77, "No model credential", "ANTHROPIC_API_KEY") and done.stdout == ""
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.fixture
async def bare_host(tmp_path: Path) -> AsyncIterator[Sshd]:
    root = Path("/srv") / f"ccb-bare-{tmp_path.name[-12:]}-{tmp_path.parent.name}"
    (root / "bin").mkdir(parents=True)
    for folder in ("root", "tmp", "dev"):
        (root / folder).mkdir()
    shutil.copy(BUSYBOX, root / "bin" / "busybox")
    (root / "bin" / "sh").symlink_to("busybox")
    shell_script(root / "bin" / "bash", 'exec /bin/sh "$@"')  # the login shell that root has here
    (root / "dev" / "null").touch(mode=0o666)
    try:
        async with serve(tmp_path / "bare", [f"ChrootDirectory {root}"]) as server:
            yield server
    finally:
        shutil.rmtree(root)


async def test_a_host_without_python_is_code_72(laptop: Laptop, bare_host: Sshd) -> None:
    argv = ["ssh", "root@127.0.0.1:", *bare_host.client_options(), "-p", "hi"]
    assert (await laptop.run(argv)).refuses(72, "has no Python 3.9 or newer", "Install Python 3.9")


@pytest.mark.thorough
async def test_a_home_that_cannot_be_written_is_no_obstacle(host: Host) -> None:
    host.model.add({"text": "ok"})
    shutil.chown(host.home, "root")
    host.home.chmod(0o555)
    done = await host.run("-p", "hi", path="/")
    assert (done.code, done.stdout) == (0, "ok\n")
    assert list(host.home.iterdir()) == []
    assert gone(host)


@pytest.mark.thorough
async def test_a_full_disk_at_home_leaves_nothing_half_written_there(host: Host) -> None:
    host.model.add({"text": "ok"})
    with disk(host.home, f"size=32k,uid={host.user.name}"):
        (host.home / "full").write_bytes(b"x" * 24 * 1024)
        done = await host.run("-p", "hi", path="/")
        assert (done.code, done.stdout) == (0, "ok\n"), done.stderr
        assert not list(host.home.rglob("*.bundle"))
        half = [path for path in host.home.rglob(".*") if path.is_file() and path.name != ".made"]
        assert not half
        assert gone(host)
