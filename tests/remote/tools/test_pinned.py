"""A call reaches the path that was decided on, also when a command beside it changes where the path leads."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.remote.tools_kit import Toolbox
from tests.support.worker.cages import sandbox
from tests.support.worker.permission_desk import Desk, on_file

from ccb.remote.permissions.rules import Behavior
from ccb.remote.system.host import Host, PinnedHost
from ccb.remote.system.regular_files import ABSENT, digest_of
from ccb.remote.tools.tool_contract import CallContext


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
    outside.mkdir()
    (outside / "a.txt").write_text("secret")
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
    (tmp_path / "real").mkdir()
    os.symlink("real", tmp_path / "link")
    (tmp_path / "real" / "a").write_text("one")
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
    for attempt in (
        lambda: raced.read(str(tmp_path / "link" / "a"), 0, 10),
        lambda: raced.replace(str(tmp_path / "link" / "a"), b"evil", digest_of(b"two")),
    ):
        with pytest.raises(OSError):
            await attempt()
    os.symlink("a", tmp_path / "real" / "last")
    with pytest.raises(OSError):
        await PinnedHost(Racing(), str(tmp_path / "real/last")).read(str(tmp_path / "real/last"), 0, 10)
    assert (tmp_path / "real" / "a").read_text() == "two"
