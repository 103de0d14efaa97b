"""A program comes back to its session and sends a prompt again under the same uuid, because it saw no answer."""

from __future__ import annotations

from tests.support.person.laptop import STREAMS, Here, line

FIRST, SECOND, NEW = (f"{n * 4}-{n * 2}-4{n[1:] * 3}-8{n[1:] * 3}-{n * 6}" for n in ("11", "22", "33"))


async def test_a_prompt_that_was_answered_before_gets_its_result_again_and_does_not_run(here: Here) -> None:
    here.model.add({"text": "one"}, {"text": "two"}, {"text": "three"})
    first = await here.run(*STREAMS, stdin=line("go", FIRST) + line("go on", SECOND))
    assert sum(each.get("subtype") == "init" for each in first.messages) == 2
    results = first.results
    assert [each["result"] for each in results] == ["one", "two"]

    words = [*STREAMS, "--resume", results[0]["session_id"]]
    again = await here.run(*words, stdin=line("go", FIRST) + line("and now?", NEW))
    told = {each["result"]: each for each in again.results}
    assert again.code == 0 and sorted(told) == ["one", "three"], again
    assert told["one"]["uuid"] == results[0]["uuid"] and told["one"]["user_message_uuids"] == [FIRST]
    states = [each["state"] for each in again.messages if each.get("command_uuid") == FIRST]
    assert states == ["queued", "started", "completed"]

    last = await here.run(*words, stdin=line("go on", SECOND))
    assert last.code == 0 and len(last.results) == 1
    assert len(here.model.requests) == 3
