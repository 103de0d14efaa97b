"""Files of the host that are looked at here: what they are, under which name a viewer gets them, and where they lie."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import pytest
from tests.support.machine.waiting import until

from ccb.local.files import fetched_files
from ccb.local.files.copying import Transfers
from ccb.tunnel.errors import CcbError, CopyFailed, UsageError
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.pipe import Transport

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\2\x80\0\0\1\xe0\x08\2\0\0\0" + zlib.compress(b"") + b"IEND"


@pytest.mark.parametrize(
    ("name", "content", "label", "seen_as"),  # "": programs and what is not known have no viewer
    [
        ("loss.png", PNG, "PNG image, 640x480", "loss.png"),
        ("evil.desktop", PNG, "PNG image, 640x480", "evil.desktop.png"),
        ("a.jpeg", b"\xff\xd8\xff\xe0\0\4ab\xff\xc0\0\x0b\x08\0\2\0\3\1", "JPEG image, 3x2", "a.jpeg"),
        ("paper.pdf", b"%PDF-1.7\n", "PDF document", "paper.pdf"),
        ("run.sh", b"#!/bin/sh\nrm -rf ~\n", "text", "run.sh.txt"),
        ("app.desktop", b"[Desktop Entry]\nExec=evil\n", "text", "app.desktop.txt"),
        ("notes.MD", b"# hi", "Markdown text", "notes.MD"),
        ("data.csv", b"a,b\n=cmd()", "table", "data.csv"),
        ("page.html", b"<html>", "web page", "page.html"),
        ("page.xhtml", b"<html>", "text", "page.xhtml.txt"),
        ("noname", b"<!doctype html><script>", "text", "noname.txt"),
        ("a.svg", b"<svg onload=evil()>", "SVG image", "a.svg.html"),
        ("BMW.txt", b"BMW is text", "text", "BMW.txt"),
        ("book.xlsx", b"PK\x03\x04\0\xff", "Excel table", "book.xlsx"),
        ("-rf \x1b[2J\u202egnp.exe", PNG, "PNG image, 640x480", None),
        ("\u0434\u043e\u043a.txt", "\u0434".encode(), "text", "\u0434\u043e\u043a.txt"),
        ("tool", b"\x7fELF\2\1\1\0", "a program of Linux", ""),
        ("plot.png", b"MZ\x90\0", "a program of Windows", ""),
        ("plot.png", b"PK\x03\x04\0", "an archive", ""),
        ("paper.pdf", b"\0\1\2\3", "data of a kind that ccb does not know", ""),
    ],
)
def test_a_viewer_gets_the_end_of_the_content(name: str, content: bytes, label: str, seen_as: str | None) -> None:
    kind = fetched_files.kind_of(name, content)
    assert kind.label == label and bool(kind.ends) == (seen_as != "")
    found = fetched_files.viewer_name(name, kind) if kind.ends else ""
    if seen_as is None:
        assert found.endswith(".exe.png") and found[0] not in "-." and found.isprintable()
    else:
        assert found == seen_as


def test_the_folder_is_private_and_goes_at_the_end_or_at_the_next_start_after_a_kill(tmp_path: Path) -> None:
    above = tmp_path / "opened"
    program = (
        "import os, sys, pathlib; from ccb.local.files.fetched_files import PrivateFolder; "
        "PrivateFolder(pathlib.Path(sys.argv[1])).place_for('x'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program, str(above)], check=False)
    assert len(list(above.iterdir())) == 1
    folder = fetched_files.PrivateFolder(above)
    place = folder.place_for("/srv/a.png")
    (place / "a.png").touch()
    for each in (place, place.parent, above):
        assert stat.S_IMODE(each.stat().st_mode) == 0o700
    fetched_files.PrivateFolder(above).remove_left_over()
    assert list(above.iterdir()) == [place.parent]
    assert folder.place_for("/srv/a.png") == place != folder.place_for("/srv/b.png")
    folder.close()
    assert list(above.iterdir()) == []


def test_what_nobody_waits_for_goes_when_there_is_much(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_files, "MAX_BYTES", 10)
    folder = fetched_files.PrivateFolder(tmp_path)
    waits, done = folder.place_for("a"), folder.place_for("b")
    for place in (waits, done):
        (place / "content").write_bytes(b"x" * 5)
    folder.place_for("c", [waits])
    assert waits.exists() and done.exists()
    (waits / "content").write_bytes(b"x" * 6)
    folder.place_for("c", [waits])
    assert waits.exists() and not done.exists()
    (waits / "content").write_bytes(b"x" * 11)
    assert folder.place_for("a") == waits and waits.exists(), "a copy to it goes on"
    folder.close()


def test_which_program_shows_a_file(tmp_path: Path) -> None:
    program = tmp_path / "xdg-open"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    path = {"PATH": str(tmp_path)}
    assert fetched_files.viewer_command("", {**path, "DISPLAY": ":0"}, "linux") == ["xdg-open"]
    assert fetched_files.viewer_command("xdg-open '-x y'", path, "linux") == ["xdg-open", "-x y"]
    with pytest.raises(fetched_files.NoViewer, match="no display is known here"):
        fetched_files.viewer_command("", path, "linux")
    with pytest.raises(fetched_files.NoViewer, match="there is no program 'feh': set openWith"):
        fetched_files.viewer_command("feh -F", path, "linux")
    with pytest.raises(fetched_files.NoViewer, match="there is no program 'open'"):
        fetched_files.viewer_command("", path, "darwin")


@asynccontextmanager
async def fetching(tmp_path: Path, viewer: str) -> AsyncIterator[fetched_files.FetchedFiles]:
    """Files of this machine, which is the host, too. `viewer` is a shell script that gets the path."""
    script = tmp_path / "viewer"
    script.write_text(f"#!/bin/sh\n{viewer}\n")
    script.chmod(0o755)

    async def open_transport(again: bool) -> Transport:
        return LocalTransport(python=sys.executable)

    async with (
        Transfers(lambda: nullcontext(open_transport)) as transfers,
        fetched_files.FetchedFiles(transfers, fetched_files.PrivateFolder(tmp_path / "opened"), str(script)) as fetched,
    ):
        yield fetched


async def fetched_file(fetched: fetched_files.FetchedFiles, path: Path) -> fetched_files.FetchedFile:
    found = await fetched.arrived(fetched.fetch(str(path), "/"))
    assert isinstance(found, fetched_files.FetchedFile), found
    return found


async def refused(fetched: fetched_files.FetchedFiles, path: Path) -> str:
    error = await fetched.arrived(fetched.fetch(str(path), "/"))
    assert isinstance(error, CopyFailed)
    return error.what


@pytest.mark.programs
async def test_a_file_is_opened_only_when_asked_and_is_gone_afterwards(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "run.sh").chmod(0o755)
    seen = tmp_path / "seen"
    async with fetching(tmp_path, f'echo "$1" > {seen}; stat -c %a "$1" >> {seen}') as fetched:
        file = await fetched_file(fetched, tmp_path / "run.sh")
        assert fetched.take_first() is file and fetched.take_first() is None
        assert file.text == "run.sh.txt · text · 10 B" and not seen.exists()
        assert await fetched.open_file(file) == "Opened run.sh.txt with viewer"
        path, mode = seen.read_text().split()
        assert path == str(file.path) and mode == "600"
    assert not file.path.exists()


@pytest.mark.programs
async def test_a_file_that_waits_stays_and_is_offered_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetched_files, "MAX_BYTES", 10)
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text("six by")
    async with fetching(tmp_path, "exit 0") as fetched:
        first = await fetched_file(fetched, tmp_path / "a.txt")
        again = await fetched_file(fetched, tmp_path / "a.txt")
        second = await fetched_file(fetched, tmp_path / "b.txt")
        assert fetched.offered == [again, second] and first.path == again.path
        assert again.path.read_text() == second.path.read_text() == "six by"
        with pytest.raises(UsageError, match="the files that wait for you hold 12 B already"):
            fetched.fetch(str(tmp_path / "c.txt"), "/")
        fetched.take_first()
        assert isinstance(await fetched.arrived(fetched.fetch(str(tmp_path / "c.txt"), "/")), CcbError)
        assert not again.path.exists() and second.path.exists(), "it waited no more"


@pytest.mark.programs
async def test_a_page_and_a_drawing_reach_no_other_machine(tmp_path: Path) -> None:
    (tmp_path / "report.html").write_bytes(b"\xef\xbb\xbf<html><script src=https://evil/x.js></script>")
    (tmp_path / "plot.svg").write_text("<svg><script>evil()</script></svg>")
    async with fetching(tmp_path, "exit 0") as fetched:
        page = (await fetched_file(fetched, tmp_path / "report.html")).path.read_text()
        assert page.startswith('<!doctype html><meta charset="utf-8"><meta http-equiv="Content-Security-Policy"')
        assert "default-src 'none'" in page and page.endswith("\n<html><script src=https://evil/x.js></script>")
        drawing = (await fetched_file(fetched, tmp_path / "plot.svg")).path.read_text()
        assert "<svg" not in drawing and 'alt="" src="data:image/svg+xml;base64,' in drawing


@pytest.mark.programs
async def test_what_cannot_be_shown_is_said_and_not_kept(tmp_path: Path) -> None:
    (tmp_path / "tool").write_bytes(b"\x7fELF\2\1\1\0")
    (tmp_path / "folder").mkdir()
    (tmp_path / "a.txt").write_text("hi")
    async with fetching(tmp_path, "exit 3") as fetched:
        assert (await refused(fetched, tmp_path / "tool")).startswith("tool is a program of Linux")
        assert "it is a folder" in await refused(fetched, tmp_path / "folder")
        assert fetched.offered == []
        file = await fetched_file(fetched, tmp_path / "a.txt")
        with pytest.raises(CopyFailed, match="could not show it") as failed:
            await fetched.open_file(file)
        assert str(file.path) in failed.value.evidence
        assert not [each for each in (tmp_path / "opened").rglob("content*") if each.is_file()]


@pytest.mark.programs
async def test_a_viewer_that_runs_on_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccb.local.files.fetched_files._STARTS_S", 0.1)
    (tmp_path / "a.txt").write_text("hi")
    os.mkfifo(tmp_path / "go")
    async with fetching(tmp_path, f"read x < {tmp_path}/go; echo done > {tmp_path}/out") as fetched:
        assert (await fetched.open_file(await fetched_file(fetched, tmp_path / "a.txt"))).startswith("Opened a.txt")
    await asyncio.to_thread((tmp_path / "go").write_text, "x\n")
    await until((tmp_path / "out").exists)


@pytest.mark.programs
async def test_without_a_private_place_or_with_many_files_waiting_nothing_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hi")
    async with fetching(tmp_path, "exit 0") as fetched:
        transfer = fetched.fetch(str(tmp_path / "a.txt"), "/")
        await asyncio.wait({transfer.task})
        Path(transfer.task.result()).unlink()  # such as by the person
        gone = await fetched.arrived(transfer)
        assert isinstance(gone, CopyFailed) and "cannot be read" in gone.what
        kind = fetched_files.kind_of("a.txt", b"hi")
        fetched.offered += [fetched_files.FetchedFile(tmp_path / "a.txt", kind, 2)] * 20
        with pytest.raises(UsageError, match="20 files wait for you already"):
            fetched.fetch("a.txt", "/")
    (tmp_path / "file").touch()
    async with Transfers(lambda: pytest.fail("it connects")) as transfers:
        with pytest.raises(CopyFailed, match="no private place"):
            fetched_files.FetchedFiles(transfers, fetched_files.PrivateFolder(tmp_path / "file")).fetch("a.txt", "/")
