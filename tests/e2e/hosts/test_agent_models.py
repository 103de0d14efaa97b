"""The models of an agent of others, over a real OpenSSH server: the laptop answers, the host holds no key."""

from __future__ import annotations

import pytest
from tests.e2e.hosts.test_foreign_agents import agent_of
from tests.support.hosts.host_search import found_on_host
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import processes_of
from tests.support.machine.waiting import until
from tests.support.model.fake_model import API_KEY
from tests.support.network.relay import relay
from tests.support.person.laptop import STDIO, STREAM, user_message

pytestmark = pytest.mark.visited

LONG = "A long answer that is cut in the middle, and goes on byte for byte."


async def test_an_answer_to_an_agent_goes_on_after_a_cut_and_is_paid_once(host: Host) -> None:
    host.model.add({"text": LONG, "stall_after": 4})
    async with relay(host.server.port) as between:
        argv = host.ssh("-p", "model:hi", *STREAM, *agent_of(host), port=between.port)
        async with host.laptop.start(argv, piped=False) as running:
            await host.model.until(lambda model: len(model.requests) == 1)
            between.cut()
            await until(lambda: between.connections == 2)
            host.model.release()
            done = await running.done()
    assert (done.code, done.texts[-1]) == (0, LONG), done.stderr
    assert len(host.model.requests) == 1


async def test_the_host_of_an_agent_holds_no_key_and_its_token_in_memory_and_environment_only(host: Host) -> None:
    host.model.add({"text": "the laptop's answer"})
    async with host.start("-p", *STDIO, *agent_of(host)) as running:
        await running.send(user_message("model:hi leak wait"))
        await running.until("assistant")
        (agent,) = [each for each in processes_of(host.user) if "acp_agent.py" in " ".join(each.cmdline())]
        token = agent.environ()["ANTHROPIC_BASE_URL"].rpartition("/")[2]
        assert len(token) > 40 and found_on_host(host, API_KEY) == []
        places = [each for each in found_on_host(host, token) if not each.startswith("the memory of")]
        assert places == [f"/proc/{agent.pid}/environ"]
