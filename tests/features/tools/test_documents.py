"""Large images and PDF documents, as Read shows them."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import Toolbox, open_toolbox

from ccb.remote.tools.documents import pdf, pdf_pages, png_scale
from ccb.tunnel.wire.content.images import image_size

Json = dict[str, Any]


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(width: int, height: int, rows: list[bytes], colour: int = 2, depth: int = 8, palette: bytes = b"") -> bytes:
    """A PNG of rows of pixels, with a filter of its own for each row, one after the other."""
    step = png_scale._CHANNELS[colour] * depth // 8
    out, before = bytearray(), bytes(width * step)
    for number, row in enumerate(rows):
        kind = number % 5
        out.append(kind)
        for i, byte in enumerate(row):
            left, above = (row[i - step] if i >= step else 0), before[i]
            corner = before[i - step] if i >= step else 0
            guess = left + above - corner
            near = [(abs(guess - each), place, each) for place, each in enumerate((left, above, corner))]
            out.append((byte - (0, left, above, (left + above) // 2, min(near)[2])[kind]) & 255)
        before = row
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    plte = chunk(b"PLTE", palette) if palette else b""
    data = chunk(b"IDAT", zlib.compress(bytes(out)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + plte + data + chunk(b"IEND", b"")


def pixels(image: bytes) -> list[bytes]:
    return list(png_scale.Png(image).rows())


def test_a_png_is_scaled_to_the_mean_of_its_squares_whatever_its_filters() -> None:
    rows = [bytes((x * 7 + y * 13 + c * 50) % 256 for x in range(12) for c in range(3)) for y in range(10)]
    assert pixels(png(12, 10, rows)) == rows
    small = pixels(png_scale.scaled(png(12, 10, rows), 6, 10**6))
    assert (len(small), len(small[0])) == (5, 6 * 3)
    assert small[2][3 * 3 + 1] == sum(rows[y][x * 3 + 1] for y in (4, 5) for x in (6, 7)) // 4
    grey = png(4, 4, [bytes((10, 200) * 4)] * 4, colour=0, depth=16)
    assert pixels(png_scale.scaled(grey, 2, 10**6)) == [bytes((10, 10))] * 2
    indexed = png(4, 2, [bytes((0, 1, 1, 1))] * 2, colour=3, palette=bytes((0, 0, 0, 200, 100, 50)))
    assert pixels(png_scale.scaled(indexed, 2, 10**6)) == [bytes((100, 50, 25, 200, 100, 50))]
    for broken in (b"", png(4, 4, [bytes(4)] * 2, colour=0), png(4, 4, [bytes(4)] * 4, colour=0)[:40]):
        with pytest.raises((png_scale.Unreadable, struct.error, zlib.error, UnboundLocalError)):
            png_scale.scaled(broken, 2, 10**6)


async def test_an_image_that_is_too_large_is_scaled_on_a_host_without_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "python3", "exit 1")  # it has no Pillow
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    async with open_toolbox(tmp_path) as box:
        wide = box.write("wide.png", png(9000, 4, [bytes((200, 100, 50)) * 9000] * 4))
        image, note = await blocks(box, wide)
        data = base64.b64decode(image["source"]["data"])
        assert image_size(data) == (1800, 1) and set(pixels(data)[0]) == {200, 100, 50}
        assert note["text"] == "(The image has 9000 x 4 pixels; it is shown with 1800 x 1.)"
        jpeg = box.write("a.jpg", jpeg_of(9000))
        assert "Install ImageMagick there" in await box.error("Read", file_path=str(jpeg))


async def test_programs_of_the_host_scale_images_and_take_pages_out_of_documents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = jpeg_of(100)
    (tmp_path / "small").write_bytes(small)
    programs = tmp_path / "bin"
    programs.mkdir()
    shows = f"cat {tmp_path}/small"
    script(programs / "magick", f'[ "$1" = "jpeg:-[0]" ] && [ "$(head -c 2 | od -An -tx1)" = " ff d8" ] && {shows}')
    script(programs / "pdftoppm", f'[ "$2" -le 3 ] && [ "$(head -c 5)" = "%PDF-" ] && echo noise >&2 && {shows}')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    async with open_toolbox(tmp_path) as box:
        image, _ = await blocks(box, box.write("a.jpg", jpeg_of(9000)))
        assert base64.b64decode(image["source"]["data"]) == small
        path = box.write("a.pdf", document(5))
        shown = await blocks(box, path, pages="2-9")
        assert [each.get("text", each["type"]) for each in shown] == ["Page 2:", "image", "Page 3:", "image"]
        assert "fewer pages" in await box.error("Read", file_path=str(path), pages="4")


async def test_a_document_is_shown_whole_or_by_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    async with open_toolbox(tmp_path) as box:
        path = box.write("a.pdf", document(3))
        (block,) = await blocks(box, path)
        assert (block["type"], block["source"]["media_type"]) == ("document", "application/pdf")
        assert base64.b64decode(block["source"]["data"]) == document(3)
        assert "101 pages" in await box.error("Read", file_path=str(box.write("long.pdf", document(101))))
        assert "not complete" in await box.error("Read", file_path=str(box.write("cut.pdf", document(3)[:-6])))
        assert "Install poppler-utils" in await box.error("Read", file_path=str(path), pages="1-2")
        for bad in ("x", "0", "5-2", "1-21"):
            with pytest.raises(pdf.PagesRefused):
                pdf.read_pages(bad)
        assert [pdf.read_pages(each) for each in ("3", "1-5", "10-")] == [(3, 3), (1, 5), (10, 29)]


def test_pages_in_compressed_objects_are_counted() -> None:
    packed = zlib.compress(b"<< /Type /Page >> << /Type /Pages >> << /Type/Page/Parent 1 0 R >>")
    data = b"%PDF-1.7\n1 0 obj << /Type /ObjStm /Length 9 >>\nstream\n" + packed + b"\nendstream\n"
    assert pdf_pages.count_pages(data + b"2 0 obj << /Type /Page >>") == 3


def jpeg_of(size: int) -> bytes:
    return b"\xff\xd8\xff\xc0\0\x11\x08" + struct.pack(">HH", size, size) + b"\0" * 20 + b"\xff\xd9"


def document(pages: int) -> bytes:
    return b"%PDF-1.4\n" + b"1 0 obj << /Type /Page >> endobj\n" * pages + b"<< /Type /Pages >>\n%%EOF\n"


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


async def blocks(box: Toolbox, path: Path, **more: Any) -> list[Json]:
    result = await box("Read", file_path=str(path), **more)
    assert isinstance(result.content, list), result.content
    return result.content
