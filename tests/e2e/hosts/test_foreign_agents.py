"""Agents of others on a host over a real OpenSSH server: connections are lost, workers are killed, terminals leave."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.person.laptop import STREAM

pytestmark = pytest.mark.visited

_AGENT = Path(__file__).resolve().parents[2] / "support" / "acp_agent.py"


def agent_of(host: Host, *options: str) -> list[str]:
    """Put the scripted agent on the host. Return the options that let it work."""
    program = host.put("acp_agent.py", _AGENT.read_bytes())
    return ["--agent", shlex.join(["python3", str(program), str(host.home / "agent.log"), *options])]


async def test_a_headless_run_shows_what_an_agent_of_others_does(host: Host) -> None:
    done = await host.run("-p", "think:hm say:I_look edit say:all_done", *STREAM, *agent_of(host))
    assert (done.code, done.texts[-1]) == (0, "all done"), done.stderr
    await until(lambda: not processes_of(host.user))
