"""Options of ssh_config over a real sshd: they have the effect they have for ssh, or a message says they do not."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.machine.processes import commands_with
from tests.support.machine.waiting import until
from tests.support.network.relay import relay
from tests.support.person.login import Person, logged_in, logs_in, only_config, output, pipe_to, refused, target

from ccb.tunnel.errors import AuthFailed, ConfigError, ConnectionLost, Unreachable
from ccb.tunnel.openssh import openssh_transport as openssh
from ccb.tunnel.secret import without_secrets
from ccb.tunnel.ssh.asyncssh_transport import SshTransport, connect
from ccb.tunnel.ssh_config import config_files
from ccb.tunnel.ssh_config.config_files import resolve
from ccb.tunnel.ssh_config.ssh_target import SshTarget, of_consequence, only_openssh
from ccb.tunnel.transports.login_prompts import NobodyToAsk

UNKNOWN = "sntrup761x25519-sha512@openssh.com"
"""ssh has it, asyncssh does not (without liboqs)."""


def info(transport: SshTransport, name: str) -> str:
    return str(transport.connection.get_extra_info(name))


async def test_algorithms_that_were_set_are_in_use_and_no_others_in_their_place(
    sshd: Sshd, host_user: HostUser
) -> None:
    options = ("Ciphers=aes192-ctr", "MACs=hmac-sha2-256", f"KexAlgorithms={UNKNOWN},ecdh-sha2-nistp256")
    async with logged_in(target(sshd, host_user, *options)) as transport:
        assert info(transport, "send_cipher") == "aes192-ctr"
        assert info(transport, "send_mac") == "hmac-sha2-256"
    async with logged_in(target(sshd, host_user)) as transport:
        assert info(transport, "recv_cipher").endswith("-gcm@openssh.com")
    error = await refused(ConfigError, target(sshd, host_user, f"KexAlgorithms={UNKNOWN}"), match="kexalgorithms")
    assert "--transport ssh" in error.do
    await refused(AuthFailed, target(sshd, host_user, "PubkeyAcceptedAlgorithms=rsa-sha2-512"))
    assert "Failed publickey" not in sshd.log.read_text()


async def test_host_key_algorithms_choose_the_key(host_user: HostUser, tmp_path: Path) -> None:
    rsa = make_key(tmp_path / "rsa", "rsa")
    async with serve(tmp_path / "server", [f"HostKey {rsa}"]) as server:
        known = server.known_hosts
        known.write_text(known.read_text() + f"[127.0.0.1]:{server.port} {rsa.with_suffix('.pub').read_text()}")
        for chosen, kind in (("rsa-sha2-512", "ssh-rsa"), ("ssh-ed25519", "ssh-ed25519")):
            async with logged_in(target(server, host_user, f"HostKeyAlgorithms={chosen}")) as transport:
                key = transport.connection.get_server_host_key()
                assert key is not None and key.get_algorithm() == kind


async def test_the_preferred_method_is_the_only_one_tried(host_user: HostUser, tmp_path: Path) -> None:
    async with serve(tmp_path / "server", ["PasswordAuthentication yes"]) as server:
        person = Person()
        await refused(AuthFailed, target(server, host_user, "PreferredAuthentications=password"), person)
        assert person.asked_passwords


async def test_variables_are_sent_but_never_the_credential_of_the_model(
    host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("MINE_ONE", "MINE_TWO", "ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.setenv(name, "from-the-laptop")
    async with serve(tmp_path / "server", ["AcceptEnv *"]) as server:
        options = ("SendEnv=MINE_* ANTHROPIC_API_KEY CLAUDE*", 'SetEnv=MINE_TWO="set twice" MINE_THREE=set')
        where, env = target(server, host_user, *options), without_secrets(os.environ)
        for each in (connect(where, NobodyToAsk()), openssh.connect(where, NobodyToAsk(), env=env)):
            transport = await each
            said = (await output(transport, "env")).splitlines()
            await transport.close()
            assert {"MINE_ONE=from-the-laptop", "MINE_TWO=set twice", "MINE_THREE=set"} <= set(said)
            assert not [line for line in said if line.startswith(("ANTHROPIC", "CLAUDE"))]


@pytest.mark.timeout(120)
async def test_a_shorter_patience_of_the_person_counts(sshd: Sshd, host_user: HostUser) -> None:
    async with relay(sshd.port) as link:
        sshd.trust(link.port)
        where = target(sshd, host_user, "ServerAliveInterval=1", "ServerAliveCountMax=2", port=link.port)
        async with logged_in(where) as transport:
            pipe = await transport.execute("cat")
            link.freeze()
            with pytest.raises(ConnectionLost):
                await asyncio.wait_for(pipe.read(), 12)  # ours alone would take 15
            await pipe.close()


async def test_what_has_no_effect_is_said_once(sshd: Sshd, host_user: HostUser) -> None:
    never = ("LocalForward=1 localhost:2", "ForwardAgent=yes", "RemoteCommand=tmux", "Tunnel=no")
    options = (*never, "PKCS11Provider=/x.so", "BindInterface=lo", "NoHostAuthenticationForLocalhost=yes")
    person = Person()
    async with logged_in(target(sshd, host_user, *options), person) as transport:
        assert await output(transport, "echo mine") == "mine\n"
    (said,) = person.told
    names, _, way_out = said.partition("(")
    assert all(name in names for name in ("LocalForward", "ForwardAgent", "RemoteCommand", "PKCS11Provider"))
    assert way_out == ("`--transport ssh` honours PKCS11Provider, BindInterface, NoHostAuthenticationForLocalhost).")
    assert "Tunnel" not in said
    await logs_in(target(sshd, host_user, *options), person)
    assert len(person.told) == 1


async def test_what_has_no_effect_is_said_where_nobody_can_be_asked(sshd: Sshd, host_user: HostUser) -> None:
    said: list[str] = []
    where = target(sshd, host_user, "LocalForward=1 localhost:2")
    prompts = NobodyToAsk(tell=said.append)
    for _ in range(2):
        await logs_in(where, prompts)
    prompts.banner("Only for friends.")
    assert said == [f"Without effect on {host_user.name}@127.0.0.1: LocalForward."]
    memory = Person().memory
    await logs_in(where, NobodyToAsk(memory))
    assert not memory.said, "what nobody was told is still to be said"


async def test_what_does_not_matter_is_left_to_the_doctor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config_file = only_config(tmp_path, monkeypatch)
    config_file.write_text(
        "GSSAPIAuthentication yes\nIPQoS cs1\nTCPKeepAlive no\nFingerprintHash md5\nVisualHostKey yes\n"
        "KbdInteractiveDevices pam\nServerAliveInterval 600\n"
    )
    config = await resolve(SshTarget("mine"))
    hashes = ("FingerprintHash", "VisualHostKey", "KbdInteractiveDevices")
    names = ("GSSAPIAuthentication", "IPQoS", "TCPKeepAlive", *hashes)
    assert config.no_effect == (*names, "ServerAliveInterval 600 (here 15 s of silence end a connection)")
    assert of_consequence(config.no_effect) == ()
    assert only_openssh(config.no_effect) == names
    config_file.write_text("TCPKeepAlive yes\nServerAliveInterval 3\nServerAliveCountMax 5\nIPQoS none\n")
    assert (await resolve(SshTarget("mine"))).no_effect == ()


async def test_a_server_that_says_nothing_is_given_up_after_connect_timeout(sshd: Sshd, host_user: HostUser) -> None:
    ended = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            pass
        writer.close()
        ended.set()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    async with server:
        where = target(sshd, host_user, "ConnectTimeout=1", port=server.sockets[0].getsockname()[1])
        with pytest.raises(Unreachable) as caught:
            await asyncio.wait_for(connect(where, NobodyToAsk()), 25)
        assert "did not ask for a login within 1 s" in caught.value.evidence
        await asyncio.wait_for(ended.wait(), 60)


@pytest.fixture
def no_openssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A laptop without OpenSSH; its ssh_config."""
    config = tmp_path / "home" / ".ssh" / "config"
    monkeypatch.setattr(config_files, "CONFIG_FILES", (config,))
    config.parent.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("sh", "ssh-keygen"):
        (tools / name).symlink_to(str(shutil.which(name)))
    monkeypatch.setenv("PATH", str(tools))
    return config


async def test_without_openssh_the_command_line_counts_and_a_configuration_is_refused(
    sshd: Sshd, host_user: HostUser, no_openssh: Path
) -> None:
    assert not no_openssh.exists()
    own = ("IdentitiesOnly=yes", f'IdentityFile "{sshd.identity}"')
    options = (*own, f"UserKnownHostsFile ~/missing {sshd.known_hosts}", "HostName %h.0.1")
    where = SshTarget("127.0", host_user.name, sshd.port, options=options)
    async with logged_in(where) as transport:
        assert (await output(transport, "id -un")).strip() == host_user.name
    no_openssh.write_text("# nothing\n\nHost other\n")
    error = await refused(ConfigError, where)
    assert f"{no_openssh} line 3" in error.evidence and error.do.startswith("Install the OpenSSH client")
    no_openssh.unlink()
    no_openssh.mkdir()
    assert str(no_openssh) in (await refused(ConfigError, where)).evidence


@pytest.mark.parametrize(
    "options",
    [
        ("ProxyComand=nc %h %p",), ("Port=twenty-two",), ("Port 22 23",), ("ConnectTimeout soon",), ("User",),
        ("StrictHostKeyChecking=perhaps",), ("IdentitiesOnly=on",), ("IdentityFile it's",), (r"User=a\ b",),
        ("ProxyJump=a", "ProxyCommand=nc"),
    ],
)  # fmt: skip
async def test_without_openssh_an_unknown_option_is_an_error(no_openssh: Path, options: tuple[str, ...]) -> None:
    error = await refused(ConfigError, SshTarget("mine", options=options))
    assert "without OpenSSH" in error.evidence


async def test_a_jump_host_has_a_jump_host(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(tmp_path / "outer") as outer, serve(tmp_path / "inner") as inner:
        for server in (outer, inner):
            server.identity.with_name("authorized_keys").write_text(sshd.identity.with_suffix(".pub").read_text())
        lines = ["Host *", f"  User {host_user.name}", "  HostName 127.0.0.1", f"  IdentityFile {sshd.identity}"]
        for name, server, jump in (("Far", sshd, "inner"), ("inner", inner, "outer"), ("outer", outer, "none")):
            lines += [f"Host {name}", f"  Port {server.port}", f"  ProxyJump {jump}"]
            lines += [f"  UserKnownHostsFile {server.known_hosts}"]
        only_config(tmp_path, monkeypatch).write_text("\n".join(lines) + "\n")
        async with logged_in(SshTarget("Far")) as transport:
            assert (await output(transport, "echo here")) == "here\n"
        assert "Accepted" in outer.log.read_text() and "Accepted" in inner.log.read_text()


async def test_a_jump_host_that_is_its_own_jump_host_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_config(tmp_path, monkeypatch).write_text("Host far\n  ProxyJump bastion\nHost bastion\n  ProxyJump far\n")
    error = await refused(ConfigError, SshTarget("far"), match="jump hosts")
    assert "bastion" in error.evidence


async def test_a_proxy_command_may_talk(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    option = pipe_to(sshd.port, tmp_path, "print('open \x1b[31mthis page', file=sys.stderr, flush=True)")
    person, known = Person(trust=True), tmp_path / "known_hosts"
    async with logged_in(target(sshd, host_user, option, known=known), person) as transport:
        assert await output(transport, "echo through") == "through\n"
    assert "this page" in person.told[0] and "\x1b" not in person.told[0]
    assert len(person.asked) == 1, "the host key of the far end"
    await until(lambda: not commands_with(str(tmp_path / "pipe.py")))
