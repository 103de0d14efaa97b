"""What a member of a group sends and gets, at its limits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.hosts.scripted_host import ScriptedHost, read_by, session_on

from ccb.local.config.policy import check_group
from ccb.local.config.settings import PolicySettings
from ccb.local.ledger.proxy_control import socket_directory
from ccb.local.mcp import session_group
from ccb.local.mcp.session_group import GroupMember
from ccb.tunnel.errors import ConfigError, PolicyRefused
from ccb.tunnel.wire.control_protocol import Failure, Success, public_answer
from ccb.tunnel.wire.frames import Event, Input, Json


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")}


@asynccontextmanager
async def member(
    environ: dict[str, str], host: str, took: list[Json] | None = None, near: dict[Path, GroupMember] | None = None
) -> AsyncIterator[GroupMember]:
    """A member whose worker takes messages into a list, or refuses them. Those that are `near` are in one process."""
    async with session_on(ScriptedHost()) as (session, peer), read_by(session, lambda item: None):
        made = GroupMember("night", host, session, environ, lambda: False, {} if near is None else near)

        async def work() -> None:
            seq = 0
            while True:
                body = (await peer.next(Input)).body
                if body["type"] == "control_request":
                    seq, number = seq + 1, body["request_id"]
                    answer = Failure(number, "too many\x1b[1m wait") if took is None else Success(number, {})
                    if took is not None:
                        took.append(body["request"])
                    await peer.send(Event(seq, 1, "message", public_answer(answer)))

        working = asyncio.create_task(work())
        try:
            async with made.reachable():
                yield made
        finally:
            working.cancel()


async def send(sender: GroupMember, to: str, text: str) -> str:
    params = {"name": "SendMessage", "arguments": {"to": to, "text": text}}
    reply = await sender.reply({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    return str(reply["result"]["content"][0]["text"])


async def test_a_flood_is_refused_until_the_person_writes_again(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_group, "MAX_UNPROMPTED", 3)
    took: list[Json] = []
    async with member(environ, "ann@web1") as ann, member(environ, "bob@db1", took):
        for number in range(3):
            assert (await send(ann, "bob@db1", f"{number}\x1b[2J")).startswith("Sent to bob@db1/")
        assert "the user must first write" in await send(ann, "bob@db1", "more")
        assert "the user must first write" in await send(ann, "", "")
        await ann.session.prompt("go on")
        assert (await send(ann, "bob@db1", "again")).startswith("Sent to")
        assert "at most 8000 are sent" in await send(ann, "bob@db1", "x" * 8_001)
        assert "needs a text" in await send(ann, "bob@db1", "\x07")
    assert len(took) == 4 and took[0] == {
        "subtype": "tell_session",
        "text": "0[2J",
        "sender": ann.name,
        "via": "session",
    }


async def test_a_refusal_of_the_other_host_is_told_in_one_line(environ: dict[str, str]) -> None:
    async with member(environ, "ann@web1", []) as ann, member(environ, "bob@db1"), member(environ, "cy@db2"):
        assert await send(ann, "bob@db1", "hello") == "Not sent: that session refuses it: “too many wait”"
        everybody = await send(ann, "", "")
        assert everybody.endswith(", ".join(f"{name}/{ann.name[-8:]}" for name in ("bob@db1", "cy@db2")))
        assert (await send(ann, ann.name[-8:], "hello")).startswith("Not sent: several are called so")


async def test_members_of_one_process_reach_each_other_without_a_socket(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_group, "ask", lambda *_: pytest.fail("hundreds of members would wait for it"))
    near: dict[Path, GroupMember] = {}
    took: list[Json] = []
    async with member(environ, "ann@web1", [], near) as ann:
        async with member(environ, "bob@db1", took, near), member(environ, "cy@db2", None, near):
            assert (await send(ann, "bob@db1", "hello")).startswith("Sent to bob@db1/")
            assert "too many wait" in await send(ann, "cy@db2", "hello")
        assert (await send(ann, "", "")).endswith("nobody")
    assert [each["sender"] for each in took] == [ann.name] and not near


async def test_a_member_that_is_suspended_holds_nobody_up(environ: dict[str, str]) -> None:
    async with member(environ, "ann@web1") as ann, member(environ, "bob@db1", []):
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(str(socket_directory(environ) / f"1-0{ann._ending}"))
            silent.listen()
            async with asyncio.timeout(10):
                assert (await send(ann, "bob@db1", "hello")).startswith("Sent to")


async def test_sockets_that_others_could_reach_are_not_used(environ: dict[str, str]) -> None:
    directory = socket_directory(environ)
    directory.mkdir(mode=0o755)
    with pytest.raises(ConfigError, match="is not private"):
        async with member(environ, "ann@web1"):
            pass
    directory.rmdir()


def test_a_policy_that_lists_servers_lists_groups_too() -> None:
    check_group(PolicySettings(), "night", [])
    check_group(PolicySettings(mcpServers=["group ni*"]), "night", [])
    with pytest.raises(PolicyRefused, match="the group night"):
        check_group(PolicySettings(mcpServers=["npx *", "group day"]), "night", [])
