"""`ccb proxy`: another program of the same user sees what calls models, and ends that."""

from __future__ import annotations

import asyncio
import json
import socket
import stat
from pathlib import Path

import pytest
from tests.support.run_words import run_words

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.ledger.proxy_control import ProxyState, control_server, parse_state, socket_directory, sockets


class Proxy:
    revoked = False

    def state(self) -> ProxyState:
        return ProxyState(7, "5e55-1", "gpu\x1b[2J", "/srv", 2, self.revoked, 3600.0)

    def revoke(self) -> None:
        self.revoked = True


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


async def run(args: list[str], environ: dict[str, str]) -> int:
    return await asyncio.to_thread(run_words, ["proxy", *args], environ)


async def test_another_program_lists_and_revokes(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    proxy = Proxy()
    async with control_server(environ, proxy.state, proxy.revoke):
        (path,) = sockets(environ, "*.sock")
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert await run(["list"], environ) == 0
        listed = capsys.readouterr().out
        assert "5e55-1" in listed and "2 calls under way" in listed and "\x1b" not in listed
        assert await run(["revoke", "other"], environ) == ExitCode.AGENT_FAILED and not proxy.revoked
        assert await run(["revoke", "5e55"], environ) == 0 and proxy.revoked
        capsys.readouterr()
        assert await run(["list", "--json"], environ) == 0
        assert json.loads(capsys.readouterr().out)["revoked"] is True
    assert sockets(environ, "*.sock") == []


async def test_what_a_killed_ccb_has_left_is_removed(
    environ: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    directory = socket_directory(environ)
    directory.mkdir(mode=0o700)
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(directory / "1-1.sock"))
    left.close()
    assert await run(["list"], environ) == 0
    assert "No session" in capsys.readouterr().out and sockets(environ, "*.sock") == []


async def test_a_directory_that_others_can_enter_is_not_used(environ: dict[str, str]) -> None:
    directory = socket_directory(environ)
    directory.mkdir(mode=0o755)
    proxy = Proxy()
    async with control_server(environ, proxy.state, proxy.revoke):
        assert not list(directory.iterdir()) and sockets(environ, "*.sock") == []


@pytest.mark.parametrize("sent", [b"\n", b"[]\n", b"{not json\n", b'{"do": 1}\n', b"x" * 100_000 + b"\n"])
async def test_nonsense_changes_nothing(environ: dict[str, str], sent: bytes) -> None:
    proxy = Proxy()
    async with control_server(environ, proxy.state, proxy.revoke):
        (path,) = sockets(environ, "*.sock")
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(sent)
        try:
            answer = await reader.read(1000)
        except ConnectionError:
            answer = b""
        writer.close()
    assert not proxy.revoked and (not answer or parse_state(json.loads(answer)) is not None)


async def test_a_ccb_that_does_not_answer_is_said(environ: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    async with control_server(environ, Proxy().state, lambda: None):  # it revokes nothing
        assert await run(["revoke", "--all"], environ) == ExitCode.AGENT_FAILED
    assert "did not answer" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["revoke"], ["revoke", "x", "--all"]])
def test_both_actions_want_one_target(environ: dict[str, str], words: list[str]) -> None:
    assert run_words(["proxy", *words], environ) == ExitCode.USAGE
