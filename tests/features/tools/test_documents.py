"""Large images and PDF documents, as Read shows them."""

from __future__ import annotations

import base64
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import Toolbox, open_toolbox

from ccb.remote.tools import document_programs, documents

Json = dict[str, Any]


async def test_an_image_that_is_too_large_is_refused_on_a_host_without_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    script(tmp_path / "bin" / "python3", "exit 1")  # it has no Pillow
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    async with open_toolbox(tmp_path) as box:
        said = await box.error("Read", file_path=str(box.write("a.jpg", jpeg_of(9000))))
        assert "Install ImageMagick or Pillow there" in said


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
            with pytest.raises(documents.PagesRefused):
                documents.read_pages(bad)
        assert [documents.read_pages(each) for each in ("3", "1-5", "10-")] == [(3, 3), (1, 5), (10, 29)]


def test_pages_in_compressed_objects_are_counted() -> None:
    packed = zlib.compress(b"<< /Type /Page >> << /Type /Pages >> << /Type/Page/Parent 1 0 R >>")
    data = b"%PDF-1.7\n1 0 obj << /Type /ObjStm /Length 9 >>\nstream\n" + packed + b"\nendstream\n"
    assert document_programs.count_pages(data + b"2 0 obj << /Type /Page >>") == 3


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
