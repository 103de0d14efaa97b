"""A copy with the real program on the host's side, over a pipe of this machine, and with hosts that misbehave."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from ccb.local.files import copying
from ccb.local.files.both_ends.copy_channel import CopyProgress
from ccb.local.tui.composer.completions import Mention, offer_of, path_argument_at
from ccb.tunnel.errors import CcbError, ConnectionLost, CopyFailed, NoStorage, NoSuchPath, UsageError
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.spelling import spelled

HELLO = 'import os,sys,json,time\nos.write(1, ("\\n%s {}\\n" % sys.argv[1]).encode())\n'
SAY = 'def say(d):\n d = json.dumps(d).encode(); os.write(1, b"m" + len(d).to_bytes(4, "big") + d)\n'


async def local(again: bool) -> Transport:
    return LocalTransport(python=sys.executable)


def ordered(upload: bool, here: Path, there: Path) -> copying.CopyOrder:
    return copying.CopyOrder(upload, str(here), str(there))


async def done(order: copying.CopyOrder, progress: CopyProgress | None = None, patience: float = 0.0) -> str:
    return await copying.copy(order, local, progress or CopyProgress(), patience=patience)


@pytest.mark.programs
async def test_files_go_both_ways_through_the_program_that_is_sent(tmp_path: Path) -> None:
    source, here, back, nothing = (tmp_path / name for name in ("source", "here", "back", "nothing"))
    source.write_bytes(os.urandom(3_000_000))
    progress = CopyProgress()
    assert await done(ordered(False, here, source), progress) == str(here)
    assert (progress.done, progress.size, progress.files) == (3_000_000, 3_000_000, 1)
    await done(ordered(True, here, back))
    assert back.read_bytes() == source.read_bytes()
    (tmp_path / "folder/source").mkdir(parents=True)
    for order, error, why in (
        (ordered(False, tmp_path / "x", nothing), NoSuchPath, "nothing on this machine: No such file"),
        (ordered(True, nothing, tmp_path / "x"), NoSuchPath, "nothing on this machine: No such file"),
        (ordered(False, tmp_path / "a b/x", source), NoSuchPath, f"Create it: mkdir -p '{tmp_path}/a b'"),
        (ordered(True, source, tmp_path / "new/x"), NoSuchPath, f"Create it: mkdir -p {tmp_path}/new"),
        (ordered(False, tmp_path / "folder", source), CopyFailed, "source on this machine: a folder of this name is"),
        (ordered(True, source, tmp_path / "folder"), CopyFailed, "source on this machine: a folder of this name is"),
    ):
        with pytest.raises(error, match=why):
            await done(order)


def test_the_line_about_a_copy_fits_and_only_so_much_of_what_was_left_out_is_kept() -> None:
    progress = CopyProgress()
    progress.begun(1, 2_000_000_000)
    progress.rate(0.0)
    progress.moved(500_000_000)
    for width in (10, 40, 60, 80, 200):
        line = copying.progress_line("plot\x1b]0;x\x07.png" * 20, progress, width)
        assert len(line) <= width and "\x1b" not in line and "\x07" not in line
    assert " 25%  500 MB of 2.0 GB" in line
    sizes = {0: "0 B", 999: "999 B", 1000: "1.0 KB", 99_600: "100 KB", 999_600: "1.0 MB"}
    assert {size: copying.size_of(size) for size in sizes} == sizes
    for _ in range(2_000):
        progress.left_out("p" * 60_000, "w" * 60_000)
    assert sum(len(path) + len(why) for path, why in progress.skipped) <= 2_000_000


@pytest.mark.programs
async def test_what_was_copied_is_counted_and_what_was_left_out_is_not(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "sub").mkdir(parents=True)
    for name in ("one", "sub/two", "caf\udce9", "two\nlines", "sub/\x1b[31m"):
        (source / name).write_bytes(b"12345")
    (source / "large").write_bytes(bytes(2_000_000))
    (source / "link").symlink_to("one")
    for upload in (False, True):
        target = tmp_path / f"target {upload}"
        for _ in range(2):  # the second time, the large file is there already
            progress = CopyProgress()
            order = ordered(upload, *((source, target) if upload else (target, source)))
            target.mkdir(exist_ok=True)
            await done(order, progress)
            assert (progress.copied, progress.done, len(progress.skipped)) == (4, 2_000_015, 3)
        assert sum(each.is_file() for each in target.rglob("*")) == 4
        assert (target / "source" / "caf\udce9").read_bytes() == b"12345"


@pytest.mark.programs
@pytest.mark.parametrize(
    ("program", "error", "why"),
    [
        ('say({"is": "failed", "path": "/x\\x1b[31m", "why": "No space left", "code": 28})', NoStorage, "No space"),
        ('os.write(1, b"welcome to this host, and enjoy your stay")', CopyFailed, "rules of a copy"),
        ("os.read(0, 1); sys.exit(3)", CopyFailed, r"ended early on this machine \(exit code 3\)"),
        ("os.kill(os.getpid(), 9)", ConnectionLost, "given up: the connection to this machine was lost"),
        ("time.sleep(60)", ConnectionLost, "given up: the host has said nothing"),
    ],
)
async def test_a_host_that_misbehaves_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, error: type[CcbError], why: str
) -> None:
    monkeypatch.setattr(copying, "host_program", (HELLO + SAY + program + "\n").encode)
    monkeypatch.setattr(copying, "SILENCE_S", 0.5)
    with pytest.raises(error, match=why) as raised:
        await done(ordered(False, tmp_path / "x", Path("/y")))
    assert "\x1b" not in str(raised.value)
    assert not list(tmp_path.iterdir())


def test_paths_are_read_as_a_person_means_them() -> None:
    order = copying.get_order('"my runs/a.png" ~/x', "/srv/shop")
    assert order == copying.CopyOrder(False, "~/x", "/srv/shop/my runs/a.png")
    assert copying.get_order("~/a", "/srv/shop") == copying.CopyOrder(False, ".", "~/a")
    assert copying.get_order("..", "/srv/shop").name == "srv"
    assert copying.put_order("a b/", "/srv/shop") == copying.CopyOrder(True, "a", "/srv/shop/b/")
    assert copying.put_order("a", "/srv/shop") == copying.CopyOrder(True, "a", "/srv/shop")
    assert copying.remote_path("/", "/srv") == "/"


@pytest.mark.parametrize("name", ["caf\udce9", r"caf\xe9", "two\nlines", "C:\\new dir", "plain \\", "größe"])
def test_a_name_that_the_host_offers_is_taken_back(name: str) -> None:
    typed = "/get " + offer_of(spelled(name), Mention("", 5, 5, sign="")).insert.rstrip(" ")
    again = path_argument_at(typed.removesuffix('"'), len(typed.removesuffix('"')))
    assert again is not None and again.query == spelled(name), "what the list is asked while the name is typed on"
    assert copying.get_order(typed.removeprefix("/get "), "/srv") == copying.CopyOrder(False, ".", f"/srv/{name}")


@pytest.mark.parametrize("argument", ["", "a b c", '"a', '""', "a\0b"])
def test_what_cannot_be_meant_is_refused_with_the_usage(argument: str) -> None:
    with pytest.raises(UsageError, match=r"this command is /get REMOTE \[LOCAL\]"):
        copying.get_order(argument, "/srv")


async def test_only_so_many_copies_wait() -> None:
    async def open_transport(again: bool) -> Transport:
        await asyncio.Event().wait()
        raise AssertionError

    async with copying.Transfers(lambda: nullcontext(open_transport)) as transfers:
        for number in range(20):
            transfers.start(copying.CopyOrder(False, f"x{number}", "y"))
        with pytest.raises(UsageError, match="20 copies are under way or wait"):
            transfers.start(copying.CopyOrder(False, "x", "y"))
        assert transfers.cancel_all()
    assert transfers.running == []
