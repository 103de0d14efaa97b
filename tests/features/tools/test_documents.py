"""Large images and PDF documents, as Read shows them, and notebooks, as NotebookEdit changes them."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import Toolbox, open_toolbox
from tests.support.machine.programs import shell_script
from tests.support.model.model_script import Json

from ccb.remote.tools import document_programs, documents
from ccb.remote.tools.tool_contract import ToolRefused


async def test_without_programs_a_large_image_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shell_script(tmp_path / "bin" / "python3", "exit 1")  # it has no Pillow
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    async with open_toolbox(tmp_path) as box:
        said = await box.error("Read", file_path=str(box.write("a.jpg", jpeg_of(9000))))
        assert "Install ImageMagick or Pillow there" in said


async def test_programs_of_the_host_scale_images_and_cut_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = jpeg_of(100)
    (tmp_path / "small").write_bytes(small)
    programs, shows = tmp_path / "bin", f"cat {tmp_path}/small"
    shell_script(
        programs / "magick", f'[ "$1" = "jpeg:-[0]" ] && [ "$(head -c 2 | od -An -tx1)" = " ff d8" ] && {shows}'
    )
    shell_script(programs / "pdftoppm", f'[ "$2" -le 3 ] && [ "$(head -c 5)" = "%PDF-" ] && echo noise >&2 && {shows}')
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
            with pytest.raises(ToolRefused):
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


async def blocks(box: Toolbox, path: Path, **more: Any) -> list[Json]:
    result = await box("Read", file_path=str(path), **more)
    assert isinstance(result.content, list), result.content
    return result.content


BOOK: Json = {
    "cells": [
        {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": ["# Ä\n", "text"]},
        {"cell_type": "code", "execution_count": 3, "metadata": {"x": 1}, "outputs": [{"a": 1}], "source": "1 + 1"},
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


async def test_cells_are_replaced_inserted_and_deleted(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("n.ipynb", json.dumps(BOOK, indent=2, ensure_ascii=False) + "\n")
        assert "not been read" in str(await refused(box, path, cell_id="intro", new_source="x"))
        await box("Read", file_path=str(path))
        result = await box("NotebookEdit", notebook_path=str(path), cell_id="cell-1", new_source="2 + 2\n3")
        assert result.structured["cell_id"] == "cell-1" and result.structured["language"] == "python"
        text = path.read_text()
        cell = json.loads(text)["cells"][1]
        assert (cell["source"], cell["outputs"], cell["execution_count"]) == (["2 + 2\n", "3"], [], None)
        assert cell["metadata"] == {"x": 1} and text.endswith("}\n") and '\n  "cells"' in text and "Ä" in text
        insert = {"new_source": "new", "cell_type": "code", "edit_mode": "insert"}
        await box("NotebookEdit", notebook_path=str(path), cell_id="intro", **insert)
        await box("NotebookEdit", notebook_path=str(path), **{**insert, "cell_type": "markdown"})
        cells = json.loads(path.read_text())["cells"]
        assert [each["cell_type"] for each in cells] == ["markdown", "markdown", "code", "code"]
        assert cells[2]["source"] == ["new"] and len(cells[2]["id"]) == 8
        await box("NotebookEdit", notebook_path=str(path), cell_id="intro", new_source="", edit_mode="delete")
        assert "intro" not in path.read_text()
        path.write_text(json.dumps(BOOK))
        assert "modified since" in str(await refused(box, path, cell_id="intro", new_source="x"))


async def test_what_is_no_cell_or_no_notebook_is_refused(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("n.ipynb", json.dumps(BOOK))
        await box("Read", file_path=str(path))
        assert "no cell with the id 'nobody'" in str(await refused(box, path, cell_id="nobody", new_source="x"))
        assert "cell_id is needed" in str(await refused(box, path, new_source="x"))
        assert "cell_type is needed" in str(await refused(box, path, new_source="x", edit_mode="insert"))
        assert "not a notebook" in str(await refused(box, box.write("a.txt", "a"), cell_id="a", new_source="x"))
        broken = box.write("b.ipynb", '{"cells": [1]}')
        await box("Read", file_path=str(broken), offset=1, limit=10)
        assert "not a valid notebook" in str(await refused(box, broken, cell_id="a", new_source="x"))
        assert path.read_text() == json.dumps(BOOK)


async def refused(box: Toolbox, path: Path, **tool_input: Any) -> str:
    """Return why a call is refused, before or when it runs."""
    why = box.refusal("NotebookEdit", notebook_path=str(path), **tool_input)
    return why or await box.error("NotebookEdit", notebook_path=str(path), **tool_input)
