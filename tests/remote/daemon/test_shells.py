"""Shells of the person: what they are on the host, who gets which, and what ends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest
from tests.remote.agent_kit import says
from tests.remote.worker_process import Laptop, WorkerHost, alive, until

from ccb.remote.daemon.shells import KeptOutput
from ccb.tunnel.wire.frames import INITIAL_CREDIT, ChannelCredit, ChannelData, ChannelEnd, ChannelOpen, Frame
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.shell_stream import TerminalSize, encode_size, encode_typed

SIZE = TerminalSize(24, 80)


class Screen:
    """A laptop that holds a shell. `text` is what it got of the output."""

    def __init__(self, laptop: Laptop, channel: int) -> None:
        self.laptop, self._channel = laptop, channel
        self.output = b""
        self.end: ChannelEnd | None = None
        self._sent = self._seen = self._have = 0

    @property
    def text(self) -> str:
        return self.output.decode(errors="replace")

    async def _send(self, data: bytes) -> None:
        await self.laptop.send(ChannelData(self._channel, self._sent, data))
        self._sent += len(data)

    async def type(self, keys: str) -> None:
        await self._send(encode_typed(keys.encode()))

    async def resize(self, size: TerminalSize) -> None:
        await self._send(encode_size(size))

    async def until(self, condition: Callable[[], Any]) -> None:
        """Read until `condition` holds."""
        while not condition():
            assert self.end is None, f"the shell has ended: {self.end}, {self.text[-2000:]}"
            while self._seen == len(self.laptop.frames):
                async with asyncio.timeout(20):
                    assert await self.laptop.read(), self.text[-2000:]
            await self._take(self.laptop.frames[self._seen])
            self._seen += 1

    async def _take(self, frame: Frame) -> None:
        if isinstance(frame, ChannelEnd) and frame.channel == self._channel:
            self.end = frame
        elif isinstance(frame, ChannelData) and frame.channel == self._channel:
            data = frame.data
            self._have += len(data)
            self.output += data
            await self.laptop.send(ChannelCredit(self._channel, self._have, self._have + INITIAL_CREDIT))

    async def shows(self, pattern: str) -> re.Match[str]:
        await self.until(lambda: re.search(pattern, self.text))
        found = re.search(pattern, self.text)
        assert found is not None
        return found

    async def ended(self) -> ChannelEnd:
        await self.until(lambda: self.end is not None)
        assert self.end is not None
        return self.end

    async def leave(self) -> None:
        await self.laptop.send(ChannelEnd(self._channel, "closed"))


async def screen(laptop: Laptop, channel: int = 1, *, size: TerminalSize = SIZE, **body: Any) -> Screen:
    where = {"term": "xterm-256color", "rows": size.rows, "columns": size.columns}
    await laptop.send(ChannelOpen(channel, "shell", {**where, **body}))
    return Screen(laptop, channel)


@pytest.fixture(autouse=True)
def plain_shell(host: WorkerHost, monkeypatch: pytest.MonkeyPatch) -> None:
    (host.home / ".bashrc").write_text("PS1='> '\n")


async def test_a_shell_is_a_terminal_in_the_directory_of_the_session_with_the_persons_environment(
    host: WorkerHost, session: str
) -> None:
    host.more_env = {"EDITOR": "ed", "CCB_SECRET": "x", "OPENAI_KEY": "y"}
    shell = await screen(await host.drive(session))
    await shell.type("grep SigIgn /proc/self/status\r")
    await shell.shows("SigIgn:\\s*[0-9a-f]{8}[08]0000000\r")  # signal 32 and those above are not a program's
    await shell.type('tty; pwd; stty size; echo "<$TERM $EDITOR $CCB_SECRET$OPENAI_KEY $PAGER>"; exit 7\r')
    end = await shell.ended()
    assert (end.error, end.body) == ("", {"code": 7})
    assert re.search(r"/dev/\S+\r\n", shell.text) and f"{host.project}\r\n24 80\r\n" in shell.text
    assert "<xterm-256color ed  >" in shell.text


async def test_a_shell_outlives_its_channel_and_shows_its_last_lines_to_who_comes_back(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    first = await screen(laptop)
    await first.type("echo one$((1+1)); x=kept\r")
    await first.shows("one2")
    await first.leave()
    again = await screen(laptop, 2, size=TerminalSize(40, 132))
    await again.shows("one2")
    await again.type('echo "$x"; stty size\r')
    await again.shows("kept\r\n40 132")


async def test_a_full_screen_program_is_told_to_draw_again_and_its_modes_come_back(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    first = await screen(laptop)
    program = r"trap 'stty size' WINCH; echo o\$((0))n; while :; do sleep 0.05; done"
    await first.type(f"printf '\\e[?1049h\\e[?1000h\\e[6n'; sh -c \"{program}\"\r")
    await first.shows("o0n")
    await first.leave()
    again = await screen(laptop, 2)
    await again.shows("23 80|24 80")
    await again.shows("24 80")
    await again.resize(TerminalSize(30, 90))
    await again.shows("30 90")
    assert "\x1b[?1049h" in again.text and "\x1b[?1000h" in again.text
    assert "\x1b[6n" not in again.text, "the terminal would answer a second time"


async def test_a_second_client_takes_a_shell_and_the_first_one_is_told(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    first = await screen(laptop)
    await first.type("echo mine\r")
    await first.shows("\rmine\r")
    second = await screen(laptop, 2, number=1)
    assert "another terminal" in (await first.ended()).error
    await second.shows("mine")


async def test_a_viewer_gets_shells_of_its_own_and_not_the_one_that_another_terminal_shows(
    host: WorkerHost, session: str
) -> None:
    driver = await host.drive(session)
    held = await screen(driver)
    await held.type("echo mine\r")
    await held.shows("\rmine\r")
    viewer = await host.drive(session, role="viewer")
    own = await screen(viewer, 2)
    await own.type("echo o$((0))wn; exit\r")
    await own.shows("o0wn")
    assert "mine" not in own.text
    assert (await own.ended()).body == {"code": 0}


@pytest.mark.parametrize("body", [{"number": 9}, {"number": "1"}, {"number": -1}, {"command": 5}, {"rows": 0}])
async def test_what_is_no_shell_is_refused(host: WorkerHost, session: str, body: dict[str, Any]) -> None:
    end = await (await screen(await host.drive(session), **body)).ended()
    assert "shell" in end.error


async def test_a_command_gets_a_shell_of_its_own_and_its_exit_code_comes_back(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    await (await screen(laptop)).shows(">")
    command = await screen(laptop, 2, command="[ -t 0 ] && read -r line && echo got:$line && kill -KILL $$")
    await command.type("this\r")
    end = await command.ended()
    assert "got:this" in command.text and end.body == {"code": 137}


async def test_ten_megabytes_arrive_whole_and_a_laptop_that_reads_nothing_holds_nobody_up(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    shell = await screen(laptop, command="head -c 10000000 /dev/zero | tr '\\0' x; (exit 3)")
    assert (await laptop.turn("hi", says("hello")))["subtype"] == "success"
    end = await shell.ended()
    assert (shell.output.count(b"x"), end.body) == (10_000_000, {"code": 3})


async def test_the_end_of_the_session_ends_every_shell_and_what_it_has_started(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session)
    shell = await screen(laptop)
    await shell.type("setsid env -i /bin/sh -c 'echo $$ > pid; exec sleep 1000' & nohup sleep 1001 & sleep 1002 &\r")
    await shell.type("until [ -s pid ]; do :; done; echo pids $$ $(cat pid) $!.\r")
    pids = [int(each) for each in (await shell.shows(r"pids (\d+) (\d+) (\d+)\.")).groups()]
    await laptop.end()
    for pid in pids:
        await until(lambda pid=pid: not alive(pid), f"the end of {pid}")  # type: ignore[misc]


async def test_a_killed_worker_takes_its_shells_along_and_the_laptop_that_comes_back_is_told(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    await laptop.turn("hi", says("hello"))
    shell = await screen(laptop)
    await shell.type("echo pid $$.\r")
    pid = int((await shell.shows(r"pid (\d+)\."))[1])
    await host.kill_worker(laptop.pid)
    again = await host.drive(session, create=False)
    await again.send(ChannelOpen(1, "shell", {}, begun=True))
    assert "ended meanwhile" in (await again.next(ChannelEnd)).error
    await until(lambda: not alive(pid), "the end of the shell")


async def test_nothing_of_a_shell_is_in_the_journal_and_late_frames_of_a_closed_one_do_nothing(
    host: WorkerHost, session: str
) -> None:
    laptop = await host.drive(session)
    shell = await screen(laptop)
    await shell.type("echo se$((1))cret; exit\r")
    await shell.ended()
    await shell.type("rm -rf /\r")
    await shell.resize(SIZE)
    assert (await laptop.turn("hi", says("hello")))["subtype"] == "success"
    assert "se1cret" in shell.text and "cret" not in str(host.journal(session))


async def test_a_shell_keeps_the_daemon_and_goes_to_a_viewer_once_the_driver_is_away(
    host: WorkerHost, session: str
) -> None:
    driver = await host.drive(session, SessionOptions(client="me"), idle_s=0.1, grace_s=60)
    shell = await screen(driver)
    await shell.type("echo mi$((0))ne; sleep 1000 &\r")
    await shell.shows("mi0ne")
    await driver.drop()
    viewer = await host.drive(session, role="viewer", create=False)
    assert viewer.hello.pid == driver.pid
    again = await screen(viewer)
    await again.shows("mi0ne")


def test_output_that_was_dropped_leaves_its_modes_and_no_part_of_a_sequence() -> None:
    kept = KeptOutput()
    kept.add(b"\x1b[?1049h\x1b[?1000;1006h\x1b[?25l")
    for number in range(200_000):
        kept.add(b"\x1b[%d;1H\x1b[31mx" % (number % 24))
    replay = kept.replay()
    assert len(replay) < 400_000 and kept.end > 2_000_000
    assert replay.startswith(b"\x1b[0m\x1b[?1049h\x1b[?1000h\x1b[?1006h\x1b[?25l\x1b[")
    assert not re.sub(rb"\x1b\[[?\d;]*[Hmhl]", b"", replay).strip(b"x")
    kept.add(b"\x1b[?1049l" + b"line\n" * 500 + b"\x1b[?25h> ")
    replay = kept.replay()
    assert replay.count(b"line\n") == 99 and b"1049" not in replay and replay.endswith(b"line\n\x1b[?25h> ")


def test_a_long_line_is_kept_for_a_client_that_is_behind() -> None:
    kept = KeptOutput()
    for _ in range(9):
        kept.add(32 * 1024 * b"x")
    behind = kept.end
    for _ in range(3):
        kept.add(32 * 1024 * b"y")
    kept.add(b"\n")
    assert kept.since(behind) == 3 * 32 * 1024 * b"y" + b"\n"
