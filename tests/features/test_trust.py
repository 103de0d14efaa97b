"""Nothing of a project counts before the person has trusted it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from tests.remote.agent_kit import calls, content, says
from tests.remote.worker_process import Laptop, WorkerHost

from ccb.tunnel.wire import Input, SessionOptions
from ccb.tunnel.wire.options import SettingsOption
from ccb.tunnel.wire.requests import Success, public_answer

Json = dict[str, Any]

SETTINGS = {"permissions": {"allow": ["Bash(touch *)"]}, "hooks": {"Stop": [{"hooks": [{"command": "id > /tmp/x"}]}]}}


def bring(project: Path, values: Json) -> None:
    (project / ".claude").mkdir(exist_ok=True)
    (project / ".claude/settings.json").write_text(json.dumps(values))


def options(**given: Any) -> SessionOptions:
    return SessionOptions(settings=SettingsOption(**given).to_json())


async def answer(laptop: Laptop, *, trusted: bool) -> Json:
    """Answer the question about trust, and return it."""
    asked = await laptop.message("control_request")
    assert asked["request"]["subtype"] == "trust_project"
    reply = public_answer(Success(asked["request_id"], {"trusted": trusted}))
    await laptop.send(Input(laptop.epoch, f"answer-{asked['request_id']}", reply))
    request: Json = asked["request"]
    return request


async def touch(laptop: Laptop, name: str = "made") -> str:
    """Let the model touch a file in a turn of its own; return the tool's result."""
    await laptop.say("go")
    opened, _ = await laptop.call()
    await laptop.answer(opened, content(calls((f"toolu_{name}", "Bash", {"command": f"touch {name}"}))))
    opened, body = await laptop.call()
    await laptop.answer(opened, content(says("done", f"msg_{name}")))
    await laptop.message("result")
    return json.dumps(json.loads(body)["messages"][-1])


async def test_an_allow_rule_of_the_project_counts_after_the_person_has_trusted_it(
    host: WorkerHost, session: str
) -> None:
    bring(host.project, SETTINGS)
    laptop = await host.connect(session)
    await laptop.attach()
    asked = await answer(laptop, trusted=True)
    assert asked["directory"] == str(host.project)
    shown = [(each["kind"], each["name"], each["detail"]) for each in asked["switches"]]
    assert shown == [("hook", "Stop", "id > /tmp/x"), ("allow", "Bash(touch *)", "")]
    await touch(laptop)
    assert (host.project / "made").exists()


async def test_a_file_with_a_wrong_value_or_rule_does_not_count_and_is_named_with_its_line(
    host: WorkerHost, session: str
) -> None:
    for values, said in (
        ({"env": {"A": 1}, "permissions": {"allow": ["Bash(touch *)"]}}, "line 1: env.A has a wrong value"),
        ({"permissions": {"allow": ["Bash(touch *)"], "deny": ["Read(("]}}, "settings.json: permission rule 'Read(('"),
    ):
        bring(host.project, values)
        laptop = await host.connect(str(uuid.uuid4()))
        await laptop.attach()
        asked = await answer(laptop, trusted=True)
        assert asked["switches"] == [] and said in asked["problems"][0]
        assert "was not granted" in await touch(laptop)
    assert not (host.project / "made").exists()


async def test_variables_of_the_project_reach_its_commands_after_trust(host: WorkerHost, session: str) -> None:
    bring(host.project, {"env": {"NAME": "made"}, "permissions": {"allow": ["Bash"]}})
    laptop = await host.connect(session)
    await laptop.attach()
    await answer(laptop, trusted=True)
    await touch(laptop, '"$NAME"')
    assert (host.project / "made").exists()


async def test_without_trust_no_rule_of_the_project_counts(host: WorkerHost, session: str) -> None:
    bring(host.project, SETTINGS)
    laptop = await host.connect(session)
    await laptop.attach()
    await answer(laptop, trusted=False)
    assert "was not granted" in await touch(laptop)
    assert not (host.project / "made").exists()


async def test_what_was_trusted_is_not_asked_again_until_it_changes(host: WorkerHost, session: str) -> None:
    bring(host.project, SETTINGS)
    laptop = await host.connect(session)
    await laptop.attach()
    fingerprint = (await answer(laptop, trusted=True))["fingerprint"]
    other = await host.connect(str(uuid.uuid4()))
    await other.attach(options(trusted=fingerprint))
    await touch(other)
    assert (host.project / "made").exists()
    bring(host.project, {**SETTINGS, "env": {"A": "b"}})
    third = await host.connect(str(uuid.uuid4()))
    await third.attach(options(trusted=fingerprint))
    assert (await answer(third, trusted=False))["fingerprint"] != fingerprint
