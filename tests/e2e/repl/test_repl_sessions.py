"""One REPL shows several sessions of a host, one after the other, over one login."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.local.ports.test_port_forwards import free_port
from tests.support.hosts.reached_host import Host

pytestmark = pytest.mark.visited

_LEFT = re.compile("Before this: session ([0-9a-f]{8})")


async def test_a_new_session_and_the_way_back_need_no_second_login(host: Host) -> None:
    host.model.add({"text": "Answer-one."}, {"text": "Answer-two."}, {"text": "Answer-three."})
    async with host.on_terminal() as running:
        await running.shows("F1 or /help")
        running.type("the first one\r")
        await running.shows("Answer-one.")
        running.type("/new\r")
        await running.shows("Before this: session")
        running.type("the second one\r")
        await running.shows("Answer-two.")
        running.type("/resume first one\r")
        await running.shows("1 of 2 sessions")
        running.type("\r")
        await running.until(lambda: len(set(_LEFT.findall(running.text))) == 2)
        running.type("and on\r")
        await running.shows("Answer-three.")
        running.type("\x04")
        assert await running.ended() == 0
    asked = [[message["content"][-1]["text"] for message in each.messages] for each in host.model.requests]
    assert asked[1] == ["the second one"], "the second session begins empty"
    assert asked[2] == ["the first one", "Answer-one.", "and on"]
    assert host.server.logins == 1


async def test_move_takes_the_session_and_the_person_to_another_machine(host: Host, project: Path) -> None:
    host.model.add({"text": "Answer-one."}, {"text": "Answer-two."})
    async with host.on_terminal("--reverse", str(free_port())) as running:
        await running.answer("1")
        await running.shows("of the host leads to port")
        running.type("the first one\r")
        await running.shows("Answer-one.")
        running.type(f"/move {project}\r")
        await running.shows("Take the files along")
        running.type("no\r")
        start = len(running.written)
        await running.until(lambda: "Answer-one." in running.text_from(start))
        running.type("and on\r")
        await running.shows("Answer-two.")
        running.type("\x04")
        assert await running.ended() == 0
        assert "leads to port" not in running.text_from(start), "the other machine was not meant"
    asked = json.dumps(host.model.requests[-1].body)
    assert "Answer-one." in asked and f"holds below {project}" in asked
