"""Edit, MultiEdit, Write: only what was seen, exactly, once, in one step."""

from __future__ import annotations

import asyncio
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.remote.tools_kit import Toolbox, open_toolbox

from ccb.remote.system.regular_files import FileInfo, FileKind
from ccb.remote.tools.text_changes import MAX_PREVIEW, editable, replace_in, structured_patch
from ccb.remote.tools.tool_contract import CallContext, Preview, ToolRefused, UpcomingChange
from ccb.remote.tools.tool_state import FileState
from ccb.tunnel.wire.frames import Json


async def foretold(box: Toolbox, tool: str, **tool_input: Any) -> Preview:
    preview = await box.tools[tool].preview(tool_input, box.context)
    assert preview is not None
    return preview


def _one(old: str, new: str) -> Json:
    return {"old_string": old, "new_string": new}


def _change(tool: str, old: str, new: str, content: str) -> Json:
    """Return the input by which a tool changes one text, or writes the whole file."""
    one = _one(old, new)
    return {"Edit": one, "MultiEdit": {"edits": [one]}, "Write": {"content": content}}[tool]


async def test_an_edit_replaces_the_text_and_tells_the_client_how(box: Toolbox) -> None:
    path = await box.seen("a.py", "one\ntwo\nthree\n")
    path.chmod(0o750)
    os.utime(path, (1, 1))
    result = await box("Edit", file_path=str(path), **_one("two", "2"))
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("one\n2\nthree\n", 0o750)
    assert result.content == f"The file {path} has been updated successfully."
    lines = [" one", "-two", "+2", " three"]
    assert result.structured == {
        "filePath": str(path),
        "oldString": "two",
        "newString": "2",
        "originalFile": "one\ntwo\nthree\n",
        "structuredPatch": [{"oldStart": 1, "oldLines": 3, "newStart": 1, "newLines": 3, "lines": lines}],
        "userModified": False,
        "replaceAll": False,
    }


@pytest.mark.parametrize("tool", ["Edit", "Write", "MultiEdit"])
async def test_a_file_that_was_not_read_is_not_changed_and_nobody_is_asked(box: Toolbox, tool: str) -> None:
    path = box.write("a", "text")
    change = _change(tool, "text", "x", "x")
    assert "has not been read" in await box.unasked(tool, file_path=str(path), **change)
    assert "has not been read" in await box.error(tool, file_path=str(path), **change)
    assert path.read_text() == "text"


async def test_two_edits_at_once_never_lose_one(box: Toolbox) -> None:
    path = await box.seen("a", "one two")
    results = await asyncio.gather(
        box.run("Edit", file_path=str(path), old_string="one", new_string="1"),
        box.run("Edit", file_path=str(path), old_string="two", new_string="2"),
    )
    done = [result for result in results if not result.is_error]
    expected = {1: {"1 two", "one 2"}, 2: {"1 2"}}
    assert path.read_text() in expected[len(done)]


async def test_an_ambiguous_text_is_refused_with_its_count(box: Toolbox) -> None:
    path = await box.seen("a", "x x x")
    change = {"file_path": str(path), **_one("x", "y")}
    assert "Found 3 matches" in await box.unasked("Edit", **change)
    assert "occurrences" in await box.text("Edit", **change, replace_all=True)
    assert path.read_text() == "y y y"


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [("Text", "x", "not found"), ("`text`", "x", "not found"), ("text", "text", "same"), ("", "\udfff", "surrogate")],
)
async def test_an_impossible_edit_is_refused_before_anyone_is_asked(box: Toolbox, old: str, new: str, why: str) -> None:
    path = await box.seen("a", "text")
    assert why in await box.unasked("Edit", file_path=str(path), old_string=old, new_string=new)


async def test_an_empty_old_string_creates_a_file_and_never_replaces_one(box: Toolbox) -> None:
    path = box.root / "sub" / "new"
    assert "created" in await box.text("Edit", file_path=str(path), old_string="", new_string="hi\n")
    assert path.read_text() == "hi\n"
    assert "already has content" in await box.error("Edit", file_path=str(path), old_string="", new_string="other")
    assert path.read_text() == "hi\n"


async def test_write_writes_the_bytes_given(box: Toolbox) -> None:
    path = await box.seen("a.sh", b"old\n")
    result = await box("Write", file_path=str(path), content="#!/bin/sh\r\necho\n")
    assert path.read_bytes() == b"#!/bin/sh\r\necho\n"
    assert result.structured["type"] == "update"
    assert result.structured["originalFile"] == "old\n"
    created = await box("Write", file_path=str(box.root / "b"), content="x\r\n")
    assert (box.root / "b").read_bytes() == b"x\r\n"
    assert (created.structured["type"], created.structured["originalFile"]) == ("create", None)


async def test_what_cannot_be_written_is_a_clear_error(box: Toolbox) -> None:
    assert "directory" in await box.error("Write", file_path=str(box.root), content="x")
    assert "device" in await box.error("Write", file_path="/dev/null", content="x")
    assert "directory" in (box.refusal("Write", file_path=f"{box.root}/", content="x") or "")
    assert "surrogate" in (box.refusal("Write", file_path="/tmp/x", content="a\ud800") or "")
    text = await box.error("Write", file_path="/proc/nowhere/x", content="x")
    assert text.startswith("/proc/nowhere/x: ")
    box.write("file", "x")
    assert await box.error("Write", file_path="file/x", content="x") == "file/x: Not a directory"


async def test_multi_edit_makes_all_edits_or_none(box: Toolbox) -> None:
    path = await box.seen("a", "one two three")
    text = await box.error("MultiEdit", file_path=str(path), edits=[_one("one", "1"), _one("four", "4")])
    assert text == "No edit was made. Edit 2 of 2: String to replace not found in file.\nString: four"
    assert path.read_text() == "one two three"
    await box.text("MultiEdit", file_path=str(box.root / "new"), edits=[_one("", "a b"), _one("b", "c")])
    assert (box.root / "new").read_text() == "a c"


async def test_messages_stay_small_whatever_the_file(box: Toolbox) -> None:
    path = await box.seen("big.txt", "".join(f"line {i} \x01é\n" for i in range(100_000)))
    result = await box("Edit", file_path=str(path), old_string="line ", new_string="row ", replace_all=True)
    assert len(json.dumps(result.structured)) < 200_000
    result = await box("Write", file_path=str(path), content="\x01" * 1_000_000)
    assert len(json.dumps(result.structured)) < 200_000
    assert path.stat().st_size == 1_000_000


_TEXT = st.text(alphabet="ab\n é", max_size=30)


@given(st.lists(st.sampled_from(["a", "b", "\n", "\r\n", "é", " "]), max_size=40), _TEXT, _TEXT)
def test_what_an_edit_does_to_lf_text_it_does_to_any_endings(parts: list[str], old: str, new: str) -> None:
    text = "".join(parts)
    plain = text.replace("\r\n", "\n")
    count = plain.count(old) if old else 0
    if count == 0 or old == new:
        with pytest.raises(ToolRefused):
            replace_in(editable(text.encode()), old, new, True)
        return
    done = replace_in(editable(text.encode()), old, new, True)
    assert len(done.spans) == count
    assert done.text.replace("\r\n", "\n") == plain.replace(old, new)
    if "\n" not in text.replace("\r\n", "") and "\r\n" in text:
        assert "\n" not in done.text.replace("\r\n", "")
    if "\r\n" not in text:
        assert "\r" not in done.text


@given(st.lists(st.sampled_from("abc"), max_size=40), st.lists(st.sampled_from("abc"), max_size=40))
def test_a_patch_leads_from_the_old_lines_to_the_new(old: list[str], new: list[str]) -> None:
    before, after = "".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new)
    lines = list(old)
    shift = 0
    for hunk in structured_patch(before, after):
        at = hunk["oldStart"] - 1 + shift
        assert hunk["newStart"] - 1 == at
        taken = [line[1:] for line in hunk["lines"] if line[0] != "+"]
        given_ = [line[1:] for line in hunk["lines"] if line[0] != "-"]
        assert lines[at : at + hunk["oldLines"]] == taken
        assert len(given_) == hunk["newLines"]
        lines[at : at + hunk["oldLines"]] = given_
        shift += len(given_) - len(taken)
    assert lines == new


CURLY = "He said “it’s (‘fine’)” twice.\r\nend “it’s”\r\n"
CHANGES: list[tuple[str, Json, str, str]] = [
    ("Edit", _one("two", "2"), "one\ntwo\nthree\n", "one\n2\nthree\n"),
    ("Edit", {**_one("o", "0"), "replace_all": True}, "o\r\nx\r\no", "0\r\nx\r\n0"),
    ("Edit", _one("one\ntwo", "1\n1.5\n2"), "one\r\ntwo\r\nthree\r\n", "1\r\n1.5\r\n2\r\nthree\r\n"),
    (
        "Edit",
        _one("said \"it's ('fine')\" twice.\nend", "says \"don't ('worry')\".\nend"),
        CURLY,
        "He says “don’t (‘worry’)”.\r\nend “it’s”\r\n",
    ),
    ("Edit", _one('end "it\'s"', "end"), CURLY, CURLY.replace(" “it’s”", "")),
    ("Edit", _one("‘a’, “b”", "‘c’, “d”"), "print('a', \"b\")\n", "print('c', \"d\")\n"),
    ("MultiEdit", {"edits": [_one("a", "b"), _one("b", "c")]}, "a\n", "c\n"),
    ("Write", {"content": "one\nthree\n"}, "one\ntwo\nthree\n", "one\nthree\n"),
    ("Write", {"content": "one\n2\n"}, "one\r\n", "one\r\n2\r\n"),
    ("Write", {"content": "one\n2\n3\r\n"}, "one\r\n", "one\n2\n3\r\n"),
    ("Write", {"content": "one"}, "one\n", "one"),
]


@pytest.mark.parametrize(("tool", "change", "before", "after"), CHANGES)
async def test_the_change_is_made_as_shown(box: Toolbox, tool: str, change: Json, before: str, after: str) -> None:
    path = await box.seen("a.txt", before)
    call = {"file_path": str(path), **change}
    shown = (await foretold(box, tool, **call)).public
    assert path.read_bytes() == before.encode(), "nothing is changed yet"
    assert (shown["created"], shown["complete"], shown["decoded"], shown["path"]) == (False, True, True, "")
    assert shown["lines"] == len(before.splitlines())
    done = await box(tool, **call)
    assert path.read_bytes() == after.encode()
    assert done.structured["structuredPatch"] == shown["patch"] != []


async def test_what_is_foretold_of_new_files_links_and_line_ends(box: Toolbox) -> None:
    for tool, change in (("Write", {"content": "x\n"}), ("Edit", _one("", "x\n"))):
        assert (await foretold(box, tool, file_path=str(box.root / "new" / tool), **change)).public["created"]
        assert not (box.root / "new").exists()
    path = await box.seen("real.txt", "one\ntwo")
    (box.root / "link.txt").symlink_to(path)
    call = {"file_path": str(box.root / "link.txt"), "content": "one\r\ntwo\n"}
    shown = (await foretold(box, "Write", **call)).public
    lines = ["-one", "-two", "\\ No newline at end of file", "+one\r", "+two"]
    assert (shown["path"], shown["patch"][0]["lines"]) == (str(path), lines)


async def test_a_preview_of_a_large_change_is_bounded_and_counts_the_rest(box: Toolbox) -> None:
    path = await box.seen("a.txt", "x\n" * 200_000)
    shown = (await foretold(box, "Edit", file_path=str(path), **_one("x", "y"), replace_all=True)).public
    assert (shown["complete"], shown["added"], shown["removed"], shown["lines"]) == (False, 200_000, 200_000, 200_000)
    assert len(json.dumps(shown)) <= MAX_PREVIEW + 500


@pytest.mark.parametrize("tool", ["Edit", "MultiEdit", "Write"])
@pytest.mark.parametrize("meanwhile", ["read again", "link moved", "created", "removed"])
async def test_an_approval_counts_only_for_the_version_that_was_shown(box: Toolbox, tool: str, meanwhile: str) -> None:
    path, other = await box.seen("a.txt", "one two\n"), await box.seen("b.txt", "one two\n")
    link = box.root / "link.txt"
    link.symlink_to(path)
    if meanwhile == "created":
        path.unlink()
    call = {"file_path": str(link), **_change(tool, "" if meanwhile == "created" else "one", "1", "1")}
    preview = await foretold(box, tool, **call)
    if meanwhile == "link moved":
        link.unlink()
        link.symlink_to(other)
    elif meanwhile == "removed":
        path.unlink()
    else:
        path.write_text("one three\n" if meanwhile == "read again" else "")
        await box("Read", file_path=str(path))
    kept = {each: each.read_bytes() for each in (path, other) if each.exists()}
    result = await box.tools[tool].call(call, box.context.for_call(CallContext(approved=preview.version)))
    assert result.is_error
    if meanwhile != "removed" or tool == "Write":
        assert "modified since the user was asked" in str(result.content)
    assert {each: each.read_bytes() for each in (path, other) if each.exists()} == kept


SEEN = "import os\nimport sys\n\n\ndef one():\n    return 1\n\n\ndef two():\n    return 2\n"
FORMATTED = "import sys\n\n\ndef one() -> int:\n    return 1\n\n\ndef two():\n    return 2\n"


@pytest.mark.parametrize("tool", ["Edit", "MultiEdit"])
async def test_an_edit_is_made_where_a_formatter_has_changed_other_lines(box: Toolbox, tool: str) -> None:
    path = await box.seen("a.py", SEEN)
    path.write_text(FORMATTED)
    first, second = _one("return 1", "return 10"), _one("return 2", "return 20")
    change: Json = {**first} if tool == "Edit" else {"edits": [first, second]}
    preview = await foretold(box, tool, file_path=str(path), **change)
    assert preview.public["removed"] == (1 if tool == "Edit" else 2)
    text = await box.text(tool, file_path=str(path), **change)
    assert path.read_text() == FORMATTED.replace("1", "10").replace("2", "2" if tool == "Edit" else "20")
    assert "had changed elsewhere since you saw it:\n@@ -1,8 +1,7 @@\n-import os\n import sys\n" in text
    assert "+def one() -> int:\n" in text and "return 10" not in text, "only what others have changed is shown"
    assert "elsewhere" not in await box.text("Edit", file_path=str(path), **_one("import sys", "import sys, os"))


@pytest.mark.parametrize(
    ("seen", "present", "after"),
    [
        ("a  \nx = 1  \nb  \n", "a\nx = 1\nb\n", "a\nx = 3\nb\n"),
        ("a\nx = 1\nb\n", "\ta\n\tx = 1\n\tb\n", "\ta\n\tx = 3\n\tb\n"),
        ("a\nx = 1\nb", "a\r\nx = 1\r\nb\r\n", "a\r\nx = 3\r\nb\r\n"),
    ],
    ids=["blanks at the ends", "indentation", "line endings"],
)
async def test_white_space_that_is_formatted_is_no_conflict(box: Toolbox, seen: str, present: str, after: str) -> None:
    path = await box.seen("a", seen)
    path.write_bytes(present.encode())
    assert "elsewhere" in await box.text("Edit", file_path=str(path), **_one("x = 1", "x = 3"))
    assert path.read_bytes() == after.encode()


@pytest.mark.parametrize(
    ("seen", "present"),
    [
        pytest.param("[a]\nx = 1\n[b]\ny = 2\n", "[a]\nx = 2\n[b]\nx = 1\n", id="it stands elsewhere now"),
        pytest.param("a\nx = 1\nb\n", "a\nx = 1\nb\nx = 1\n", id="it stands there twice now"),
        pytest.param("a\nx = 1\nb\n", "a\nx = 10\nb\n", id="its line has changed"),
        pytest.param("a\nx = 1\nb\n", "a\nb\n", id="it is gone"),
        pytest.param("x = 1\nb\n", "b\nx = 1\n", id="it has moved"),
        pytest.param("a\nx = 1\nb\n", "a\nx=1\nb\nx = 1\n", id="it was formatted, and stands elsewhere now"),
    ],
)
async def test_an_edit_of_a_place_that_has_changed_asks_to_read_again(box: Toolbox, seen: str, present: str) -> None:
    path = await box.seen("a.ini", seen)
    path.write_text(present)
    change = {"file_path": str(path), **_one("x = 1", "x = 3")}
    assert "modified since it was read" in await box.unasked("Edit", **change)
    assert "modified since it was read" in await box.error("Edit", **change)
    edits = [_one("a", "A"), _one("x = 1", "x = 3")]
    assert "modified since it was read" in await box.error("MultiEdit", file_path=str(path), edits=edits)
    assert path.read_text() == present


async def test_all_places_are_replaced_only_if_all_stand_where_they_stood(box: Toolbox) -> None:
    path = await box.seen("a", "x\na\nb\nx\n")
    path.write_text("top\nx\na\nb\nx\n")
    await box.text("Edit", file_path=str(path), old_string="x", new_string="y", replace_all=True)
    assert path.read_text() == "top\ny\na\nb\ny\n"
    path.write_text("top\ny\na\nb\ny\nmore\ny\n")
    assert "modified since" in await box.error("Edit", file_path=str(path), **_one("y", "z"), replace_all=True)


async def test_a_save_with_the_old_size_and_times_is_a_change_all_the_same(box: Toolbox) -> None:
    path = await box.seen("a", "one\ntwo\n")
    times = path.stat()
    path.write_text("ONE\ntwo\n")
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert "modified since" in await box.error("Write", file_path=str(path), content="x")
    assert "-one\n+ONE\n" in await box.text("Edit", file_path=str(path), **_one("two", "2"))
    assert path.read_text() == "ONE\n2\n"


async def test_what_was_changed_elsewhere_is_shown_within_a_limit(box: Toolbox) -> None:
    path = await box.seen("a", "one\n" + "x\n" * 1000)
    path.write_text("top\none\n" + "x\n" * 990 + "y\n" * 10_000)
    text = await box.text("Edit", file_path=str(path), **_one("one", "1"))
    assert len(text) < 5_000 and "There is more: read the file again" in text


def test_what_was_seen_is_remembered_within_limits() -> None:
    files = FileState(max_files=30)
    info = FileInfo(FileKind.FILE, 1, 1, 0o644, 1)
    for number in range(40):
        files.written(f"/{number}", "d", info, b"x" * (1 << 20))
    seen = [files.get(f"/{number}") for number in range(40)]
    assert [each is not None for each in seen] == [False] * 10 + [True] * 30
    assert [each is not None and each.content is not None for each in seen] == [False] * 36 + [True] * 4
    files.written("/huge", "d", info, b"x" * (1 << 21))
    huge = files.get("/huge")
    assert huge is not None and huge.content is None


@pytest.mark.parametrize("tool", ["Edit", "MultiEdit", "Write"])
async def test_the_result_names_the_file_behind_a_link(box: Toolbox, tool: str) -> None:
    path = await box.seen("real/a.txt", "one\n")
    (box.root / "link").symlink_to(path)
    (box.root / "current").symlink_to("real")
    text = await box.text(tool, file_path=str(box.root / "link"), **_change(tool, "one", "1", "1\n"))
    assert f"It is a link: the file is {path}." in text and (box.root / "link").is_symlink()
    text = await box.text("Edit", file_path=str(box.root / "current" / "a.txt"), **_one("1", "2"))
    assert f"It is a link: the file is {path}." in text
    (box.root / "dangling").symlink_to("real/new.txt")
    text = await box.text("Write", file_path="dangling", content="x")
    assert f"It is a link: the file is {box.root}/real/new.txt." in text and (box.root / "real/new.txt").is_file()


async def test_a_session_behind_a_link_has_no_links_for_that(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "home").symlink_to("disk")
    async with open_toolbox(tmp_path / "home") as box:
        path = await box.seen("a.txt", "one\n")
        assert "It is a link" not in await box.text("Edit", file_path=str(path), **_one("one", "1"))


async def test_a_file_is_written_in_place_only_after_its_content_was_kept(box: Toolbox) -> None:
    path, alone = await box.seen("h1", "one\n"), await box.seen("alone", "one\n")
    os.link(path, box.root / "h2")
    kept: list[tuple[bytes | None, bytes]] = []

    async def keep(change: UpcomingChange) -> str:
        kept.append((change.data, Path(change.path).read_bytes()))
        return "" if len(kept) > 2 else "the disk is full"

    box.context = box.context.for_call(CallContext(before_change=keep))
    said = await box.error("Edit", file_path=str(path), **_one("one", "1"))
    assert "could not be kept before (the disk is full): use Bash" in said and path.read_text() == "one\n"
    await box.text("Edit", file_path=str(alone), **_one("one", "1"))
    await box.text("Edit", file_path=str(path), **_one("one", "1"))
    assert (box.root / "h2").read_text() == "1\n" and kept == [(b"one\n", b"one\n")] * 3


@pytest.mark.parametrize("tool", ["Edit", "MultiEdit", "Write"])
async def test_hard_links_stay_links_and_are_told(box: Toolbox, tool: str) -> None:
    path = await box.seen("h1", "one\n")
    os.link(path, box.root / "h2")
    text = await box.text(tool, file_path=str(path), **_change(tool, "one", "1", "1\n"))
    assert text.endswith("The file has 2 hard links, and all of them have the new content.")
    assert (box.root / "h2").read_text() == "1\n"
