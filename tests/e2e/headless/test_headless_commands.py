"""Slash commands in headless runs: those of the laptop are answered there, with one result each, in the order of the
prompts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.headless.test_headless_local import STREAMS, user
from tests.support.hosts.whole_session import STREAM
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Laptop, tidy_laptop


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Iterator[Laptop]:
    with tidy_laptop(tmp_path, fake_model.url) as laptop:
        yield laptop


async def test_a_command_of_the_laptop_is_the_only_prompt_of_a_run(
    laptop: Laptop, fake_model: FakeModel, project: Path
) -> None:
    fake_model.add({"text": "Four."})
    first = await laptop.run([str(project), "-p", "2+2?", *STREAM])
    session = first.results[0]["session_id"]
    resume = [str(project), "--resume", session, "-p"]
    cost = await laptop.run([*resume, "/cost"])
    assert (cost.code, cost.stderr) == (0, "") and "tokens in" in cost.stdout and "$0.0" in cost.stdout
    told = await laptop.run([*resume, "/status", *STREAM])
    (result,) = told.results
    assert (result["subtype"], result["num_turns"], result["session_id"]) == ("success", 0, session)
    assert f"Host        local:{project}" in result["result"] and "claude-" in result["result"]
    refused = await laptop.run([*resume, "/vim"])
    assert refused.code == 0 and "belongs to the screen of ccb" in refused.stdout
    assert len(fake_model.requests) == 1


async def test_commands_and_prompts_that_come_at_once_are_answered_in_their_order(
    laptop: Laptop, fake_model: FakeModel, project: Path
) -> None:
    (project / ".claude/commands").mkdir(parents=True)
    (project / ".claude/commands/tools.md").write_text("Count the hammers.")
    fake_model.add({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    async with laptop.start([str(project), "-p", "--trust", *STREAMS]) as run:
        await run.send(
            user("first"), user("/cost", uuid="11111111-1111-4111-8111-111111111111"), user("second"),
            user("/doctor"), user("/tools"),
        )  # fmt: skip
        run.end_input()
        done = await run.done()
    assert done.code == 0, done.stderr
    one, cost, two, doctor, tools = [each["result"] for each in done.results]
    assert (one, two, tools) == ("One.", "Two.", "Three.") and "tokens in" in cost and "Python" in doctor
    assert "Count the hammers." in fake_model.requests[2].last_user_text, "a command of the project goes before"
    lifecycle = [each["state"] for each in done.messages if each["type"] == "command_lifecycle"]
    assert lifecycle == ["queued", "started", "completed"]
