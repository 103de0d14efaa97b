"""Read and LS: what the model is shown, and what it is told when there is nothing to show."""

from __future__ import annotations

import base64
import json
import os
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.tools_kit import Toolbox

from ccb.remote.system.host import Host
from ccb.remote.tools.read import TextRange, read_range
from ccb.remote.tools.toolset import default_tools

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="
)


async def test_lines_come_with_their_numbers(box: Toolbox) -> None:
    path = box.write("a", b"\xef\xbb\xbfalpha\r\nbeta\r\n")
    result = await box("Read", file_path=str(path))
    assert result.content == "1\talpha\n2\tbeta"
    counts = {"numLines": 2, "startLine": 1, "totalLines": 2}
    assert result.structured == {"type": "text", "file": {"filePath": str(path), "content": "alpha\nbeta", **counts}}
    assert "empty" in await box.text("Read", file_path=str(box.write("b", "")))
    assert "Name:" in await box.text("Read", file_path="/proc/self/status"), "it has content though no size"


async def test_a_range_tells_how_to_go_on(box: Toolbox) -> None:
    path = box.write("a", "".join(f"line {n}\n" for n in range(1, 5001)))
    text = await box.text("Read", file_path=str(path), offset=4, limit=2)
    assert text == "4\tline 4\n5\tline 5\n\n[the range ends at line 5 of 5,000 lines; go on with offset=6]"
    assert await box.text("Read", file_path=str(path), offset=5000) == "5000\tline 5000"
    assert "only 5,000 lines" in await box.error("Read", file_path=str(path), offset=5001)
    end = "\n2000\tline 2000\n\n[the range ends at line 2000 of 5,000 lines; go on with offset=2001]"
    assert (await box.text("Read", file_path=str(path))).endswith(end)


async def test_long_lines_and_long_results_are_cut_and_say_so(box: Toolbox) -> None:
    path = box.write("a", "é" * 3000 + "\nshort\n")
    lines = (await box.text("Read", file_path=str(path))).split("\n")
    assert lines[0] == "1\t" + "é" * 2000 + "… [line cut: it has 6,000 bytes]"
    assert lines[1] == "2\tshort"
    wide = box.write("b", ("y" * 1000 + "\n") * 1000)
    text = await box.text("Read", file_path=str(wide))
    assert len(text) <= 100_200
    assert "the result is full at line 99 of 1,000 lines; go on with offset=100" in text


@pytest.mark.parametrize("char", ["漢", '"', "\x01"])
async def test_a_result_stays_small_on_the_wire_too(box: Toolbox, char: str) -> None:
    path = box.write("a", (char * 900 + "\n") * 1000)
    result = await box("Read", file_path=str(path))
    assert len(json.dumps(result.content, ensure_ascii=False).encode()) < 151_000
    assert len(json.dumps(result.structured, ensure_ascii=False).encode()) < 50_000


async def test_a_huge_file_is_streamed(box: Toolbox) -> None:
    path = box.root / "huge"
    with path.open("wb") as file:
        file.write(b"first\n")
        file.truncate(300 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "binary" in await box.error("Read", file_path=str(path))
    with path.open("wb") as file:
        for _ in range(120):
            file.write(b"z" * (1 << 20))
        file.write(b"\nlast\n")
    text = await box.text("Read", file_path=str(path))
    assert text.endswith("2\tlast")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 30_000


async def test_after_a_compaction_everything_is_shown_again(box: Toolbox) -> None:
    path = box.write("a", "one\n")
    await box.text("Read", file_path=str(path))
    box.context.files.forget_views()
    assert await box.text("Read", file_path=str(path)) == "1\tone"
    await box.text("Edit", file_path=str(path), old_string="one", new_string="two")
    assert await box.text("Read", file_path=str(path)) == "1\ttwo"


async def test_images_are_image_blocks(box: Toolbox) -> None:
    path = box.write("picture.txt", PNG)
    result = await box("Read", file_path=str(path))
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(PNG).decode()}
    assert result.content == [{"type": "image", "source": source}]
    assert result.structured["file"] == {"filePath": str(path), "type": "image/png", "originalSize": len(PNG)}
    big = box.write("big.jpg", _jpeg(10, 10)[:-2] + b"\0" * 4_000_000 + b"\xff\xd9")
    assert "at most 3,932,160" in await box.error("Read", file_path=str(big))


async def test_notebooks_are_cells_and_outputs(box: Toolbox) -> None:
    image = base64.b64encode(PNG).decode()
    outputs = [
        {"output_type": "stream", "text": ["a\n", "b" * 20_000]},
        {"output_type": "display_data", "data": {"image/png": image}},
        {"output_type": "error", "traceback": ["\x1b[31mValueError\x1b[0m"]},
    ]
    cells = [
        {"cell_type": "markdown", "id": "m", "source": ["# Title\n", "text"]},
        {"cell_type": "code", "id": "c", "source": "plot()", "outputs": outputs},
    ]
    path = box.write("n.ipynb", json.dumps({"metadata": {"language_info": {"name": "python"}}, "cells": cells}))
    result = await box("Read", file_path=str(path))
    assert isinstance(result.content, list)
    assert [block["type"] for block in result.content] == ["text", "image", "text"]
    first, last = result.content[0]["text"], result.content[2]["text"]
    assert first.startswith(
        '<cell id="m" type="markdown"># Title\ntext</cell>\n<cell id="c">plot()</cell>\n<output>a\n'
    )
    assert "[... output cut: 20,002 characters ...]" in first
    assert last == "<output>ValueError</output>"
    broken = box.write("broken.ipynb", "[1")
    assert "not a valid notebook" in await box.error("Read", file_path=str(broken))
    assert await box.text("Read", file_path=str(broken), offset=1) == "1\t[1"


async def test_what_is_no_file_is_refused_at_once_and_a_missing_one_has_near_names(box: Toolbox) -> None:
    assert box.refusal("Read", file_path="a\0b") is not None
    assert box.refusal("Read", file_path="  ") is not None
    assert box.refusal("Read") == "the required parameter `file_path` is missing"
    os.mkfifo(box.root / "pipe")
    for path in ("/dev/zero", "/dev/tty", str(box.root / "pipe")):
        assert "only files" in await box.error("Read", file_path=path)
    assert "Use LS" in await box.error("Read", file_path=str(box.root))
    box.write("src/main.py")
    text = await box.error("Read", file_path="src/main.ts")
    assert text == f"File does not exist: {box.root}/src/main.ts. Did you mean {box.root}/src/main.py?"
    assert str(box.root) in await box.error("Read", file_path="/nowhere/at/all")
    (box.root / "dang").symlink_to("/nowhere/at/all")
    for tool, key in (("Read", "file_path"), ("LS", "path"), ("Grep", "path")):
        more = {"pattern": "x"} if tool == "Grep" else {}
        said = await box.error(tool, **{key: str(box.root / "dang"), **more})
        assert said == f"{box.root}/dang is a link to /nowhere/at/all, which does not exist."


async def test_ls_lists_one_directory(box: Toolbox) -> None:
    box.write("b.txt")
    box.write(".hidden")
    box.write("dir/x")
    (box.root / "link").symlink_to("b.txt")
    assert await box.text("LS", path=str(box.root)) == ".hidden\nb.txt\ndir/\nlink -> b.txt"
    assert await box.text("LS", path=str(box.root), ignore=["*.txt", ".*"]) == "dir/\nlink -> b.txt"
    assert "not a directory" in await box.error("LS", path=str(box.root / "b.txt"))
    (box.root / "none").mkdir()
    assert "empty" in await box.text("LS", path=str(box.root / "none"))
    for number in range(1005):
        box.write(f"many/{number:04d}")
    text = await box.text("LS", path=str(box.root / "many"))
    assert text.endswith("0999\n[... 5 more entries; use Glob with a pattern ...]")


def test_reading_tools_and_only_those_are_read_only() -> None:
    read_only = {tool.name for tool in default_tools() if tool.name != "Bash" and tool.is_read_only({})}
    web = {"WebFetch", "WebSearch"}
    lists = {"TaskGet", "TaskList", "TodoWrite"}
    assert read_only == {"BashOutput", "Glob", "Grep", "LS", "Read", "Task", "TaskOutput", *lists, *web}


@given(
    st.lists(st.sampled_from(["", "a", "bb" * 10, "é", "x" * 2500]), max_size=30),
    st.booleans(),
    st.integers(1, 35),
    st.integers(1, 10),
)
async def test_any_range_is_that_slice_of_the_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ended: bool, offset: int, limit: int
) -> None:
    path = tmp_path_factory.mktemp("range") / "a"
    text = "\n".join(lines) + ("\n" if ended and lines else "")
    path.write_text(text)
    expected = text.split("\n")
    if expected[-1] == "":
        expected.pop()
    found = await read_range(Host(), str(path), offset, limit)
    wanted = expected[offset - 1 : offset - 1 + limit]
    assert [line[:2000] for line in found.lines] == [line[:2000] for line in wanted]
    assert (found.total, bool(found.digest)) == (len(expected), True)


async def test_an_unchanged_range_is_not_shown_twice(box: Toolbox) -> None:
    path = box.write("a", "one\ntwo\n", age=100)
    await box.text("Read", file_path=str(path))
    again = await box("Read", file_path=str(path))
    assert "unchanged" in str(again.content) and again.structured["type"] == "file_unchanged"
    assert await box.text("Read", file_path=str(path), offset=2) == "2\ttwo"
    status = path.stat()
    path.write_text("six\nsix\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))  # as `cp -p`, `tar x` and `touch -r` do
    assert await box.text("Read", file_path=str(path)) == "1\tsix\n2\tsix"


JPEG = b"\xff\xd8\xff\xe0\0\x04ab\xff\xff\xc2\0\x0b\x08%b%b" + b"\0" * 6 + b"\xff\xda\0\x02ab\xff\xd9"
WEBP = {
    "lossy": "UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA",
    "lossless": "UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==",
}


def _jpeg(width: int, height: int) -> bytes:
    return JPEG % (height.to_bytes(2, "big"), width.to_bytes(2, "big"))


@pytest.mark.parametrize(
    "image",
    [
        _jpeg(8000, 10),
        base64.b64decode("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"),
        *map(base64.b64decode, WEBP.values()),
        b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\x0f\0\0\x0f\0\0",
        PNG + b"something behind it",
    ],
)
async def test_good_images_are_shown(box: Toolbox, image: bytes) -> None:
    result = await box("Read", file_path=str(box.write("x", image)))
    assert isinstance(result.content, list)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        (_jpeg(8001, 10), "8,001 x 10 pixels"),
        (_jpeg(10, 9000), "10 x 9,000 pixels"),
        (PNG[:16] + b"\0\0\x27\x10" + PNG[20:], "10,000 x"),
        (b"RIFF\x16\0\0\0WEBPVP8X\x0a\0\0\0\0\0\0\0\xff\xff\0\x0f\0\0", "65,536 x 16"),
        (PNG[:-20], "damaged"),
        (PNG[:20], "damaged"),
        (b"\x89PNG\r\n\x1a\nrubbish", "damaged"),
        (_jpeg(1, 1)[:-2], "damaged"),
        (b"\xff\xd8\xff", "damaged"),
        (b"\xff\xd8\xff" + b"\xff" * 100, "damaged"),
        (b"GIF89a\1", "damaged"),
        (b"GIF89a" + b"\0" * 20 + b"\x3b", "0 x 0"),
        (base64.b64decode(WEBP["lossy"])[:-4], "damaged"),
        (b"RIFF\0\0\0\0WEBPVP8L", "damaged"),
        (b"RIFF\0\0\0\0WEBP", "damaged"),
    ],
)
@pytest.mark.quick_rows(5)
async def test_no_image_that_the_api_refuses_gets_into_the_history(box: Toolbox, image: bytes, reason: str) -> None:
    assert reason in await box.error("Read", file_path=str(box.write("x", image)))


def test_the_lines_behind_a_range_are_only_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    add = TextRange._add

    def counted(self: TextRange, part: bytes) -> None:
        looked.append(len(part))
        add(self, part)

    monkeypatch.setattr(TextRange, "_add", counted)
    found = TextRange(2, 2)
    for block in (b"one\ntwo\nthree\n" + b"\n" * 1000 + b"e", b"nd"):
        found.feed(block)
    found.finish("digest")
    assert (found.lines, found.total, looked) == (["two", "three"], 1004, [3, 3, 5])
