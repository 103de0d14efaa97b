"""Servers with odd schemas, odd answers and odd launchers, beside the agent and on the laptop."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support import odd_mcp_server
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.odd_mcp_server import LAUNCHER, MIXED, marked_processes
from tests.support.person.laptop import tidy_laptop

from ccb.tunnel.wire.json_schema import tool_schema

ODD, LONG = "gr\u00f6\u00dfe in $", "x" * 70


@pytest.mark.parametrize("place", ["host", "laptop"])
async def test_a_session_with_an_odd_server_works_and_leaves_nothing(
    tmp_path: Path, fake_model: FakeModel, place: str
) -> None:
    mark, project = uuid4().hex, tmp_path / "project"
    project.mkdir()
    args = ["-c", LAUNCHER, sys.executable, odd_mcp_server.__file__]
    described = json.dumps({"mcpServers": {"odd": {"command": "sh", "args": args, "env": {"MARK": mark}}}})
    spelled = {name: short for short, name in tool_schema(MIXED).spelled.items()}
    fake_model.add(uses("mcp__odd__mixed", **{spelled[ODD]: 5.0, spelled[LONG]: "x", "any": [1], "nothing": 2}))
    fake_model.add({"text": "done"})
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        file = project / ".mcp.json" if place == "host" else laptop.home / ".config/ccb/settings.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(described)
        argv = [str(project), "--trust", "-p", "go", "--allowedTools", "mcp__odd", "--output-format", "stream-json"]
        done = await laptop.run([*argv, "--verbose"])
        ended = time.monotonic()
        assert done.code == 0, done.stderr
        if place == "laptop":
            assert marked_processes(mark) == []
    while marked_processes(mark) and time.monotonic() < ended + 30:
        time.sleep(0.05)
    assert marked_processes(mark) == []
    first, second = fake_model.requests[-2:]
    assert first.body is not None
    (declared,) = [each for each in first.body["tools"] if each["name"].startswith("mcp__")]
    assert not {"anyOf", "required"} & declared["input_schema"].keys()
    assert all(re.fullmatch("[a-zA-Z0-9_.-]{1,64}", name) for name in declared["input_schema"]["properties"])
    assert '"anyOf":[{"required":["any"]}' in declared["description"]
    (result,) = second.messages[-1]["content"]
    text = result["content"][0]["text"] if isinstance(result["content"], list) else result["content"]
    given, _, rest = text.partition(" \ufffd ")
    assert json.loads(given) == {ODD: 5, LONG: "x", "any": [1], "nothing": 2} and rest in ("?", "\ufffd")
    warned = [line["content"] for line in done.messages if line.get("subtype") == "informational"]
    (told,) = [each for each in warned if "shapeless" in each]
    assert "left out, because they have no name or no schema: shapeless, 5" in told
    assert "described to the model in a form that its API takes: mixed" in told
