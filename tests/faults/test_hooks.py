"""Hooks over a real sshd whose link is cut while one of them runs: each runs once, and none is left."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from tests.faults.runner import left_by
from tests.faults.test_sub_agents import argv, laptop_of, said
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.network.relay import Fault, relay


async def test_hooks_that_run_while_the_link_is_cut_run_once(tmp_path: Path, sshd: Sshd, host_user: HostUser) -> None:
    home = host_user.home
    command = "echo x >> hooked; while [ ! -e go ]; do sleep 0.05; done; echo said >&2; exit 2"
    (home / ".claude").mkdir()
    hook = {"type": "command", "command": command}
    (home / ".claude/settings.json").write_text(json.dumps({"hooks": {"PostToolUse": [{"hooks": [hook]}]}}))
    os.chmod(home / ".claude", 0o755)
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "echo once >> count"}}
    async with FakeModel([{"blocks": [call]}, {"text": "done"}]) as fake, relay(sshd.port) as between:
        async with laptop_of(tmp_path, fake).start([*argv(host_user, sshd, between.port), "--trust"]) as run:
            await run.send(said("go"))
            async with asyncio.timeout(40):
                while not (home / "hooked").exists():
                    await asyncio.sleep(0.02)
                between.faults.append(Fault("reset", between.down + 1, upward=False))
                while not between.faults[-1].happened:
                    await asyncio.sleep(0.02)
            (home / "go").touch()
            result = await run.until("result")
            run.end_input()
            done = await run.done()
        assert (done.code, result["result"]) == (0, "done"), done.stderr
        assert between.connections == 2
        assert (home / "hooked").read_text() == "x\n" and (home / "count").read_text() == "once\n"
        assert "hook feedback:\\nsaid" in json.dumps(fake.requests[-1].messages[-1])
        assert len(fake.requests) == 2
    assert await left_by(host_user) == []
