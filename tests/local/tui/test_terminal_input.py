"""What comes from a real terminal, piece by piece: pastes, answers, keys in all forms, and any bytes.

`make fuzz` sends more of them (CCB_ATTACKS is the number of rounds).
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.support.person.terminal import Terminal, screen_env, terminal

pytestmark = pytest.mark.programs

PROGRAM = """
import asyncio, os, sys
from ccb.local.slash_commands.session_api import ReplInfo
from tests.support.repl.attached_repl import run_on
from tests.support.repl.scripted_session import ScriptedSession

async def play(session, prompt):
    session.begin(model="m")
    session.text(f"GOT{len(session.prompts)} {prompt.encode().hex()} END")
    session.finish()

os._exit(asyncio.run(run_on(ScriptedSession(play=play), ReplInfo("host", "/srv", "m", "default", "0"))))
"""


class Typist:
    """Somebody at the terminal of a program that shows which prompt it got."""

    def __init__(self, at: Terminal) -> None:
        self._at = at
        self._prompts = 0

    async def sends(self, *pieces: bytes, gap_s: float = 0.0) -> None:
        """Send pieces, so far apart."""
        for piece in pieces:
            os.write(self._at.descriptor, piece)
            await asyncio.sleep(gap_s)

    async def prompt(self) -> str:
        """Press Enter by itself until a prompt has come. Return it."""
        await asyncio.sleep(1.5)  # a person looks first, and what has begun is over then
        await self.sends(b"\r")
        self._prompts += 1
        got = re.compile(rf"GOT{self._prompts} (\w+) END")
        await self._at.until(lambda: got.search(self._at.text))
        found = got.search(self._at.text)
        assert found is not None
        return bytes.fromhex(found[1]).decode()


@asynccontextmanager
async def typist(tmp_path: Path) -> AsyncIterator[Typist]:
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\ntouch {tmp_path}/opened\n")
    editor.chmod(0o700)
    env = {**screen_env(), "EDITOR": str(editor)}
    async with terminal([sys.executable, "-c", PROGRAM], env, os.getcwd(), size=(200, 30)) as at:
        await at.shows("F1 or /help")
        yield Typist(at)
        at.type("\x11\x11")  # Ctrl+Q
        assert await at.ended() == 0
        assert not (tmp_path / "opened").exists(), "nothing of this is Ctrl+G"


def pieces(data: bytes, size: int = 3) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


async def test_a_paste_that_comes_in_pieces_is_one_text_in_which_nothing_acts(tmp_path: Path) -> None:
    async with typist(tmp_path) as person:
        await person.sends(*pieces(b"a\x1b[200~b\rc\x07\x1b[201~d"), gap_s=0.1)
        assert await person.prompt() == "ab\nc␇d"
        await person.sends(b"\x1b[200~b\rc\x1b[2", b"01~", gap_s=0.4)
        assert await person.prompt() == "b\nc"
        await person.sends(b"\x1b[200~b\x1b[201~\rc\x1b[201~")
        assert (await person.prompt()).replace("\x1b", "").splitlines()[1:] == ["c"]
        await person.sends(b"one\rtwo\r")
        assert await person.prompt() == "one\ntwo"


async def test_answers_of_the_terminal_and_odd_keys_type_nothing_and_end_nothing(tmp_path: Path) -> None:
    async with typist(tmp_path) as person:
        for answer in (
            b"\x1b]10;rgb:ff/ff/ff\x07", b"\x1b]4;1;rgb:ff/ff/ff\x1b\\", b"\x1b[>1;10;0c", b"\x1b[12;40R", b"\x1b[:C",
            b"\x1bP1+r544e=78\x1b\\", b"\x1b[?12;1$y", b"\x1b[97;1:3u", b"\x1b[99999999999999u", b"\x1b[1114112u",
            b"\x1b[?2048;2$y\x1b[48;30;200;0;0t\x1b[<0;5;5M\x1b[<0;5;5m", b"\x1b[O",
        ):  # fmt: skip
            await person.sends(answer, gap_s=0.05)
        await person.sends(b"\x1b]11;rgb:ff", b"ff/0000/0000\x07", gap_s=1.5)
        await person.sends(b"a", b"\x1b[13;2:1u", b"b", b"\x1b[27;5;13~", b"c", b"\x1b\r", b"d\x1b[97;1:1u", gap_s=0.1)
        assert await person.prompt() == "a\nb\nc\nda"


BEGUN = [b"\x1b", b"\x1b[", b"\x1bP", b"\x1b]", b"\x1b_", b"\x1bO", b"\x1b\\", b"\x9b", b"\xff", b"\x1b[<"]


async def test_no_bytes_end_it(tmp_path: Path) -> None:
    rounds = int(os.environ.get("CCB_ATTACKS", "1"))
    chance = random.Random(time.time() if rounds > 1 else 0)
    async with typist(tmp_path) as person:
        for _ in range(60 * rounds):
            parameters = "".join(chance.choices("0123456789:;<=>?", k=chance.randrange(9)))
            data = f"\x1b[{parameters}{chance.choice('ABCDEFHPQSRMmtcnyIOZ_hlrx$^v')}".encode()
            if chance.random() < 0.3:
                data = chance.choice(BEGUN) + bytes(chance.choices(b"0123456789;:?", k=4))
            at = chance.randrange(len(data))
            await person.sends(data[:at], data[at:], gap_s=chance.choice((0, 0, 0, 0.03)))
        await asyncio.sleep(0.1)  # for a key that somebody presses
