"""Sessions whose links are cut, frozen and garbled at chosen bytes, and whose processes are killed, come out like
undisturbed ones: the same transcript, every side effect once, no model call paid twice, nothing left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.faults.conftest import Reference
from tests.faults.play.check import check
from tests.faults.play.host import agent_of
from tests.faults.play.outcome import Outcome
from tests.faults.play.plan import Plan, plan
from tests.faults.play.runner import play
from tests.faults.work.work import WORKS
from tests.support.hosts.sshd import HostUser, Sshd

FIRST, COUNT = (int(part) for part in os.environ.get("CCB_FAULT_SEEDS", "1:12").split(":"))
LOG = os.environ.get("CCB_FAULT_LOG", "")


@pytest.mark.parametrize("name", WORKS)
@pytest.mark.quick_rows(1)
async def test_the_undisturbed_session_does_all_of_its_work(name: str, reference: Reference) -> None:
    found, work = await reference(name), WORKS[name]
    assert (sorted(found.counts) if work.parallel else found.counts) == (
        sorted(work.counts) if work.parallel else work.counts
    )
    assert len(found.hooked) == len(set(found.hooked)) and bool(found.hooked) == work.hooked
    if name == "basics":
        assert found.files == {"edit.txt": "new line\nkept line\n", "new.txt": "written once\n"}
    assert found.near == work.near and [agent_of(path) for path in found.trees] == work.kept
    assert found.requests == work.requests
    assert found.left == [] and found.connections == 1


@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
@pytest.mark.quick_rows(1)
async def test_a_disturbed_session_comes_out_the_same(
    seed: int, reference: Reference, tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    planned = plan(seed, long=bool(LOG))
    wrong = ""
    outcome = Outcome()
    try:
        outcome = await play(planned, tmp_path, host_user, sshd, debug=bool(LOG))
        wrong = check(planned, outcome, await reference(planned.work))
    except Exception as error:  # noqa: BLE001 - whatever it is belongs to this seed
        wrong = f"it did not come to an end: {error!r}"
    finally:
        if LOG:
            _note(planned, outcome, wrong)
    assert not wrong, wrong


def _note(planned: Plan, outcome: Outcome, wrong: str) -> None:
    processes = [planned.ending] if planned.ending else []
    line = {
        "seed": planned.seed,
        "plan": str(planned),
        "happened": outcome.happened + processes + (["offline prompt"] if planned.offline else []),
        **{name: vars(outcome)[name] for name in ("connections", "recovered_s", "seconds")},
        "wrong": wrong,
        "evidence": outcome.evidence if wrong else "",
    }
    with Path(LOG).open("a") as log:
        log.write(json.dumps(line) + "\n")
