"""Paths: odd names are taken back as they were printed, and a call reaches the path that was decided on."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.remote.tools_kit import Toolbox, open_toolbox, write
from tests.support.worker.cages import sandbox
from tests.support.worker.permission_desk import Desk, on_file

from ccb.remote.permissions.rules import Behavior
from ccb.remote.system.host import Host, PinnedHost
from ccb.remote.system.regular_files import ABSENT, digest_of
from ccb.remote.tools.tool_contract import CallContext

NAMES = {
    "caf\udce9.txt": r"caf\xe9.txt",
    r"caf\xe9.txt": r"caf\\xe9.txt",
    "two\nlines.txt": r"two\nlines.txt",
    r"two\nlines.txt": r"two\\nlines.txt",
    "\udcff\udcfe dir/a\tb\x1b.txt": r"\xff\xfe dir/a\x09b\x1b.txt",
    "größe.txt": "größe.txt",
    r"unit\x2dname.txt": r"unit\x2dname.txt",
}


@pytest.fixture
async def box(tmp_path: Path) -> AsyncIterator[Toolbox]:
    async with open_toolbox(tmp_path) as toolbox:
        for number, name in enumerate(NAMES):
            toolbox.write(name, f"text {number}\n")
        yield toolbox


@pytest.mark.parametrize("backend", ["rg", "neither"])
async def test_every_file_is_found_by_its_name(box: Toolbox, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    which = box.context.host.which
    monkeypatch.setattr(box.context.host, "which", lambda name: which(name) if name == backend else None)
    expected = sorted(NAMES.values())
    assert sorted((await box.text("Glob", pattern="**/*.txt")).splitlines()) == [f"{box.root}/{n}" for n in expected]
    assert sorted((await box.text("Grep", pattern="text")).splitlines()[1:]) == expected
    lines = (await box.text("Grep", pattern="text", output_mode="content")).splitlines()
    numbers = list(NAMES)
    assert sorted(lines) == sorted(f"{NAMES[name]}:1:text {numbers.index(name)}" for name in NAMES)
    for number, shown in enumerate(NAMES.values()):
        assert await box.text("Grep", pattern=f"text {number}", path=shown, output_mode="count") != "No matches found"


async def test_read_edit_and_write_take_the_name_and_print_it_so(box: Toolbox) -> None:
    for number, (name, shown) in enumerate(NAMES.items()):
        assert await box.text("Read", file_path=shown) == f"1\ttext {number}"
        text = await box.text("Edit", file_path=shown, old_string="text", new_string="new")
        assert text == f"The file {box.root}/{shown} has been updated successfully."
        await box.text("Write", file_path=f"{box.root}/{shown}", content=f"written {number}\n")
        assert (box.root / name).read_text() == f"written {number}\n"
    await box.text("Write", file_path=r"new\xe9/file\n", content="x")
    assert (box.root / "new\udce9" / "file\n").read_text() == "x"
    assert len(os.listdir(box.root)) == len(NAMES) + 1, "no file was made beside one that was meant"


async def test_ls_gives_one_line_for_each_name_and_takes_it_back(box: Toolbox) -> None:
    (box.root / "link\n").symlink_to("two\nlines.txt")
    lines = (await box.text("LS", path=str(box.root))).splitlines()
    assert r"link\n -> two\nlines.txt" in lines
    assert {r"caf\xe9.txt", r"caf\\xe9.txt", r"\xff\xfe dir/"} < set(lines) and len(lines) == len(NAMES) + 1
    assert await box.text("LS", path=r"\xff\xfe dir") == r"a\x09b\x1b.txt"
    found = await box.text("Glob", pattern="*", path=r"\xff\xfe dir/")
    assert found == rf"{box.root}/\xff\xfe dir/a\x09b\x1b.txt"
    found = await box.text("Grep", pattern="text", path=r"\xff\xfe dir")
    assert found == "Found 1 file\n" + r"\xff\xfe dir/a\x09b\x1b.txt"


async def test_a_near_name_is_offered_as_it_is_spelled(box: Toolbox) -> None:
    (box.root / "C:\\new").write_text("x")
    said = await box.error("Read", file_path=r"C:\new")
    assert rf"Did you mean {box.root}/C:\\new?" in said
    assert rf"{box.root}/caf\xe9.txt" in await box.error(
        "Edit", file_path=r"caf\xe8.txt", old_string="a", new_string="b"
    )


def test_permission_rules_see_the_file_that_is_meant(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    (desk.cwd / "sub\udce9").mkdir()
    (desk.cwd / "sub\udce9" / "link").symlink_to("/etc")
    decision = on_file(desk.engine(), "Read", r"sub\xe9/link/passwd")
    assert decision.behavior is Behavior.ASK and "/etc/passwd is outside" in decision.reason
    denied = desk.engine(disallowed="Edit(sub*/secret*)")
    assert on_file(denied, "Write", r"sub\xe9/secret").behavior is Behavior.DENY
    pinned = on_file(desk.engine(sandbox=sandbox("workspace")), "Write", r"sub\xe9/new").pinned
    assert pinned == str(desk.cwd / "sub\udce9" / "new")


def test_a_question_about_an_odd_name_holds_plain_text_only(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    far = r"/etc/caf\xe9"
    for tool, path in (("Write", far), ("Read", far), ("Read", r"\xe9/id_rsa"), ("Edit", r"\xe9")):
        decision = on_file(desk.engine(), tool, path)
        texts = json.dumps([decision.reason, decision.blocked_path, decision.suggestions], ensure_ascii=False)
        assert decision.behavior is Behavior.ASK and texts.encode() and r"\\xe9" in texts


def test_workspace_mode_pins_the_path_that_it_decides_on(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    os.symlink("src", desk.cwd / "link")
    engine = desk.engine(sandbox=sandbox("workspace"))
    allowed = on_file(engine, "Write", "link/new.py")
    assert (allowed.behavior, allowed.pinned) == (Behavior.ALLOW, str(desk.cwd / "src/new.py"))
    assert on_file(engine, "Write", "CLAUDE.md").pinned == str(desk.cwd / "CLAUDE.md"), "also what is asked"
    assert on_file(desk.engine(), "Read", "a.txt").pinned == "", "nothing can change links beside other calls"


def test_a_deny_rule_sees_the_pinned_path_as_well_as_the_name(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    os.symlink("src", desk.cwd / "link")
    for rule in ("Edit(src/**)", "Edit(link/**)"):
        engine = desk.engine(disallowed=rule, sandbox=sandbox("workspace"))
        assert on_file(engine, "Write", "link/new.py").behavior is Behavior.DENY


async def test_no_tool_follows_a_link_that_was_made_after_the_decision(box: Toolbox, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    write(outside / "a.txt", "secret")
    box.write("d/a.txt", "ours")
    path = str(box.root / "d" / "a.txt")
    box.context = box.context.for_call(CallContext(pinned=path))
    assert "ours" in await box.text("Read", file_path=path)
    os.rename(box.root / "d", box.root / "e")
    os.symlink(outside, box.root / "d")
    for name, more in (
        ("Read", {}),
        ("Write", {"content": "evil"}),
        ("Edit", {"old_string": "secret", "new_string": "evil"}),
        ("MultiEdit", {"edits": [{"old_string": "secret", "new_string": "evil"}]}),
    ):
        said = await box.error(name, file_path=path, **more)
        assert "secret" not in said and "leads elsewhere" in said, said
    box.context = box.context.for_call(CallContext(pinned=str(box.root / "d")))
    assert "leads elsewhere" in await box.error("LS", path=str(box.root / "d"))
    assert (outside / "a.txt").read_text() == "secret"


async def test_what_is_pinned_is_read_and_written_without_following_a_link(tmp_path: Path) -> None:
    write(tmp_path / "real" / "a", "one")
    os.symlink("real", tmp_path / "link")
    host = PinnedHost(Host(), str(tmp_path / "real" / "a"))
    assert await host.read(str(tmp_path / "link" / "a"), 0, 10) == b"one", "a link that leads there"
    await host.replace(str(tmp_path / "real" / "a"), b"two", digest_of(b"one"))
    assert (tmp_path / "real" / "a").read_text() == "two"
    deep = tmp_path / "real" / "x" / "y" / "new"
    made = PinnedHost(Host(), str(deep))
    assert await made.stat(str(deep)) is None
    await made.replace(str(deep), b"new", ABSENT)
    assert deep.read_text() == "new"

    class Racing(Host):
        """The link is made right after the path was resolved."""

        def real_path(self, path: str) -> str:
            return path

    raced = PinnedHost(Racing(), str(tmp_path / "link" / "a"))
    with pytest.raises(OSError):
        await raced.read(str(tmp_path / "link" / "a"), 0, 10)
    with pytest.raises(OSError):
        await raced.replace(str(tmp_path / "link" / "a"), b"evil", digest_of(b"two"))
    os.symlink("a", tmp_path / "real" / "last")
    with pytest.raises(OSError):
        await PinnedHost(Racing(), str(tmp_path / "real/last")).read(str(tmp_path / "real/last"), 0, 10)
    assert (tmp_path / "real" / "a").read_text() == "two"
