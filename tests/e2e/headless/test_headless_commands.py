"""Slash commands in headless runs: those of the laptop are answered there, with one result each, in the order of the
prompts."""

from __future__ import annotations

from tests.support.person.laptop import STREAM, STREAMS, Here, user_message


async def test_a_command_of_the_laptop_is_the_only_prompt_of_a_run(here: Here) -> None:
    here.model.add({"text": "Four."})
    first = await here.run("-p", "2+2?", *STREAM)
    session = first.results[0]["session_id"]
    resume = ["--resume", session, "-p"]
    cost = await here.run(*resume, "/cost")
    assert (cost.code, cost.stderr) == (0, "") and "tokens in" in cost.stdout and "$0.0" in cost.stdout
    told = await here.run(*resume, "/status", *STREAM)
    (result,) = told.results
    assert (result["subtype"], result["num_turns"], result["session_id"]) == ("success", 0, session)
    assert f"Host        this machine:{here.project}" in result["result"] and "claude-" in result["result"]
    refused = await here.run(*resume, "/vim")
    assert refused.code == 0 and "belongs to the screen of ccb" in refused.stdout
    assert len(here.model.requests) == 1


async def test_commands_and_prompts_that_come_at_once_are_answered_in_their_order(here: Here) -> None:
    (here.project / ".claude/commands").mkdir(parents=True)
    (here.project / ".claude/commands/tools.md").write_text("Count the hammers.")
    here.model.add({"text": "One."}, {"text": "Two."}, {"text": "Three."})
    async with here.start("-p", "--trust", *STREAMS) as run:
        cost = user_message("/cost", uuid="11111111-1111-4111-8111-111111111111")
        await run.send(user_message("first"), cost, *map(user_message, ("second", "/doctor", "/tools")))
        done = await run.finish()
    assert done.code == 0, done.stderr
    one, told, two, doctor, tools = [each["result"] for each in done.results]
    assert (one, two, tools) == ("One.", "Two.", "Three.") and "tokens in" in told and "Python" in doctor
    assert "Count the hammers." in here.model.requests[2].last_user_text, "a command of the project goes before"
    lifecycle = [each["state"] for each in done.messages if each["type"] == "command_lifecycle"]
    assert lifecycle == ["queued", "started", "completed"]
