"""Files keep their encoding, byte order mark and line endings, and every tool says what it cannot read."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.tools_kit import Toolbox

from ccb.remote.system.text_encoding import text_of
from ccb.remote.tools.text_changes import replace_in
from ccb.remote.tools.tool_contract import Preview, ToolRefused

UTF16 = [pytest.param("utf-16-le", b"\xff\xfe", id="little"), pytest.param("utf-16-be", b"\xfe\xff", id="big")]


@pytest.mark.parametrize(("codec", "mark"), UTF16)
async def test_utf16_is_read_searched_edited_and_written_as_utf16(box: Toolbox, codec: str, mark: bytes) -> None:
    path = box.write("a.txt", mark + "größe\r\n表 = 1\r\n".encode(codec))
    text = await box.text("Read", file_path=str(path))
    assert text.startswith("1\tgröße\n2\t表 = 1\n\n[The file is in " + codec.upper())
    assert await box.text("Grep", pattern="größe|表", output_mode="content") == "a.txt:1:größe\na.txt:2:表 = 1"
    change = {"file_path": str(path), "old_string": "größe\n表", "new_string": "Maß\n紙"}
    preview = await box.tools["Edit"].preview(change, box.context)
    assert isinstance(preview, Preview) and preview.public["decoded"]
    assert "+Maß\r" in preview.public["patch"][0]["lines"]
    await box.text("Edit", **change)
    assert path.read_bytes() == mark + "Maß\r\n紙 = 1\r\n".encode(codec)
    said = await box.text("Write", file_path=str(path), content="neu\nzwei\n")
    assert path.read_bytes() == mark + "neu\r\nzwei\r\n".encode(codec)
    assert f"Kept as it was: {codec.upper()}, byte order mark, CRLF line endings." in said


async def test_a_long_utf16_file_is_read_and_searched_to_its_end(box: Toolbox) -> None:
    lines = "".join(f"line {n} é😀\n" for n in range(200_000))
    path = box.write("long.txt", (lines + "the needle\n").encode("utf-16"))
    assert "200001\tthe needle" in await box.text("Read", file_path=str(path), offset=199_990)
    assert "200001:the needle" in await box.text("Grep", pattern="needle$", output_mode="content")
    assert "long.txt" in await box.text("Grep", pattern=r"line 7 é😀\nline 8", multiline=True)


async def test_a_byte_order_mark_and_line_endings_survive_every_change(box: Toolbox) -> None:
    path = await box.seen("a.ps1", b"\xef\xbb\xbfone\r\ntwo\r\n")
    await box.text("Edit", file_path=str(path), old_string="one", new_string="1\n1.5")
    assert path.read_bytes() == b"\xef\xbb\xbf1\r\n1.5\r\ntwo\r\n"
    await box.text("Write", file_path=str(path), content="\ufeffnew\n")
    assert path.read_bytes() == b"\xef\xbb\xbfnew\r\n"
    assert await box.text("Grep", pattern="^new", output_mode="content") == "a.ps1:1:new"
    path = await box.seen("mixed.txt", b"a\r\nb\nc\r\nd\ne\r\n")
    await box.text("Edit", file_path=str(path), old_string="b\nc", new_string="B\nnew\nc")
    assert path.read_bytes() == b"a\r\nB\nnew\nc\r\nd\ne\r\n"
    await box.text("Edit", file_path=str(path), old_string="c\n", new_string="C\nd2\n")
    assert path.read_bytes() == b"a\r\nB\nnew\nC\r\nd2\r\nd\ne\r\n"


SHIFT_JIS = "ア = 表; x = 1\nA = B\n".encode("shift_jis")  # ア is 83 41, 表 is 95 5C


@pytest.mark.parametrize("old", ["A", "\\", "\\; x"])
async def test_half_of_a_character_is_never_replaced(box: Toolbox, old: str) -> None:
    path = await box.seen("legacy.c", SHIFT_JIS)
    for name, change in (
        ("Edit", {"old_string": old, "new_string": "B", "replace_all": True}),
        ("MultiEdit", {"edits": [{"old_string": old, "new_string": "B", "replace_all": True}]}),
    ):
        assert "may be a part of a character" in await box.error(name, file_path=str(path), **change)
    assert path.read_bytes() == SHIFT_JIS
    await box.text("Edit", file_path=str(path), old_string="x = 1\n", new_string="x = 2\n")
    assert path.read_bytes() == SHIFT_JIS.replace(b"1", b"2"), "ASCII text is edited"


@given(
    st.sampled_from(["shift_jis", "gb18030", "big5", "euc_jp", "euc_kr", "latin-1"]),
    st.text(alphabet="aA\\1 é表ア中한~|\n", max_size=20),
    st.text(alphabet="aA\\1 ~|", min_size=1, max_size=3),
)
def test_in_no_encoding_does_an_edit_touch_another_character(codec: str, text: str, old: str) -> None:
    text = text.encode(codec, "ignore").decode(codec)
    data = text.encode(codec)
    known = text_of(data)
    assert known is not None
    try:
        done = known.encoded(replace_in(known, old, "Z", True).text)
    except ToolRefused:
        return
    assert done.decode(known.codec or codec) == (known.text if known.codec else text).replace(old, "Z")


LATIN = "caf\xe9 = 1\n".encode("latin-1")


async def test_a_file_that_is_not_utf8_is_said_at_every_door(box: Toolbox) -> None:
    path = box.write("menu.txt", LATIN)
    box.write("utf8.txt", "café = 2\n")
    text = await box.text("Read", file_path=str(path))
    assert text.startswith("1\tcaf\ufffd = 1\n") and "not in UTF-8" in text and "iconv" in text
    text = await box.text("Grep", pattern="= 1", output_mode="content")
    assert text.startswith("menu.txt:1:caf\ufffd = 1\n") and "Not in UTF-8" in text and "in it: menu.txt." in text
    for name, change in (
        ("Edit", {"old_string": "caf\ufffd", "new_string": "cafe"}),
        ("Edit", {"old_string": "= 1", "new_string": "= é"}),
        ("MultiEdit", {"edits": [{"old_string": "caf", "new_string": "crème"}]}),
        ("Write", {"content": "cafe = 1\n"}),
    ):
        said = await box.error(name, file_path=str(path), **change)
        assert "not in UTF-8" in said and "iconv" in said and ("would lose" in said) is (name == "Write")
    assert path.read_bytes() == LATIN


@pytest.mark.parametrize("backend", ["rg", "neither"])
@pytest.mark.parametrize("pattern", ["café", r"caf\xe9", "caf[éè]", "(?i)CAFÉ"])
async def test_a_search_for_other_than_ascii_names_the_files_that_may_hide_it(
    box: Toolbox, monkeypatch: pytest.MonkeyPatch, backend: str, pattern: str
) -> None:
    box.write("menu.txt", b"x\n" * 100_000 + LATIN)
    box.write("utf8.txt", "café = 2\n")
    box.write("plain.txt", "cafe = 3\n")
    box.write("picture.bin", b"\x89\0\xff\xe9")
    which = box.context.host.which
    monkeypatch.setattr(box.context.host, "which", lambda name: which(name) if name == backend else None)
    text = await box.text("Grep", pattern=pattern)
    assert text.startswith("Found 1 file\nutf8.txt\n") and "shown in it: menu.txt." in text
    assert "UTF-8" not in await box.text("Grep", pattern="cafe|caff")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\x7fELF\0\0needle", "It is an ELF executable"),
        (b"a\0needle", "such as `file`, `strings` or `xxd`"),
        (b"\xff\xfeo\0n\0e\0\n", "damaged UTF-16"),
        (b"\xff\xfe" + b"o\0" * 5000 + b"\0\xd8\n\0", "damaged UTF-16"),
    ],
)
async def test_what_is_no_text_is_said_to_be_none_and_not_to_be_read_again(box: Toolbox, data: bytes, why: str) -> None:
    path = box.write("a.out", data)
    assert why in await box.error("Read", file_path=str(path))
    assert "binary file, and was not searched" in await box.text("Grep", pattern="needle", path=str(path))
    for name, change in (("Edit", {"old_string": "o", "new_string": "x"}), ("Write", {"content": "x"})):
        said = await box.unasked(name, file_path=str(path), **change)
        assert why in said and "Read it first" not in said
        assert said == await box.error(name, file_path=str(path), **change)


async def test_write_refuses_what_stands_for_text_that_read_has_cut(box: Toolbox) -> None:
    path = box.write("long.json", "x" * 5000 + "\n")
    shown = (await box.text("Read", file_path=str(path))).removeprefix("1\t")
    assert "could not show" in await box.error("Write", file_path=str(path), content=shown + "\n")
    assert path.stat().st_size == 5001


BOOK = {"cells": [{"cell_type": "code", "id": "a", "source": ["x = 'é'\n"], "outputs": []}], "nbformat": 4}


@pytest.mark.parametrize(("codec", "mark"), [*UTF16, pytest.param("utf-8", b"\xef\xbb\xbf", id="utf-8 with a mark")])
@pytest.mark.parametrize("indent", ["\t", "    ", 1, None])
async def test_a_notebook_keeps_encoding_line_endings_and_indentation(
    box: Toolbox, codec: str, mark: bytes, indent: str | int | None
) -> None:
    text = json.dumps(BOOK, ensure_ascii=False, indent=indent)
    path = await box.seen("n.ipynb", mark + text.replace("\n", "\r\n").encode(codec))
    await box.text("NotebookEdit", notebook_path=str(path), cell_id="a", new_source="x = 'ß'\n")
    changed = text.replace("é", "ß").replace('"outputs"', '"execution_count": null, "outputs"')
    written = path.read_bytes().removeprefix(mark).decode(codec)
    assert path.read_bytes().startswith(mark) and written.count("\n") == written.count("\r\n")
    assert written.replace("\r\n", "\n") == json.dumps(json.loads(written), ensure_ascii=False, indent=indent)
    assert json.loads(written) == json.loads(changed)
