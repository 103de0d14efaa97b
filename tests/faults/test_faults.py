"""Sessions whose links are cut, frozen and garbled at chosen bytes, and whose processes are killed, come out like
undisturbed ones: the same transcript, every side effect once, no model call paid twice, nothing left behind."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tests.faults.check import check
from tests.faults.plan import Plan, plan
from tests.faults.runner import Outcome, play
from tests.faults.scenario import COUNTS
from tests.support.hosts.sshd import HostUser, Sshd

FIRST, COUNT = (int(part) for part in os.environ.get("CCB_FAULT_SEEDS", "1:40").split(":"))
LOG = os.environ.get("CCB_FAULT_LOG", "")


def test_the_undisturbed_session_does_all_of_its_work(undisturbed: Outcome) -> None:
    assert undisturbed.counts == COUNTS
    assert undisturbed.files == {"edit.txt": "new line\nkept line\n", "new.txt": "written once\n"}
    assert undisturbed.requests == 7
    assert undisturbed.left == []
    assert undisturbed.connections == 1


@pytest.mark.timeout(180)
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
async def test_a_disturbed_session_comes_out_the_same(
    seed: int, undisturbed: Outcome, tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    planned = plan(seed, long=bool(LOG))
    wrong = ""
    outcome = Outcome()
    try:
        outcome = await play(planned, tmp_path, host_user, sshd, debug=bool(LOG))
        wrong = check(planned, outcome, undisturbed)
    except Exception as error:  # noqa: BLE001 - whatever it is belongs to this seed
        wrong = f"it did not come to an end: {error!r}"
    finally:
        if LOG:
            _note(planned, outcome, wrong)
    assert not wrong, wrong


def _note(planned: Plan, outcome: Outcome, wrong: str) -> None:
    """One line for the table of `make faults`."""
    processes = [planned.ending] if planned.ending else []
    line = {
        "seed": planned.seed,
        "plan": str(planned),
        "happened": outcome.happened + processes + (["offline prompt"] if planned.offline else []),
        "connections": outcome.connections,
        "recovered_s": outcome.recovered_s,
        "replayed": outcome.replayed,
        "seconds": outcome.seconds,
        "wrong": wrong,
        "evidence": outcome.evidence if wrong else "",
    }
    with Path(LOG).open("a") as log:
        log.write(json.dumps(line) + "\n")
