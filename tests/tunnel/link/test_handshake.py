"""The first words of a link: hello or refusal, versions, attach."""

from __future__ import annotations

import json

import pytest
from tests.support.hosts.scripted_host import no_calls
from tests.support.network.link_peer import HELLO, link_pair

from ccb.tunnel.errors import CcbError, DeployError, NoStorage, NoSuchPath, ProtocolError, UsageError
from ccb.tunnel.link.link import MAX_NOTES, Link, new_nonce
from ccb.tunnel.wire.frames import PROTOCOL, Attach, CallData, CallEnd, Refused
from ccb.tunnel.wire.ndjson import encode_frame


async def test_hello_is_read_and_the_next_epoch_asked_for() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.hello(epoch=6, seq=41)
        hello = await link.hello()
        assert (hello.cwd.raw, hello.seq) == ("/srv/app", 41)
        nonce = new_nonce()
        await link.attach(have=0, nonce=nonce, options={"model": "opus"}, calls=no_calls)
        attach = await peer.next(Attach)
        assert (attach.epoch, attach.role, attach.have, attach.options) == (7, "driver", 0, {"model": "opus"})
        assert nonce.matches(attach.nonce) and len(attach.nonce) >= 32


async def test_the_notes_of_a_worker_are_limited_and_the_rest_is_counted() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.hello(
            notes=["n" * 100_000, *(f"note {number}" for number in range(500))],
            capabilities=["c"] * 9_000,
            last={"records": [json.loads("[" * 500 + "]" * 500)]},
        )
        hello = await link.hello()
    assert len(hello.notes) == MAX_NOTES + 1 and hello.notes[1].raw == "note 0"
    assert hello.notes[-1].raw == "… and 481 more notes"
    assert sum(len(note.raw) for note in hello.notes) < 2_000 and len(hello.capabilities) == 100
    assert hello.last == {}  # no widget takes so many levels


async def test_a_hello_with_a_text_without_end_is_refused() -> None:
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        await peer.hello(cwd="/" + "x" * 20_000)
        with pytest.raises(ProtocolError, match="20001 characters in 'cwd'"):
            await link.hello()


async def test_bytes_that_were_read_before_belong_to_the_link() -> None:
    line = b"".join(encode_frame(HELLO))
    async with link_pair() as (pipe, peer), Link(pipe, line[:20]) as link:
        await peer.send_bytes(line[20:])
        assert (await link.hello()).pid == HELLO.pid


def test_every_connection_has_its_own_nonce() -> None:
    assert len({new_nonce().reveal() for _ in range(50)}) == 50


@pytest.mark.parametrize("version", [PROTOCOL + 1, PROTOCOL + 40, PROTOCOL - 2])
async def test_an_unknown_version_names_both(version: int) -> None:
    if version < 0:
        version = PROTOCOL + 7
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        await peer.hello(protocol=version)
        with pytest.raises(ProtocolError) as caught:
            await link.hello()
    assert str(version) in caught.value.what and str(PROTOCOL) in caught.value.what and "devbox" in caught.value.what


async def test_the_version_before_is_spoken() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.hello(protocol=PROTOCOL - 1)
        assert (await link.hello()).protocol == PROTOCOL - 1


@pytest.mark.parametrize(
    ("refused", "kind", "part"),
    [
        (Refused("no_such_path", "/srv/ap does not exist", {"near": ["/srv/app"]}), NoSuchPath, "/srv/app"),
        (Refused("not_a_directory", "/etc/passwd is not a directory"), NoSuchPath, "/etc/passwd"),
        (Refused("no_storage", "nothing writable", {"tried": ["/home/u: denied"]}), NoStorage, "denied"),
        (Refused("in_use", "Session ID x is already in use"), UsageError, "in use"),
        (Refused("bad_attach", "not as root"), UsageError, "not as root"),
        (Refused("internal", "boom"), ProtocolError, "boom"),
        (Refused("something_new", "what a later version says"), ProtocolError, "later version"),
    ],
)
async def test_a_refusal_becomes_its_error(refused: Refused, kind: type[CcbError], part: str) -> None:
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        await peer.send(refused)
        with pytest.raises(kind) as caught:
            await link.hello()
    assert part in str(caught.value) and "devbox" in caught.value.what


async def test_what_a_host_says_in_a_refusal_cannot_drive_the_terminal() -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.send(Refused("no_such_path", "\x1b[2J\x07gone", {"near": ["\x1b]0;owned\x07x", "b\r"]}))
        with pytest.raises(NoSuchPath) as caught:
            await link.hello()
    assert not {"\x1b", "\x07", "\r"} & set(str(caught.value))


async def test_a_worker_that_ends_before_its_hello_shows_its_stderr() -> None:
    async with link_pair() as (pipe, peer), Link(pipe, host="devbox") as link:
        pipe.stderr = "Traceback: out of memory\n"
        peer.hang_up()
        with pytest.raises(DeployError) as caught:
            await link.hello()
    assert "out of memory" in caught.value.evidence


async def test_a_worker_that_says_nothing_is_given_up() -> None:
    async with link_pair() as (pipe, _), Link(pipe) as link:
        with pytest.raises(DeployError, match="no hello within"):
            await link.hello(timeout=0.05)


@pytest.mark.parametrize("first", [CallData(0, 1, 0, ""), CallEnd(0, 1)])
async def test_anything_else_first_is_against_the_protocol(first: CallData | CallEnd) -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.send(first)
        with pytest.raises(ProtocolError, match="hello was due"):
            await link.hello()


@pytest.mark.parametrize(
    "noise", [b"Welcome to devbox\x1b[31m!\n", b'{"t":"hello"}\n', b"\x00\xff\xfe\n", b"x" * 300_000]
)
async def test_bytes_that_are_no_frame_are_shown_safely(noise: bytes) -> None:
    async with link_pair() as (pipe, peer), Link(pipe) as link:
        await peer.send_bytes(noise)
        with pytest.raises(ProtocolError) as caught:
            await link.hello()
    assert "\x1b" not in str(caught.value) and "\x00" not in str(caught.value) and len(str(caught.value)) < 600
