"""Fleets of a site: what is refused before anything is submitted, and what a run makes of the words of the site."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from ccb.local.command_line.parser import parse_arguments
from ccb.local.fleet import fleet_run
from ccb.local.fleet.fleet_run import FleetRun, TaskRow
from ccb.local.fleet.manifest import FleetFolder, FleetTask, JobPlace, Manifest, fleets, new_fleet, task_result
from ccb.local.fleet.new_fleets import submit_fleet
from ccb.local.fleet.site_engine import SiteState, SiteTask
from ccb.tunnel.errors import ConnectionLost, ExitCode, UsageError
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.transports.pipe import Transport

WAITING = SiteTask(SiteState.WAITING, "PENDING Priority")
QUEUED = "Tasks wait at the site: “PENDING Priority”"
LOST = SiteTask(SiteState.ENDED, "NODE_FAIL")
CANCELLED = SiteTask(SiteState.CANCELLED, "CANCELLED")
Says = Callable[[int], SiteTask | None]
"""What the site says of a task when it is asked for the nth time; None: it does not answer."""


@pytest.mark.parametrize(
    ("words", "lines", "says"),
    [
        (["-p", "Do it."], None, "needs an engine"),
        (["--slurm", "login:/srv"], None, "needs one of -p and --prompts"),
        (["--slurm", "login:/srv", "-p", "Do it.", "--prompts", "FILE"], "", "needs one of -p and --prompts"),
        (["--slurm", "login:/srv", "--prompts", "FILE"], None, "cannot be read"),
        (["--slurm", "login:/srv", "--prompts", "FILE"], "\n\n", "has no tasks"),
        (["--slurm", "login:/srv", "--prompts", "FILE"], '{"prompt": "a"}\n{"promt": "b"}', "cannot be read"),
        (["--slurm", "login:/srv", "--prompts", "FILE"], "Do it.", "cannot be read"),
        (["--slurm", "ssh://login:2222/srv", "-p", "Do it."], None, "--slurm takes no port"),
        (["--slurm", "login:/srv", "-p", "Do it.", "--transport", "sh"], None, "this login can drive 8 tasks at once"),
    ],
)
async def test_what_cannot_be_submitted_is_refused_and_leaves_no_fleet(
    tmp_path: Path, words: list[str], lines: str | None, says: str
) -> None:
    if lines is not None:
        (tmp_path / "prompts").write_text(lines)
    given = [str(tmp_path / "prompts") if word == "FILE" else word for word in words]
    environ = {"HOME": str(tmp_path)}
    with pytest.raises(UsageError, match=says):
        await submit_fleet(parse_arguments(["fleet", "submit", *given]), environ)
    assert fleets(environ) == []


def fleet(environ: Mapping[str, str]) -> tuple[FleetFolder, Manifest]:
    task = FleetTask(index=0, host="login", place="login:/srv", prompt="Do it.", session=str(uuid.uuid4()))
    manifest = Manifest(name="night", tasks=(task,), jobs=1, engine="slurm")
    folder = new_fleet(environ, manifest)
    return folder, folder.hand_in(manifest, [0])


class ScriptedSite:
    def __init__(self, says: Says) -> None:
        self.submitted: list[int] = []
        self.asked = self.cancelled = 0
        self._says = says

    async def submit(self, number: int, tasks: Sequence[FleetTask]) -> None:
        self.submitted.append(number)

    async def tasks(self, places: Mapping[int, JobPlace]) -> Mapping[int, SiteTask]:
        self.asked += 1
        if (said := self._says(self.asked)) is None:
            raise ConnectionLost("the login node is away")
        return {0: said}

    async def reach(self, run: str) -> Transport:
        raise ConnectionLost("nobody is there")

    async def cancel(self, jobs: int) -> None:
        self.cancelled += 1


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize(
    ("says", "submitted", "failure", "told"),
    [
        (lambda asked: LOST, [2, 3], "3 jobs have ended without an answer at the site: NODE_FAIL", []),
        (
            lambda asked: WAITING if asked == 1 else CANCELLED,
            [],
            "the job was cancelled at the site: CANCELLED",
            [QUEUED],
        ),
        (
            lambda asked: CANCELLED if asked == 1 else None if asked == 3 else WAITING if asked < 4 else CANCELLED,
            [2],
            "the job was cancelled at the site",
            [QUEUED, "the login node is away; it is asked again"],
        ),
    ],
    ids=["lost too often", "cancelled", "cancelled earlier, and the site is away for a time"],
)
async def test_lost_jobs_are_handed_in_again_and_cancelled_ones_are_not(
    tmp_path: Path, says: Says, submitted: list[int], failure: str, told: list[str]
) -> None:
    environ = {"HOME": str(tmp_path)}
    folder, manifest = fleet(environ)
    site, ended, said = ScriptedSite(says), list[TaskRow](), list[str]()
    await FleetRun(folder, manifest, NobodyToAsk(tell=said.append), environ, ended.append, site).run(failed=False)
    (row,) = ended
    assert row.result is not None and row.result.errors[0].startswith(failure)
    assert (row.result.exit_code, site.submitted, said) == (ExitCode.LINK_LOST, submitted, told)
    assert len(folder.manifest().submissions) == 1 + len(submitted)


@pytest.mark.parametrize("then", [LOST, CANCELLED], ids=["has ended", "was cancelled"])
async def test_a_task_that_answers_while_the_site_is_asked_keeps_its_answer(tmp_path: Path, then: SiteTask) -> None:
    environ = {"HOME": str(tmp_path)}
    folder, manifest = fleet(environ)
    ended = list[TaskRow]()

    def says(asked: int) -> SiteTask:
        run.rows[0].result = task_result(index=0, answered=True, exit_code=ExitCode.OK, text="12.1")
        return then

    site = ScriptedSite(says)
    run = FleetRun(folder, manifest, NobodyToAsk(), environ, ended.append, site)
    await run.run(failed=False)
    assert (run.rows[0].result is not None and run.rows[0].result.text, site.submitted, ended) == ("12.1", [], [])


async def test_a_site_that_takes_nothing_is_asked_later_and_the_fleet_can_be_stopped_meanwhile(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    folder, manifest = fleet(environ)
    said = list[str]()

    class FullSite(ScriptedSite):
        async def submit(self, number: int, tasks: Sequence[FleetTask]) -> None:
            await super().submit(number, tasks)
            if len(self.submitted) == 2:
                folder.stop_mark.touch()  # as `ccb fleet stop` does
            raise UsageError("there are too many jobs of you")

    site = FullSite(lambda asked: LOST)
    run = FleetRun(folder, manifest, NobodyToAsk(tell=said.append), environ, lambda row: None, site)
    async with asyncio.timeout(20):
        await run.run(failed=False)
    assert (site.submitted, said) == ([2, 2], ["there are too many jobs of you; 1 tasks are submitted later"])


async def test_a_task_that_cannot_be_reached_is_told_and_given_up_after_growing_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node that restarts has half a minute: two seconds and twice as long each time."""
    monkeypatch.setattr(fleet_run, "_SOON_S", 0.02)
    environ = {"HOME": str(tmp_path), "ANTHROPIC_API_KEY": "sk-ant-test-key"}
    folder, manifest = fleet(environ)
    said, ended = list[str](), list[TaskRow]()
    site = ScriptedSite(lambda asked: SiteTask(SiteState.RUNNING, "RUNNING n1", "7 n1"))
    began = time.monotonic()
    await FleetRun(folder, manifest, NobodyToAsk(tell=said.append), environ, ended.append, site).run(failed=False)
    assert time.monotonic() - began > 0.02 * (2 + 4 + 8 + 16)
    assert said == ["task 0: nobody is there; it is tried again"]
    assert ended[0].result is not None and ended[0].result.errors[0] == "nobody is there"


async def test_a_result_that_cannot_be_written_is_told_and_ends_no_other_task(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    folder, manifest = fleet(environ)
    (folder.path / "results").write_text("in the way")
    ended, said = list[TaskRow](), list[str]()
    site = ScriptedSite(lambda asked: LOST)
    await FleetRun(folder, manifest, NobodyToAsk(tell=said.append), environ, ended.append, site).run(failed=False)
    assert len(ended) == 1 and "results/0.json cannot be written" in said[0]


async def test_a_budget_that_is_used_up_ends_the_jobs(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path)}
    folder, manifest = fleet(environ)
    site, poor = ScriptedSite(lambda asked: WAITING), manifest.model_copy(update={"budget_usd": 0.0})
    run = FleetRun(folder, poor, NobodyToAsk(), environ, lambda row: None, site)
    await run.run(failed=False)
    assert (run.used_up, site.cancelled) == (True, 1)
