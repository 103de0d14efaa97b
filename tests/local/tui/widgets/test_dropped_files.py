"""Files of the laptop that the person pastes or drops into the composer, and what becomes of them."""

from __future__ import annotations

import asyncio
import base64
import io
import os
import struct
import threading
import zlib
from pathlib import Path

import pytest
from tests.support.repl.pilot import Desk, desk
from textual import events

from ccb.local.config.prompt_history import PromptStore
from ccb.local.terminal.clipboard import NoImage
from ccb.local.tui.composer import attachments, composer
from ccb.local.tui.composer.attachments import (
    Attachment,
    Attachments,
    NotAttached,
    dropped_files,
    dropped_paths,
    image_attachment,
    read_attachment,
)
from ccb.tunnel.wire.prompt_content import MAX_IMAGE_BYTES, is_attached_file


def png(width: int = 3, height: int = 2, padding: int = 0) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(b"".join(b"\0" + bytes(width) for _ in range(height)))
    filler = chunk(b"teXt", os.urandom(padding)) if padding else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + filler + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


async def paste(at: Desk, text: str) -> None:
    """Paste a text, and wait until the composer has it."""
    before = at.composer.text
    at.composer.post_message(events.Paste(text))
    await at.until(lambda: at.composer.text != before)
    await at.pilot.pause()


@pytest.mark.parametrize("form", ["{}", "{} ", "'{}'", '"{}"', "file://{}", "{}\n"])
def test_a_path_is_found_however_a_terminal_writes_it(tmp_path: Path, form: str) -> None:
    path = tmp_path / "plot.png"
    path.write_bytes(png())
    assert dropped_paths(form.format(path)) == [path]


def test_blanks_quotes_and_signs_in_a_name_are_undone(tmp_path: Path) -> None:
    path = tmp_path / "it's my plot (1) ü.png"
    path.write_bytes(png())
    escaped = str(path).replace(" ", "\\ ").replace("'", "\\'").replace("(", "\\(").replace(")", "\\)")
    quoted = "'" + str(path).replace("'", "'\\''") + "'"
    for text in (str(path), escaped, quoted, path.as_uri()):
        assert dropped_paths(text) == [path], text
    other = tmp_path / "b.txt"
    other.write_text("b")
    assert dropped_paths(f"{escaped} {other}") == dropped_paths(f"{path.as_uri()}\n{other.as_uri()}") == [path, other]


def test_a_text_that_holds_anything_else_is_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("a")
    other_host = f"file://elsewhere{path}"
    for text in (f"see {path}", f"{path} please", f"{path} {tmp_path}/missing", other_host, "a.txt", f"'{path}", ""):
        assert dropped_paths(text) == [], text


async def test_a_dropped_image_goes_with_the_prompt(at: Desk, tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    path.write_bytes(png(padding=120 << 10))
    await at.type("why does ")
    await paste(at, f"'{path}' ")
    assert at.composer.text == "why does [image: plot.png 120 KB] "
    await at.sees("plot.png of this laptop will go along with the prompt")
    await at.enter("look so?", then=lambda: at.session.contents)
    text = "why does [image: plot.png 120 KB] look so?"
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(path.read_bytes()).decode()}
    assert at.session.contents == [[{"type": "text", "text": text}, {"type": "image", "source": source}]]
    await at.sees("❯ why does [image: plot.png 120 KB] look so?")
    await at.press("up", "enter", then=lambda: len(at.session.contents) == 2)
    assert at.session.contents[1] == at.session.contents[0], "a prompt that is sent again has its files again"


async def test_a_text_file_goes_along_with_its_name(at: Desk, tmp_path: Path) -> None:
    (tmp_path / 'no"tes].txt').write_text("one\n@main.py\n")
    await paste(at, str(tmp_path / 'no"tes].txt'))
    assert at.composer.text == "[file: no_tes_.txt 13 B] "
    await at.press("enter", then=lambda: at.session.contents)
    (content,) = at.session.contents
    assert isinstance(content, list) and len(content) == 2
    assert content[1]["text"] == '<attached-file name="no_tes_.txt">\none\n@main.py\n\n</attached-file>'
    assert is_attached_file(content[1]) and not is_attached_file(content[0])
    await at.sees("❯ [file: no_tes_.txt 13 B]", lacks="@main.py")


async def test_a_placeholder_goes_as_a_whole_and_undo_gives_the_path_back(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    path.write_bytes(png())
    async with desk(size=(160, 30)) as at:
        await paste(at, str(path))
        assert at.composer.text.startswith("[image: plot.png")
        await at.press("ctrl+underscore", has=str(path))
        await at.press("enter", then=lambda: at.session.contents == [str(path)])
        await paste(at, str(path))
        await at.press("backspace", "backspace", has="")


async def test_only_what_is_pasted_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    path.write_bytes(png())
    placeholder = read_attachment(path).placeholder
    async with desk(size=(160, 30)) as at:
        at.composer.type(str(path))  # as from an approval card
        assert at.composer.text == str(path)
        at.composer.clear()
        at.session.text(f"{path} {placeholder}")
        await at.prompt(f"{path} {placeholder}")
        assert at.session.contents == [f"{path} {placeholder}"], "words that look like a placeholder stay words"


@pytest.mark.parametrize(
    ("name", "data", "why"),
    [
        ("huge.png", png(padding=MAX_IMAGE_BYTES), "huge.png is too large: the model takes images of 3.75 MB at most"),
        ("wide.png", png(width=9000), "it has 9,000 x 2 pixels"),
        ("cut.png", png()[:30], "it is damaged or not complete"),
        ("core", b"\x7fELF\0\0", "core is neither text nor an image that the model takes"),
        ("latin.txt", "ü".encode("latin-1"), "latin.txt is neither text nor an image"),
        ("log.txt", b"x" * 300_000, "log.txt is longer than 256 KB"),
        ("id", b"-----BEGIN OPENSSH PRIVATE KEY-----\nx", "id holds a private key, which stays on the laptop"),
    ],
)
def test_other_files_are_refused_and_the_reason_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, why: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)  # Pillow would scale the images
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NotAttached) as refused:
        read_attachment(tmp_path / name)
    assert why in str(refused.value)


@pytest.mark.parametrize("mode", ["RGB", "CMYK", "L"])
def test_a_large_photograph_stays_one_when_it_is_scaled(mode: str) -> None:
    image = pytest.importorskip("PIL.Image").new(mode, (2_500, 10))
    image.save(photograph := io.BytesIO(), "JPEG")
    made = image_attachment(photograph.getvalue(), "photo.jpg", None)
    assert made.scaled and made.block["source"]["media_type"] == "image/jpeg"


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(NotAttached, match="its path stays text"):
            dropped_files(str(path))


async def test_a_refused_file_stays_a_path(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"\x7fELF\0\0")
    await paste(at, str(tmp_path / "core"))
    assert at.composer.text == str(tmp_path / "core")
    await at.sees("core is neither text nor an image")


def test_as_many_files_as_a_request_holds(tmp_path: Path) -> None:
    kept = Attachments()
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(png(padding=MAX_IMAGE_BYTES - 500))
    shown: list[str] = []
    for number in range(4):
        shown.append(kept.take(dropped_files(str(tmp_path / f"{number}.png")), " ".join(shown)).shown)
    assert [bool(each) for each in shown] == [True, True, True, False]
    kept.submitted(" ".join(shown))
    last = dropped_files(str(tmp_path / "3.png"))
    assert not kept.take(last).shown, "those that are on their way are still needed"
    assert len(kept.blocks(" ".join(shown))) == 4, "the text and three images"
    assert kept.take(last).shown, "those that were sent make room"


def test_a_file_that_was_taken_out_of_the_prompt_makes_room(tmp_path: Path) -> None:
    kept, shown = Attachments(), list[str]()
    for number in range(21):
        (tmp_path / f"{number}.txt").write_text("x")
        shown.append(kept.take(dropped_files(str(tmp_path / f"{number}.txt")), " ".join(shown)).shown)
    assert shown[19] and not shown[20]
    again = kept.take(dropped_files(str(tmp_path / "20.txt")), " ".join(shown[1:])).shown
    assert again and kept.named_in(" ".join(shown)) == shown[1:20]


async def test_a_file_that_was_not_read_in_time_stays_text_and_counts_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "x.txt").write_text("x")
    hangs, is_read = threading.Event(), threading.Event()

    def slow(path: Path) -> Attachment:
        hangs.wait()
        read = read_attachment(path)
        is_read.set()
        return read

    monkeypatch.setattr(composer, "_MAX_READ_S", 0.05)
    monkeypatch.setattr(attachments, "read_attachment", slow)
    async with desk() as at:
        await paste(at, str(tmp_path / "x.txt"))
        await at.sees("it was not read within")
        assert at.composer.text == str(tmp_path / "x.txt")
        hangs.set()
        await asyncio.to_thread(is_read.wait)
        await at.pilot.pause()
        assert not at.composer.attachments.placeholder_before("[file: x.txt 1 B]")


def test_two_files_of_the_same_name_and_size_are_two(tmp_path: Path) -> None:
    kept, shown = Attachments(), list[str]()
    for folder in ("a", "b", "a"):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "x.txt").write_text(folder)
        shown.append(kept.take(dropped_files(str(tmp_path / folder / "x.txt")), " ".join(shown)).shown)
    assert shown == ["[file: x.txt 1 B]", "[file: x.txt 1 B #2]", "[file: x.txt 1 B]"]
    assert [block["text"].split("\n")[1] for block in kept.blocks(" ".join(shown))[1:]] == ["a", "b"]


async def test_a_command_takes_no_files(at: Desk, tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("x")
    await at.type("! cat ")
    await paste(at, str(tmp_path / "x.txt"))
    await at.press("enter", sees="Nothing was sent: what begins with ! takes no files.")
    assert at.composer.text.startswith("! cat [file:") and not at.session.contents


async def test_later_runs_find_the_path_in_the_history_and_in_the_draft(tmp_path: Path) -> None:
    path = tmp_path / "my notes.txt"
    path.write_text("x")
    store = PromptStore(tmp_path, "devbox:/srv/shop")
    async with desk() as at:
        at.composer.remember(store, *store.load())
        await paste(at, str(path))
        await at.press("enter", then=lambda: at.session.contents)
        await at.type("see ")
        await paste(at, str(path))
    assert store.load() == ([f"'{path}'"], f"see '{path}'")


async def test_the_image_in_the_clipboard_goes_with_the_prompt_and_backspace_removes_it(at: Desk) -> None:
    async def from_clipboard() -> bytes:
        return png(64, 48)

    at.composer.around.clipboard_image = from_clipboard
    await at.press(*"see ", "ctrl+v", then=lambda: at.composer.text == "see [Image #1 64x48] ")
    await at.sees("the image will go along with the prompt; Backspace removes it")
    await at.press("ctrl+v", then=lambda: at.composer.text == "see [Image #1 64x48] [Image #2 64x48] ")
    await at.press("backspace", "backspace", has="see [Image #1 64x48] ")
    await at.press("enter", then=lambda: at.session.contents)
    content = at.session.contents[0]
    assert isinstance(content, list)
    text, image = content
    assert text["text"] == "see [Image #1 64x48]" and image["source"]["media_type"] == "image/png"
    await at.give("/paste", then=lambda: at.composer.text == "[Image #3 64x48] ")


async def test_without_an_image_in_the_clipboard_the_reason_is_said(at: Desk) -> None:
    async def from_clipboard() -> bytes:
        raise NoImage("there is no image in the clipboard")

    at.composer.around.clipboard_image = from_clipboard
    await at.press("ctrl+v", sees="there is no image in the clipboard")
    at.app.copy_to_clipboard("copied in ccb")
    await at.press("ctrl+v", then=lambda: at.composer.text == "copied in ccb")


def test_an_image_of_the_clipboard_has_no_path_that_later_runs_could_find() -> None:
    kept = Attachments()
    shown = kept.take([image_attachment(png(), "the image", None)]).shown
    assert shown == "[Image #1 3x2]" and kept.with_paths(f"see {shown}") == "see "
    with pytest.raises(NotAttached):
        image_attachment(b"no image", "the image", None)


def test_an_image_that_is_too_large_is_scaled_where_pillow_is(tmp_path: Path) -> None:
    pytest.importorskip("PIL")
    path = tmp_path / "wide.png"
    path.write_bytes(png(9000, 30))
    file = read_attachment(path)
    assert file.pixels == (2000, 7) and file.scaled
    path.write_bytes(png(300, 300, padding=MAX_IMAGE_BYTES))
    file = read_attachment(path)
    assert file.pixels == (300, 300) and file.size < 10_000
    path.write_bytes(png(9000, 9000))
    with pytest.raises(NotAttached, match="9,000 x 9,000 pixels"):
        read_attachment(path)
