"""A rewind whose worker is killed at any of its steps, and whose request is sent again, happens once and as a whole."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.features.steering.test_file_history import OPTIONS, texts, turn, worked
from tests.remote.worker_process import WorkerHost, until, worker_host

from ccb.tunnel.wire.frames import Input

DIES = """
import os
import ccb.remote.system.regular_files as regular_files
restore, left = regular_files.restore_file, [%d]
def dies(*args):
    if not left[0]:
        os.kill(os.getpid(), 9)
    left[0] -= 1
    return restore(*args)
regular_files.restore_file = dies
"""


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[WorkerHost]:
    async with worker_host(tmp_path / "home") as made:
        yield made


@pytest.mark.parametrize("restored", [0, 1, 2])
@pytest.mark.quick_rows(1)
async def test_a_rewind_happens_once_whatever_kills_its_worker(host: WorkerHost, restored: int) -> None:
    session = str(uuid.uuid4())
    host.prelude = DIES % restored
    laptop = await worked(host, session)
    request = {"subtype": "rewind_conversation", "user_message_id": "u1", "files": True}
    body = {"type": "control_request", "request_id": "r1", "request": request}
    await laptop.send(Input(laptop.epoch, "in-rewind", body))
    while await laptop.read():
        pass
    host.prelude = ""
    again = await host.connect(session)
    await again.attach(OPTIONS)
    await again.send(Input(again.epoch, "in-rewind", body))  # nobody has confirmed it
    before = {"a.txt": "one\ntwo\n", "b.txt": "b\n"}
    await until(lambda: texts(host) == before, "the files are as they were")
    assert len((await turn(again, "u3"))["messages"]) == 1
    points = (await again.request("rewind_points"))["response"]["points"]
    assert [(point["id"], point["files"]) for point in points] == [("u3", 0)]
    lines = (host.state(session) / "journal.jsonl").read_text().splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert (kinds.count("rewind"), kinds.count("rewound")) == (1, 1)
