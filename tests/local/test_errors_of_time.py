"""Errors of things that take too long or cannot be read, each for real."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, session_on
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import make_laptop

from ccb.local.command_line.parser import parse_arguments
from ccb.local.headless import stdin_input as headless_input
from ccb.local.session.dialing import AttachOptions
from ccb.local.session.remote_session import RemoteSession
from ccb.tunnel.errors import CcbError, ConfigError, ConnectionLost, Unreachable, UsageError
from ccb.tunnel.openssh import openssh_transport as openssh
from ccb.tunnel.ssh.carrier import Carrier, open_socket
from ccb.tunnel.ssh_config import config_files as ssh_config
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.host_config import host_config
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_failures import ssh_failure
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.wire import control_protocol


def test_an_argument_that_is_no_session() -> None:
    with pytest.raises(UsageError, match="is not a session ID"):
        parse_arguments(["logs", "host", "nope!"])


async def test_an_ssh_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ssh").write_text("#!/bin/sh\nsleep 60; true\n", encoding="ascii")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ssh_config, "_RESOLVE_DEADLINE_S", 0.5)
    with pytest.raises(ConfigError, match="`ssh -G` did not answer"):
        await resolve(SshTarget("host"))
    with pytest.raises(ConfigError, match="`ssh -G` did not answer"):
        await openssh.connect(SshTarget("host"), NobodyToAsk(), env=dict(os.environ))


async def test_a_port_that_is_none_without_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match="ssh configuration cannot be read"):
        await resolve(SshTarget("host", options=("Port=abc",)))
    with pytest.raises(UsageError, match="is not a port"):
        host_config({"port": ["abc"]}, {}, SshTarget("host"))


def test_an_ssh_that_fails_without_a_known_reason() -> None:
    error = ssh_failure("host", 255, "something nobody has heard of")
    assert isinstance(error, Unreachable) and "no SSH connection to host" in error.what


async def test_a_port_that_neither_accepts_nor_refuses() -> None:
    """A listener whose queue is full is silent, as a firewall is."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        config = await resolve(SshTarget("127.0.0.1", port=address[1]))
        with pytest.raises(Unreachable, match="did not answer in"):
            await open_socket(replace(config, route=replace(config.route, connect_timeout_s=0.5)))


async def test_earlier_events_that_do_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_protocol, "CLIENT_DEADLINE_S", 0.2)
    async with session_on(ScriptedHost(), AttachOptions(patience=60)) as (attached, _):
        with pytest.raises(ConnectionLost, match="did not send the earlier events"):
            await attached.earlier(10)


async def test_a_line_on_stdin_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headless_input, "MAX_INPUT_LINE", 1000)
    reading, writing = os.pipe()
    try:
        os.write(writing, b"x" * 2000)
        os.close(writing)
        with pytest.raises(headless_input.BadInput, match="too long"):
            async for _ in headless_input.read_messages(reading):
                pass
    finally:
        os.close(reading)


async def test_a_key_that_is_refused_or_cannot_be_checked(tmp_path: Path, fake_model: FakeModel) -> None:
    laptop = make_laptop(tmp_path, fake_model.url)
    keys = {
        "PYTHON_KEYRING_BACKEND": "tests.support.person.file_keyring.FileKeyring",
        "TEST_KEYRING_FILE": str(tmp_path / "keys"),
    }
    login = ["auth", "login", "--api-key-stdin"]
    refused = await laptop.run(login, stdin=b"sk-wrong-wrong", **keys)
    assert refused.code == 77 and "refused the key (HTTP 401)" in refused.stderr
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        nowhere = f"http://127.0.0.1:{closed.getsockname()[1]}"
        unchecked = await laptop.run(login, stdin=b"sk-wrong-wrong", ANTHROPIC_BASE_URL=nowhere, **keys)
    assert unchecked.code == 69 and "could not be checked" in unchecked.stderr


async def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("no program", encoding="ascii")
    (tmp_path / "broken").chmod(0o755)
    laptop = make_laptop(tmp_path, "http://127.0.0.1:1")
    done = await laptop.run(["ssh", "--transport", str(tmp_path / "broken"), "/", "-p", "hi"])
    assert done.code == 2 and "cannot be started" in done.stderr


async def test_a_proxy_command_that_the_system_cannot_start() -> None:
    config = await resolve(SshTarget("host"))
    stream = Carrier(
        replace(config, route=replace(config.route, proxy_command="true " + "x" * 3_000_000)), NobodyToAsk()
    )
    with pytest.raises(Unreachable, match="the ProxyCommand cannot be started"):
        await stream.open()
    await stream.close()


async def test_a_machine_without_a_place_for_the_sockets_of_ssh(tmp_path: Path) -> None:
    """In a mount namespace of its own, so that /tmp is read-only even for root."""
    laptop = make_laptop(tmp_path, "http://127.0.0.1:1")
    program = tmp_path / "ccb"
    program.write_text(
        "#!/bin/sh\nexec unshare --mount sh -c 'for d in /tmp /var/tmp /usr/tmp; do [ ! -d $d ] || "
        "(mount --bind $d $d && mount -o remount,bind,ro $d) || exit 99; done; "
        f'cd /proc; exec "$@"\' sh {sys.executable} -m ccb "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    env = {**laptop.env, "XDG_RUNTIME_DIR": "", "HOME": "/proc"}
    words = [str(program), "ssh", "--transport", "ssh", "nobody@127.0.0.1:/", "-p", "hi"]
    process = await asyncio.create_subprocess_exec(
        *words,
        env=env,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 78, said
    assert (
        b"there is no directory for the sockets of ssh" in said and b"-> Make /tmp or XDG_RUNTIME_DIR writable." in said
    )


async def test_a_bug_ends_the_session_with_a_word_and_does_not_hang_it() -> None:
    def dial(*_: object) -> NoReturn:
        raise ZeroDivisionError

    with pytest.raises(CcbError) as caught:
        async with asyncio.timeout(30), RemoteSession(dial):
            pass
    assert (caught.value.what, caught.value.evidence) == ("reading the session failed", "ZeroDivisionError")
    assert "report it" in caught.value.do
