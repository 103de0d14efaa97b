"""No text of a foreign file or page takes a parser long. `make fuzz` tries many more (`tests/parsers/attacks.py`)."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

import pytest
from tests.parsers.attacks import Slow, fixed, is_parsed
from tests.parsers.parsers import PARSERS, replaced
from tests.remote.tools_kit import open_toolbox

from ccb.local.files.both_ends.copy_channel import CopyChannel
from ccb.remote.tools import document_programs
from ccb.remote.tools.input_schema import issues
from ccb.remote.tools.text_changes import compared, structured_patch
from ccb.remote.tools.tool_contract import ToolRefused
from ccb.remote.tools.web import to_markdown
from ccb.tunnel.wire.json_schema import tool_schema

CRLF = "ab\r\n" * 190_000


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("html", "<!" * 30_000),
        ("html", "<a b='" * 10_000 + '<a b="' * 10_000),
        ("html", "<a href=b>" * 20_000 + "x" + "</a>" * 20_000),
        ("html", "&#" + "9" * 200_000),
        ("one_edit", CRLF),
        ("one_edit", "\r" * 200_000),
        ("many_edits", "\r\n" + "a" * 150_000),
        ("long_edit", "\n" * 200_000),
        ("line_difference", "a\nb\na\nc\n" * 1_500),
        ("pdf", "/ObjStm stream\n" * 200_000),
        ("notebook", '{"cells":[' + '{"source":"x"},' * 120_000 + "{}]}"),
        ("image", "x" * 5_000_000),
        ("markdown", "a|b\n-|-\n" + "a|b\n" * 20_000),
        ("csharp", "\n" * 19_000),
        ("changed_lines", ("a" + " " * 1_900 + "\n") * 100),
        ("provider_lines", "\r" * 2_000_000),
        ("schema", "000000000000"),
        ("path_rule", "*a" * 100),
        ("path_rule", "**/a/" * 50),
        ("search_glob", "{a,b}" * 3 + "{" * 9_900),
    ],
)
def test_time_grows_with_the_size(name: str, text: str) -> None:
    parse, _, refusals = PARSERS[name]
    is_parsed(name, parse, text, refusals)


@pytest.mark.parametrize("name", [name for name, (_, _, refusals) in PARSERS.items() if refusals])
def test_some_texts_are_not_refused(name: str) -> None:
    """Otherwise the texts would try nothing but the refusal."""
    parse, language, refusals = PARSERS[name]
    assert any(is_parsed(name, parse, text, refusals) for text in fixed(language, 200))


def test_the_clock_of_these_tests_stops_what_is_slow() -> None:
    def forever(text: str) -> None:
        while True:
            pass

    with pytest.raises(Slow):
        is_parsed("forever", forever, "x", limit=0.05)


def test_line_feeds_of_a_long_file_with_crlf_are_replaced() -> None:
    data, count = replaced(b"ab\r\n" * 9_000, "\n", "\n\n", True)
    assert (data == b"ab\r\n\r\n" * 9_000, count) == (True, 9_000)
    assert replaced(b"a\r\nb\nc", "a\nb\n", "x\ny\n", False) == (b"x\r\ny\r\nc", 1)
    assert replaced(b"\r\n\n", "\n", "", True) == (b"", 2)


@pytest.mark.parametrize(
    ("data", "old", "new", "why"),
    [
        (b"a" * 300_000, "a", "b", "more than 200,000 places"),
        (b"a" * 100_000, "a", "b" * 1000, "more than 33,554,432 characters"),
    ],
)
def test_an_edit_that_is_too_large_is_refused(data: bytes, old: str, new: str, why: str) -> None:
    with pytest.raises(ToolRefused, match=why):
        replaced(data, old, new, True)


def test_texts_of_too_many_lines_are_not_compared() -> None:
    old, new = "\n" * 600_000, "x\n" * 600_000
    assert structured_patch(old, new) == []
    found = compared(old, new, 1000)
    assert (found["added"], found["removed"], found["patch"], found["complete"]) == (600_000, 600_000, [], False)


def test_a_page_is_cut_where_its_addresses_would_make_it_too_long() -> None:
    text, _ = to_markdown("<base href=http://x/" + "a" * 1500 + "/>" + "<a href=b>x</a>" * 5_000, "http://x/")
    assert len(text) < 1_100_000
    assert text.endswith("[... the page is cut here ...]")


@pytest.mark.parametrize(
    ("html", "markdown"),
    [
        ("<a href=http://x/y/>z</a>", "[z](http://x/y/)"),
        ("<A HREF='b?c&amp;d' title=\">\">z</A>!", "[z](http://e/b?c&d)!"),
        ("a<!-- <b> --><script>x<b></script >b", "ab"),
        ("1 < 2 &lt; 3 <3", "1 < 2 < 3 <3"),
        ("<svg/>a<br/>b", "a\nb"),
        ("<textarea><b></textarea>x", "<b>x"),
        ("<p>a<p b", "a"),
        ('<a href="b>x', "x"),
        ("&#99999999999;", "\ufffd"),
    ],
)
def test_odd_html(html: str, markdown: str) -> None:
    assert to_markdown(html, "http://e/")[0] == markdown


def test_a_pdf_that_unpacks_to_too_much_is_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_programs, "_MAX_UNPACKED", 4 << 20)
    whole = zlib.compress(bytes(3 << 20))
    for packed in (whole, whole[:-4] + bytes(4)):
        stream = b"/ObjStm stream\n" + packed + b"endstream\n"
        assert document_programs.count_pages(stream) == 0
        assert document_programs.count_pages(stream * 2) == -1


@pytest.mark.parametrize("deep", ["[" * 60_000, '{"a":' * 10_000])
def test_json_that_is_too_deep_is_refused_as_what_cannot_be_read(deep: str) -> None:
    data = b"m" + len(deep).to_bytes(4, "big") + deep.encode()
    pieces = [data[:5], data[5:]]
    with pytest.raises(ValueError, match="it is no message"):
        CopyChannel(lambda: pieces.pop(0), lambda data: None).next()


def test_the_choices_of_a_schema_are_counted_until_the_limit() -> None:
    shown = tool_schema({"anyOf": [{"required": ["a", "b"]}, {"required": ["b"]}]}).schema
    assert shown["required"] == ["b"]
    many = {"properties": {str(at): {} for at in range(60_000)}, "required": ["a"]}
    assert "required" not in tool_schema({"anyOf": [{"required": ["a"]}, many]}).schema


def test_an_input_with_many_issues_is_left_at_the_tenth() -> None:
    schema = {"items": {"enum": [str(at) for at in range(900)]}}
    is_parsed("issues", lambda text: issues([text] * 200_000, schema), "x")
    assert len(issues(["x"] * 20, schema)) == 10


def test_a_notebook_is_taken_apart_up_to_its_limits() -> None:
    image = {"data": {"image/png": "A" * 1_000_000}}
    pieces = document_programs.pieces(json.dumps({"cells": [{"outputs": [image] * 5}]}).encode())
    assert [piece[0] for piece in pieces] == ["cell", *["image"] * 3, *["images"] * 2]
    pieces = document_programs.pieces(json.dumps({"cells": [{"source": "x" * 100}] * 100_000}).encode())
    assert pieces[-1] == ["cut"]
    assert len(pieces) < 1000


async def test_a_notebook_of_many_cells_is_cut_and_a_deep_one_is_refused(tmp_path: Path) -> None:
    cells = [{"cell_type": "code", "source": "x"}] * 120_000
    async with open_toolbox(tmp_path) as box:
        path = box.write("n.ipynb", json.dumps({"cells": cells}))
        assert "the notebook is cut here" in await box.text("Read", file_path=str(path))
        deep = box.write("deep.ipynb", '{"cells":' + "[" * 1_000_000)
        assert "not a valid notebook" in await box.error("Read", file_path=str(deep))


async def test_a_notebook_of_too_many_values_is_not_changed(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("n.ipynb", '{"cells":[{"source":"x"}],"x":[' + "[]," * 200_000 + "0]}")
        await box("Read", file_path=str(path))
        error = await box.error("NotebookEdit", notebook_path=str(path), cell_id="cell-0", new_source="y")
        assert "too large to be changed" in error
