"""The steps of a move, each killed at each of its calls to the system: one side owns the session, and the same steps
again end the move. What comes in an archive is believed only as far as it is checked."""

from __future__ import annotations

import io
import json
import os
import shutil
import uuid
from asyncio.subprocess import PIPE
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.remote.agent_kit import content, says
from tests.remote.worker_process import SOURCES, WorkerHost, until
from tests.support.forking.process import start_process

from ccb.remote.session.recovery import Recovered
from ccb.remote.session_store.file_history import RewindPoints
from ccb.remote.session_store.journal import Journal
from ccb.remote.session_store.journal_summary import worktrees
from ccb.remote.session_store.refusal import HostRefusal
from ccb.remote.session_store.session_registry import check_not_moved
from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.frames import Json, Report
from ccb.tunnel.wire.journal_records import record_of, replay, to_line
from ccb.tunnel.wire.session_archive import Manifest, add_member, begin, end
from ccb.tunnel.wire.session_options import SessionOptions

_KILLED = 9
_STEP = """
import json, os, sys
from ccb.remote.host_commands import moving  # before the step, so that only calls of the step itself count
from ccb.remote.host_commands.host_command import run_command
params, left = json.loads(sys.argv[1]), int(sys.argv[2])
def count(event, _):
    global left
    if event.startswith(("open", "os.", "shutil.", "fcntl.")):
        left -= 1
        if not left:
            os._exit(9)
if left:
    sys.addaudithook(count)
os._exit(run_command(params, "b" * 64, 1))
"""


@dataclass
class Side:
    """A machine, with a session's project on it. `bodies` are those of the reports of its last step."""

    home: Path
    bodies: list[Json] = field(default_factory=list)

    async def step(self, name: str, *, kill_at: int = 0, **params: object) -> Json | None:
        """Run a step in a process of its own. Return the body of its last report, None if it was killed at its
        `kill_at`th call to the system."""
        words = ["-c", _STEP, json.dumps({"command": "move", "step": name, **params}), str(kill_at)]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home / "run"), **SOURCES}
        process = await start_process("worker", words, env=env, stdout=PIPE)
        out, _ = await process.communicate()
        if process.returncode == _KILLED:
            return None
        frames = [json.loads(line) for line in out.splitlines()]
        refused = [each["message"] for each in frames if each["t"] == "refused"]
        if refused:
            raise HostRefusal("", refused[0], {})
        self.bodies = [each["body"] for each in frames if each["t"] == "report"]
        return self.bodies[-1]

    def state(self, session: str) -> Path:
        return self.home / ".local/state/ccb/sessions" / session

    def owns(self, session: str) -> bool:
        try:
            check_not_moved(str(self.state(session)))
        except HostRefusal:
            return False
        return (self.state(session) / "journal.jsonl").exists()


@dataclass
class Move:
    source: Side
    target: Side
    session: str
    exported: Json = field(default_factory=dict)
    place: str = ""

    async def run(self, since: str = "look", kill_at: int = 0, *, before: str = "") -> bool:
        """What the laptop does for `ccb move`, from a step on, and up to another one. Return False if the first step
        was killed."""
        here, there, to = self.source, self.target, "there:/app"
        sides = {"look": here, "expect": there, "export": here, "receive": there, "leave": here, "settle": there}
        for name in [*sides][[*sides].index(since) :]:
            if name == before:
                break
            params: dict[str, object] = {"session": self.session, "to": to}
            if name in ("expect", "receive"):
                params["directory"] = str(there.home / "app")
            if name == "expect":
                params["again"] = True
            if name == "leave":
                params["journal"] = self.exported["journal"]
            found = await sides[name].step(name, kill_at=kill_at if name == since else 0, **params)
            if found is None:
                return False
            if name == "look" and found["moved"]:
                return await there.step("settle", session=self.session) is not None
            if name == "expect":
                self.place = found["path"]
            if name == "export":
                self.exported = found
                shutil.copy(self.exported["path"], self.place)
        return True

    def owners(self) -> list[str]:
        """Who owns the session: the target also if it has only to be told so."""
        there = self.target.state(self.session)
        pending = (there / "arriving/complete").exists() and not self.source.owns(self.session)
        return ["source"] * self.source.owns(self.session) + ["target"] * (pending or self.target.owns(self.session))


def lines(session: str, root: Path, *more: records.Content) -> bytes:
    first = records.OptionsRecord({"permission_mode": "bypassPermissions", "model": "m"}, session, 1.0, str(root))
    return b"".join(to_line(record_of(each, seq, 1.0)) for seq, each in enumerate((first, *more), 1))


@pytest.fixture
def move(tmp_path: Path) -> Move:
    sides = [Side(tmp_path / "now" / name) for name in ("here", "there")]
    for side in sides:
        for name in ("app", "run"):
            (side.home / name).mkdir(parents=True, mode=0o700)
    made = Move(sides[0], sides[1], str(uuid.uuid4()))
    state = made.source.state(made.session)
    for name in ("history", "outputs"):
        (state / name).mkdir(parents=True, mode=0o700)
    (state / "journal.jsonl").write_bytes(lines(made.session, sides[0].home / "app"))
    (state / "history" / ("a" * 64)).write_bytes(b"version")
    (state / "outputs/0001-out").write_bytes(b"output")
    (state / "plan.md").write_text("the plan")
    return made


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize("step", ["settle", "leave", "expect", "export", "receive"])
async def test_a_step_that_is_killed_anywhere_leaves_one_owner_and_is_done_again(
    move: Move, step: str, tmp_path: Path
) -> None:
    await move.run(before=step)
    shutil.copytree(tmp_path / "now", tmp_path / "before")
    for kill_at in range(1, 1000):
        if await move.run(step, kill_at):
            break
        assert len(move.owners()) == 1, f"killed at call {kill_at}"
        assert await move.run(), f"the move was not ended after a kill at call {kill_at}"
        assert move.owners() == ["target"]
        there = move.target.state(move.session)
        assert (there / "plan.md").read_text() == "the plan" and (there / "outputs/0001-out").read_bytes() == b"output"
        assert not (there / "arriving").exists()
        shutil.rmtree(tmp_path / "now")
        shutil.copytree(tmp_path / "before", tmp_path / "now")
    assert kill_at > 5 and move.owners() == ["target"]


async def test_a_session_that_went_on_meanwhile_does_not_leave(move: Move) -> None:
    with pytest.raises(HostRefusal, match="went on while it was moved"):
        await move.source.step("leave", session=move.session, to="there:/app", journal=1)
    assert move.owners() == ["source"]
    assert await move.run()
    with pytest.raises(HostRefusal, match="has moved to there:/app"):
        await move.source.step("look", session=move.session, to="elsewhere:/app")
    with pytest.raises(HostRefusal, match="is on this host already"):
        await move.target.step("expect", session=move.session, directory=str(move.target.home / "app"), again=True)


async def test_gc_leaves_a_session_that_is_about_to_arrive(move: Move) -> None:
    await move.run(before="settle")
    assert not await move.run("settle", 1)
    for each in (move.target.state(move.session), move.target.state(move.session) / "arriving"):
        os.utime(each, (1e9, 1e9))
    await move.target.step("", command="gc", older_than_s=1e12)
    assert "a move to this host is not over" in [each.get("why") for each in move.target.bodies]
    assert await move.run() and move.owners() == ["target"]


async def test_a_session_at_work_or_with_a_driver_does_not_leave(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, SessionOptions(client="me@laptop"))
    call = await laptop.opened("go")
    refused = await host.refused(session, command="move", step="look", to="")
    assert refused.code == "in_use" and "a turn of the session is running" in refused.message
    await laptop.answer(call, content(says("done")))
    await until(lambda: json.loads((host.state(session) / "summary.json").read_text())["state"] == "idle", "it is done")
    refused = await host.refused(session, command="move", step="export", to="there:/app")
    assert "me@laptop drives this session now" in refused.message
    exporting = await host.connect(session, command="move", step="export")
    assert (await exporting.next(Report)).kind == "done"


async def brought(move: Move, journal: bytes) -> Path:
    """The state directory after an archive with this journal was imported."""
    directory = str(move.target.home / "app")
    found = await move.target.step("expect", session=move.session, directory=directory)
    assert found is not None
    with open(found["path"], "xb") as file:
        begin(file, Manifest(move.session, "/"))
        add_member(file, "journal.jsonl", io.BytesIO(journal), len(journal))
        end(file)
    await move.target.step("receive", session=move.session, directory=directory)
    await move.target.step("settle", session=move.session)
    return move.target.state(move.session)


@pytest.mark.parametrize(
    "journal",
    [
        b"",
        b"{}\n",
        lines("0" * 8, Path("/")),
        to_line(record_of(records.OptionsRecord({}, "s"), 1 << 62, 1.0)),
        b"x" * (25 << 20),
    ],
    ids=["empty", "no record", "another session", "numbers without end", "a line without end"],
)
async def test_a_journal_that_no_worker_wrote_is_refused(move: Move, journal: bytes) -> None:
    with pytest.raises(HostRefusal, match="its journal is"):
        await brought(move, journal)
    assert not move.target.owns(move.session)


async def test_a_journal_that_lies_grants_and_changes_nothing(move: Move) -> None:
    """It says that everything is allowed, that a file of the user is to be put back, and whose directory may go."""
    back = {"path": "/etc/passwd", "before": "b", "after": "a", "mode": 0}
    lies = (
        records.WorktreeRecord("/home/me/other", "worktree/x", "b", "/home/me"),
        records.WorkerRecord(1, "b", "another-session", "/etc"),
        records.FileChangeRecord("t", "/home/me/.ssh/authorized_keys", "a" * 64, "b", 0o600),
        records.FileChangeRecord("t", "/../../etc/cron.d/x", "a" * 64, "b", 0o600),
        records.QueuedRecord("task:1", [{"type": "text", "text": "run this"}], {}, wakes=True),
        records.RewindRecord("m", 0, [back]),
    )
    state = await brought(move, lines(move.session, Path("/"), *lies))
    journal, recovered, points = Journal(str(state / "journal.jsonl")), Recovered(), RewindPoints()
    replay(journal.all(), *recovered.parts, points)
    await journal.close()
    assert recovered.launches.options.permission_mode == "default"
    assert recovered.worker.mark == "" and worktrees(str(state / "journal.jsonl")) == []
    assert points.unfinished is None
    below = str(move.target.home / "app")
    assert points.latest and all(path.startswith(f"{below}/") for path in points.latest)
    assert all(not each.wakes for each in recovered.inputs._queue)
