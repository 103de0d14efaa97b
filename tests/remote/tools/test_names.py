"""The names that a person may mean while they type: which there are, and in which order."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.remote.tools_kit import until, write

from ccb.remote.search_program import file_names
from ccb.remote.search_program.file_names import NameIndex, glimpse
from ccb.remote.system.host import Host
from ccb.remote.tools import search_process
from ccb.remote.tools.search_process import NameFinder
from ccb.tunnel.wire.frames import Json


def index_of(root: Path, files: Iterable[str]) -> NameIndex:
    for each in files:
        write(root / each, "")
    index = NameIndex(str(root))
    index.build()
    return index


def test_names_come_before_paths_and_short_ones_first(tmp_path: Path) -> None:
    files = "README.md src/turn.py src/turns/inputs.py src/return.py docs/a_turn.md t/u/r/n Makefile"
    index = index_of(tmp_path, files.split())
    found = ["src/turn.py", "src/turns/", "docs/a_turn.md", "src/turns/inputs.py", "src/return.py", "t/u/r/n"]
    assert index.find("turn", 50)[0] == found
    assert index.find("read", 50)[0] == ["README.md"], "case does not matter"
    assert index.find("srinp", 50)[0] == ["src/turns/inputs.py"]
    assert index.find("", 50)[0] == ["Makefile", "README.md", "docs/", "src/", "t/"]
    assert index.find("src/", 50)[0][:3] == ["src/return.py", "src/turn.py", "src/turns/"]
    assert index.find("turn", 2) == (["src/turn.py", "src/turns/"], True)
    assert index.find("nowhere", 50) == ([], False)


def test_what_git_ignores_is_left_out_and_links_are_not_followed(tmp_path: Path) -> None:
    write(tmp_path / ".git/info/exclude", "private/\n")
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "loop").symlink_to(".")
    files = [".gitignore", "build/x.o", "keep.log", "a.log", "private/key", "real/deep.py", ".hidden/file"]
    index = index_of(tmp_path, files)
    (tmp_path / ".gitignore").write_text("build/\n*.log\n!keep.log\n")
    index.build()
    every = index.find("", 50)[0]
    assert every == ["keep.log", "link/", "loop/", "real/", ".gitignore", ".hidden/"]
    assert index.find("deep", 50)[0] == ["real/deep.py"]
    assert index.find("x.o", 50)[0] == index.find("key", 50)[0] == []


def test_a_name_that_is_no_plain_text_is_spelled_and_one_that_cannot_be_written_is_left_out(tmp_path: Path) -> None:
    index = index_of(tmp_path, ["two words.txt", 'a"quote', "a\nline", "a\x1b[31m", "ä.txt", "caf\udce9/menu"])
    names = [r"a\nline", r"a\x1b[31m", r"caf\xe9/", "two words.txt", "ä.txt"]
    assert index.find("", 50)[0] == names
    assert index.find(r"caf\xe", 50)[0] == [r"caf\xe9/", r"caf\xe9/menu"]
    assert index.find(rf"{tmp_path}/caf\xe9/", 50)[0] == [rf"{tmp_path}/caf\xe9/menu"]


def test_a_name_that_leads_out_of_the_tree_lists_its_directory(tmp_path: Path) -> None:
    index = index_of(tmp_path / "project", ["inside.py"])
    (tmp_path / "outside.txt").write_text("")
    assert index.find("../", 50)[0] == ["../outside.txt", "../project/"]
    assert index.find(f"{tmp_path}/OUT", 50)[0] == [f"{tmp_path}/outside.txt"]
    assert index.find("./in", 50)[0] == ["./inside.py"]
    assert index.find("/nowhere/x", 50)[0] == []


def test_a_tree_that_is_too_large_is_cut_near_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_names, "MAX_ENTRIES", 3)
    index = index_of(tmp_path, ["a/deep/file", "b", "c"])
    assert index.cut and index.find("", 50)[0] == ["a/", "b", "c"]


async def test_a_program_that_does_not_answer_is_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "top.py").write_text("")
    monkeypatch.setattr(search_process, "_STUCK_S", 0.0)
    monkeypatch.setattr(file_names, "glimpse", lambda *_: {"names": []})
    finder = NameFinder(str(tmp_path), Host())
    finder.find("a", "top", lambda _: None)
    stuck = finder._process
    assert stuck is not None
    os.kill(stuck.pid, signal.SIGSTOP)
    found: list[Json] = []
    finder.find("a", "top", found.append)
    await until(lambda: bool(found))
    await finder.close()
    assert stuck.returncode == -signal.SIGKILL and found[0]["names"] == ["top.py"]


def test_the_root_is_known_at_once(tmp_path: Path) -> None:
    index_of(tmp_path, ["top.py", "deep/er/top.py"])
    assert glimpse(str(tmp_path), "top", 50) == {"names": ["top.py"], "more": False, "settled": False, "cut": False}
