"""Finding sessions again: by path, by the start of an id, with and without a summary, also when there are many."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import threading
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.remote.tools_kit import plant

from ccb.remote.session_store import locks, session_directory, session_registry
from ccb.remote.session_store.refusal import HostRefusal
from ccb.tunnel.wire.frames import Json


@pytest.fixture
def states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    made = tmp_path / ".local/state/ccb/sessions"
    made.mkdir(parents=True)
    return made


def user(text: str) -> Json:
    return {"type": "user", "message": {"role": "user", "content": text}}


def make(states: Path, cwd: str, *, session: str = "", prompts: tuple[str, ...] = ("hi",), **summary: Any) -> str:
    """A session as a worker that has ended leaves it; without a summary when none is given."""
    session = session or str(uuid.uuid4())
    directory = states / session
    directory.mkdir(mode=0o700)
    records = [("options", {"options": {}, "session": session, "cwd": cwd})]
    records += [("input", {"id": str(n), "body": user(text)}) for n, text in enumerate(prompts)]
    with (directory / "journal.jsonl").open("w") as journal:
        for n, (kind, body) in enumerate(records, 1):
            journal.write(json.dumps({"seq": n, "time": 1000.0 + n, "kind": kind, "body": body}) + "\n")
    if summary:
        session_registry.SummaryFile(str(directory), {"session": session, "cwd": cwd}).update(**summary)
    return session


def latest(path: object) -> str | None:
    return getattr(session_registry.latest_of(str(path)), "session", None)


def described(session: str) -> Json:
    (entry,) = [each for each in session_registry.sessions() if each.session == session]
    return session_registry.described(entry)


def filled(directory: Path) -> Path:
    """A directory with one file, which is what an identity looks at."""
    plant(directory, "file")
    return directory


def ours(states: Path) -> list[str]:
    return [entry.session for entry in session_registry.sessions() if entry.directory.startswith(str(states))]


def test_a_summary_is_private_whole_and_written_only_when_it_changes(tmp_path: Path) -> None:
    summary = session_registry.SummaryFile(str(tmp_path), {"session": "s", **locks.own_identity()})
    summary.update(state="idle", prompt="ä" * 300)
    path = tmp_path / "summary.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.stat().st_ino
    summary.update(state="idle")
    assert path.stat().st_ino == before
    summary.update(state="running")
    assert path.stat().st_ino != before
    assert session_registry.read_summary(str(tmp_path))["pid"] == os.getpid()
    summary.remove_owner()
    assert set(session_registry.read_summary(str(tmp_path))) == {"session", "state", "prompt"}
    assert [each.name for each in tmp_path.iterdir()] == ["summary.json"]


def test_a_summary_that_cannot_be_written_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    session_registry.SummaryFile(str(tmp_path / "missing"), {}).update(state="idle")
    assert "cannot be written" in caplog.text


def test_the_latest_of_a_path_is_the_one_used_last(states: Path) -> None:
    make(states, "/a", updated=10.0, prompts=("x",))
    wanted = make(states, "/a", updated=30.0)
    make(states, "/b", updated=40.0)
    assert latest("/a") == wanted and latest("/c") is None


def test_a_session_in_a_worktree_belongs_to_the_directory_it_was_started_for(states: Path) -> None:
    make(states, "/a/sub", updated=10.0)
    tree = make(states, "/a/.claude/worktrees/fix/sub", updated=30.0)
    top = make(states, "/a/.claude/worktrees/fix", updated=40.0)
    assert [latest(path) for path in ("/a/sub", "/a", "/a/.claude/worktrees/fix/sub")] == [tree, top, tree]


def test_a_session_is_found_by_its_directory_under_another_name(states: Path, tmp_path: Path) -> None:
    project = filled(tmp_path / "t")
    root = session_directory.identity_of(str(project))
    session = make(states, str(project), updated=10.0, root=root, earlier=["/once"])
    project.rename(tmp_path / "t2")
    assert [latest(path) for path in (tmp_path / "t2", project, "/once")] == [session] * 3
    make(states, str(tmp_path / "t2"), updated=5.0)
    assert latest(tmp_path / "t2") == session, "the one that was used last"


def test_a_session_in_a_worktree_is_found_when_the_directory_around_it_was_moved(states: Path, tmp_path: Path) -> None:
    tree = filled(tmp_path / "t/.claude/worktrees/fix")
    session = make(states, str(tree), root=session_directory.identity_of(str(tree)))
    (tmp_path / "t").rename(tmp_path / "t2")
    assert latest(tmp_path / "t2") == session


async def test_a_disk_that_does_not_answer_holds_one_thread_however_often_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, asked = threading.Event(), []
    directory = session_directory.SessionDirectory(str(tmp_path))

    def look() -> str:
        asked.append(1)
        answers.wait(10)
        return "/there"

    monkeypatch.setattr(directory, "_moved_to", look)
    monkeypatch.setattr(session_directory, "_LOOK_S", 0.01)
    assert [await directory.news() for _ in range(3)] == ["", "", ""]
    assert len(asked) == 1
    answers.set()
    monkeypatch.setattr(session_directory, "_LOOK_S", 10)
    while not (said := await directory.news()):
        await asyncio.sleep(0)
    assert "/there" in said and len(asked) == 2


@pytest.mark.parametrize("damage", [None, [], [0], "x", [1, []], {"a": 1}, [0, {"file": 1}]])
def test_an_identity_that_is_damaged_finds_nothing(states: Path, tmp_path: Path, damage: Any) -> None:
    make(states, "/a", root=damage, earlier=damage)
    (tmp_path / "file").touch()
    assert latest(tmp_path) is None


def test_a_new_directory_with_the_inode_number_of_a_removed_one_is_another_one(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    known = session_directory.identity_of(str(tmp_path / "old"))
    (tmp_path / "file").touch()
    number, entries = tmp_path.stat().st_ino, session_directory.identity_of(str(tmp_path))[1]
    assert session_directory.is_same_directory(str(tmp_path), [number, entries])
    assert not session_directory.is_same_directory(str(tmp_path), [number, known[1]])
    others = {name: each + 1 for name, each in entries.items()}
    assert not session_directory.is_same_directory(str(tmp_path), [number, others])


def test_one_that_was_never_prompted_is_the_latest_only_when_there_is_no_other(states: Path) -> None:
    prompted = make(states, "/a", updated=10.0)
    unprompted = session_registry.SummaryFile(str(states / make(states, "/a", prompts=())), {"cwd": "/a"})
    unprompted.update(updated=50.0, prompts=0)
    alone = make(states, "/b", prompts=())
    assert [latest("/a"), latest("/b")] == [prompted, alone]


def test_ids_are_found_by_their_start(states: Path) -> None:
    first = make(states, "/a", session="aaaa1111-0000-4000-8000-000000000000")
    second = make(states, "/a", session="aaaa2222-0000-4000-8000-000000000000")
    known = sorted(session_registry.sessions(), key=lambda entry: entry.session)
    for start, found in (("aaaa1", first), (second, second)):
        assert session_registry.the_one(start, known).session == found
    for start, near in (("aaaa", [first, second]), ("aaa", []), ("zzzz", []), ("../aaaa", [])):
        with pytest.raises(HostRefusal) as refused:
            session_registry.the_one(start, known)
        assert refused.value.code == "no_session" and near == refused.value.data["near"]


@pytest.mark.parametrize("damage", ["missing", "torn", "empty", "link", "list"])
def test_without_a_summary_the_journal_tells(states: Path, damage: str) -> None:
    session = make(states, "/a", prompts=("first", "second\nline"), updated=5.0)
    path = states / session / "summary.json"
    text = path.read_text()
    path.unlink()
    if damage == "link":
        path.symlink_to("/etc/passwd")
    elif damage != "missing":
        path.write_text({"torn": text[: len(text) // 2], "empty": "", "list": "[]"}[damage])
    entry = session_registry.the_one(session, session_registry.sessions())
    body = session_registry.described(entry)
    assert (body["cwd"], body["prompt"], body["prompts"], body["alive"]) == ("/a", "first", 2, False)
    assert abs(entry.updated - (states / session / "journal.jsonl").stat().st_mtime) < 0.01


def test_what_is_no_session_is_passed_over(states: Path) -> None:
    real = make(states, "/a")
    plant(states, "empty/", "begun/journal.jsonl", "file: x", f"linked -> {real}")
    assert ours(states) == [real]


def test_the_process_with_the_pid_of_a_dead_daemon_is_not_the_daemon(states: Path) -> None:
    owner: Json = locks.own_identity()
    live = make(states, "/a", updated=1.0, state="running", driver="me", **owner)
    reused = make(states, "/b", updated=1.0, state="running", driver="me", **{**owner, "started": "1"})
    booted = make(states, "/c", updated=1.0, state="running", driver="me", **{**owner, "boot": "earlier"})
    bodies = {entry.session: session_registry.described(entry) for entry in session_registry.sessions()}
    assert [bodies[each]["alive"] for each in (live, reused, booted)] == [True, False, False]
    assert [bodies[each]["state"] for each in (live, reused, booted)] == ["running", "ended", "ended"]
    assert [bodies[each]["driver"] for each in (live, reused, booted)] == ["me", "", ""]
    assert bodies[live]["idle_s"] < 600 < bodies[reused]["idle_s"], "its journal has just grown"
    assert bodies[live]["rss"] > 1_000_000 and bodies[reused]["pid"] == 0


@pytest.mark.parametrize("where", [{"hostname": "nodeb", "boot": "other"}, {}])
def test_a_session_of_another_host_that_shares_the_home_says_so(states: Path, where: Json) -> None:
    session = make(states, "/a", updated=1.0, pid=1, started="1", state="running", **where)
    body = described(session)
    assert (body["host"], body["alive"]) == (where.get("hostname", ""), False)
    assert body["state"] == ("running" if where else "ended"), "that is what its worker there last wrote"


def test_a_living_daemon_without_a_summary_is_known_by_its_lock(states: Path, tmp_path: Path) -> None:
    session = make(states, "/a")
    plant(tmp_path / "run/ccb", f"{session}.lock: {json.dumps(locks.own_identity())}")
    assert described(session)["pid"] == os.getpid()


MOVES = {"beside": "t2", "in place of another": "t2", "with the directory around it": "../q/t", "away": "../t"}


@pytest.mark.parametrize("way", MOVES)
async def test_a_directory_that_was_moved_is_found_under_the_directories_around_it(tmp_path: Path, way: str) -> None:
    before = filled(tmp_path / "p" / "t")
    directory = session_directory.SessionDirectory(str(before))
    now = Path(os.path.normpath(before.parent / MOVES[way]))
    if way.startswith("with"):
        before.parent.rename(now.parent)
    else:
        before.rename(now)
    if way.startswith("in place"):
        before.mkdir()
    said = await directory.news()
    assert (f"what was {before} is {now} now" in said) is (way != "away")
    assert session_directory.is_same_directory(str(now), await directory.soon(directory.identity))


async def test_the_model_is_told_of_odd_names_in_the_spelling_that_tools_take(tmp_path: Path) -> None:
    before, now = filled(tmp_path / "caf\udce9"), tmp_path / "th\udce9"
    directory = session_directory.SessionDirectory(str(before))
    before.rename(now)
    assert rf"what was {tmp_path}/caf\xe9 is {tmp_path}/th\xe9 now" in await directory.news()
    said = session_directory.resumed_elsewhere(str(before), str(now))
    assert rf"goes on in {tmp_path}/th\xe9. Before, its directory was {tmp_path}/caf\xe9:" in said


@pytest.mark.parametrize("damaged", ["yesterday", -1, None])
def test_a_damaged_summary_leaves_the_time_of_the_journal(states: Path, damaged: object) -> None:
    directory = states / make(states, "/srv")
    (directory / "summary.json").write_text(json.dumps({"created": damaged}))
    assert session_registry.created_at(str(directory)) == 1001.0
