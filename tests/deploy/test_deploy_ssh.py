"""The bootstrap over a real sshd: login shells, their noise, and servers that allow little."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.deploy.test_bootstrap import tiny_bundle
from tests.support.hosts.sshd import HostUser, Sshd, host_user
from tests.support.hosts.sshd import sshd as serve
from tests.support.person.login import everything, logged_in, target

from ccb.deploy.bootstrap import Launched, launch
from ccb.deploy.bundle import Bundle
from ccb.tunnel.errors import DeployError

SHELLS = {"bash": "/bin/bash", "dash": "/bin/dash"}
SHELLS |= {name: f"/usr/bin/{name}" for name in ("zsh", "fish", "tcsh")}


async def start(server: Sshd, user: HostUser, bundle: Bundle) -> tuple[Launched, bytes]:
    async with logged_in(target(server, user)) as transport:
        launched = await launch(transport, {"cwd": "~"}, bundle)
        said = launched.rest + await everything(launched.pipe)
        await launched.pipe.close()
        return launched, said


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.quick_rows(2)
async def test_a_path_that_leads_to_no_program_of_the_system_is_enough(tmp_path: Path, shell: str) -> None:
    with host_user(tmp_path, SHELLS[shell]) as user:
        async with serve(tmp_path / "narrow", ["SetEnv PATH=/opt/only"]) as server:
            _, said = await start(server, user, tiny_bundle())
    assert said == b"hello disk ~\n"


NOISE = {
    "text without newline": "printf 'Welcome to devbox'",
    "valid JSON": """printf '{"t":"hello","protocol":1}\\n'""",
    "a megabyte": "head -c 1000000 /dev/zero | tr '\\0' 'x'",
    "errors": "echo oops >&2; false; nosuchcommand",
    "a slow start": "sleep 0.3",
    "a reader of stdin": "read -t 0.2 line",
}


@pytest.mark.parametrize("noise", NOISE)
@pytest.mark.quick_rows(2)
async def test_a_noisy_start_up_file_is_passed_over(sshd: Sshd, host_user: HostUser, noise: str) -> None:
    (host_user.home / ".bashrc").write_text(NOISE[noise] + "\n", encoding="utf-8")
    launched, said = await start(sshd, host_user, tiny_bundle())
    assert said == b"hello disk ~\n"
    assert launched.uploaded


async def test_streams_that_a_start_up_file_made_non_blocking_are_read_to_their_end(tmp_path: Path, sshd: Sshd) -> None:
    with host_user(tmp_path, SHELLS["zsh"]) as user:
        (user.home / ".zshenv").write_text("python3 -c 'import os; [os.set_blocking(fd, False) for fd in (0, 1)]'\n")
        launched, said = await start(sshd, user, tiny_bundle())
    assert launched.uploaded and said == b"hello disk ~\n"


@pytest.mark.parametrize("takes", ["exec </dev/null", "exec <&-", "exec </etc/passwd"])
@pytest.mark.quick_rows(1)
async def test_a_start_up_file_that_takes_the_input_away_is_found_out(
    sshd: Sshd, host_user: HostUser, takes: str
) -> None:
    for state in ("cold", "warm"):
        (host_user.home / ".bashrc").write_text(takes + "\n", encoding="utf-8")
        with pytest.raises(DeployError, match=r"a start-up file of the login shell on .* closes stdin"):
            await start(sshd, host_user, tiny_bundle())
        if state == "cold":
            assert [path.name for path in host_user.home.iterdir()] == [".bashrc"]
            (host_user.home / ".bashrc").unlink()
            await start(sshd, host_user, tiny_bundle())


@pytest.mark.parametrize("status", [0, 3])
async def test_a_start_up_file_that_ends_the_shell_is_thought_of(sshd: Sshd, host_user: HostUser, status: int) -> None:
    (host_user.home / ".bashrc").write_text(f"exit {status}\n", encoding="utf-8")
    with pytest.raises(DeployError, match=f"exit code {status}") as caught:
        await start(sshd, host_user, tiny_bundle())
    assert "a start-up file that ends the shell" in caught.value.do
