"""Which keys sign at once: those of an agent that signs by itself, and none that a person has to confirm or touch."""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from asyncssh.packet import Byte, String, UInt32
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tests.support.hosts.sshd import HostUser, Sshd, make_key
from tests.support.person.login import target
from tests.support.person.pipelined import PIPELINED, last_login, remembered, remembering, report
from tests.support.person.ssh_agent import ssh_add, ssh_agent

from ccb.tunnel.ssh import ssh_login
from ccb.tunnel.ssh.past_logins import PastLogins
from ccb.tunnel.ssh_config.ssh_target import SshTarget

SECURITY_KEY = "sk-ssh-ed25519@openssh.com"


def by_agent(server: Sshd, user: HostUser, agent: Path, *options: str) -> SshTarget:
    """`user` on `server` with the keys of `agent` only."""
    given = (f"UserKnownHostsFile={server.known_hosts}", f"IdentityAgent={agent}", *options)
    return SshTarget("127.0.0.1", user.name, server.port, ("/nonexistent",), given)


async def test_a_key_of_the_agent_signs_at_once_while_the_agent_has_it(
    sshd: Sshd, host_user: HostUser, tmp_path: Path
) -> None:
    past = PastLogins(tmp_path / "past")
    async with ssh_agent(tmp_path) as agent:
        ssh_add(agent, str(sshd.identity))
        where = by_agent(sshd, host_user, agent)
        assert (await report(where, past)).endswith("the next login will be")
        assert await report(where, past) == PIPELINED
        assert "the agent may ask" in await report(by_agent(sshd, host_user, agent, "AddKeysToAgent=confirm 1h"), past)
        ssh_add(agent, "-D")
        text = await report(target(sshd, host_user, "IdentityFile=/nonexistent", f"IdentityAgent={agent}"), past)
        assert text == PIPELINED, "its file signs as well"
        other = make_key(tmp_path / "other")
        sshd.identity.with_name("authorized_keys").write_text(other.with_suffix(".pub").read_text())
        text = await report(target(sshd, host_user, f"IdentityAgent={agent}", key=other), past)
        assert text.startswith(
            "no: the key of the last login is neither in a file nor in the agent; the next login will be"
        )


async def test_an_agent_that_asks_before_it_signs_is_not_asked_at_once(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.tunnel.ssh.pipelined_connection.AT_ONCE_S", 0.1)
    async with ssh_agent(tmp_path, askpass="sleep 0.2") as agent:  # a person who thinks before they confirm
        ssh_add(agent, "-c", str(sshd.identity))
        where = by_agent(sshd, host_user, agent)
        past = await remembering(tmp_path, where, await last_login(sshd))
        assert await report(where, past) == PIPELINED, "nobody has noticed yet"
        assert await remembered(past, where) is None
        assert (await report(where, past)).endswith("to sign: somebody may have to confirm that")


async def test_an_agent_that_hangs_is_passed_over(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ccb.tunnel.ssh.login_keys.AGENT_QUIET_S", 0.1)
    calls: list[asyncio.StreamWriter] = []

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        calls.append(writer)
        if len(calls) > 1:  # the login itself waits longer
            writer.close()
        await reader.read()
        writer.close()

    waited: list[int] = []
    happens = ssh_login._happens

    async def happens_after(*arguments: Any) -> bool:
        waited.append(len(calls))
        return await happens(*arguments)

    monkeypatch.setattr(ssh_login, "_happens", happens_after)
    other = make_key(tmp_path / "other")
    async with await asyncio.start_unix_server(hang, tmp_path / "agent.sock"):
        where = target(sshd, host_user, f"IdentityAgent={tmp_path}/agent.sock")
        past = await remembering(tmp_path, where, await last_login(sshd, other))
        assert (await report(where, past)).startswith("no: the agent does not answer; ")
    assert waited[0] == 1, "the time that the agent took is not the server's"


async def test_a_security_key_is_never_remembered(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    past = PastLogins(tmp_path / "past")
    async with _security_key(tmp_path / "agent.sock") as public:
        sshd.identity.with_name("authorized_keys").write_text(public)
        where = by_agent(sshd, host_user, tmp_path / "agent.sock")
        for _ in range(2):
            assert "is a security key, which may want to be touched" in await report(where, past)
        assert await remembered(past, where) is None


@asynccontextmanager
async def _security_key(path: Path) -> AsyncIterator[str]:
    """An agent with one security key, whose touch is always given; its line for authorized_keys."""
    import base64

    key = Ed25519PrivateKey.generate()
    blob = String(SECURITY_KEY) + String(key.public_key().public_bytes_raw()) + String("ssh:")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                size = struct.unpack(">I", await reader.readexactly(4))[0]
                request = await reader.readexactly(size)
                if request[0] == 11:  # SSH_AGENTC_REQUEST_IDENTITIES
                    answer = Byte(12) + UInt32(1) + String(blob) + String("a security key")
                else:  # SSH_AGENTC_SIGN_REQUEST: the key, the data, flags
                    start = 1 + len(String(blob))
                    length = struct.unpack(">I", request[start : start + 4])[0]
                    data = request[start + 4 : start + 4 + length]
                    touched = b"\x01" + UInt32(1)
                    signed = hashlib.sha256(b"ssh:").digest() + touched + hashlib.sha256(data).digest()
                    answer = Byte(14) + String(String(SECURITY_KEY) + String(key.sign(signed)) + touched)
                writer.write(String(answer))
        except asyncio.IncompleteReadError:
            writer.close()

    async with await asyncio.start_unix_server(serve, path):
        yield f"{SECURITY_KEY} {base64.b64encode(blob).decode()}\n"
