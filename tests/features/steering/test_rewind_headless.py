"""Going back from the command line."""

from __future__ import annotations

import json

from tests.support.model.model_script import uses
from tests.support.person.laptop import STREAMS, Here, line

MESSAGE, LATER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"


async def test_files_and_conversation_go_back_by_options(here: Here) -> None:
    made = here.project / "new.txt"
    here.model.add(uses("Write", file_path=str(made), content="x"))
    here.model.add({"text": "made"}, {"text": "second"}, {"text": "third"})
    words = [*STREAMS, "--allowedTools", "Write"]
    messages = (await here.run(*words, stdin=line("go", MESSAGE))).messages
    session = messages[-1]["session_id"]
    answer = next(each for each in messages if each["type"] == "assistant" and "made" in json.dumps(each))
    await here.run(*words, "--resume", session, stdin=line("forget this", LATER))

    early = next(each for each in messages if each["type"] == "assistant")
    for keep, drops, why in ((answer, MESSAGE, "another prompt"), (early, LATER, "not the last one of its turn")):
        at = [*words, "--resume", session, f"--resume-session-at={keep['uuid']}", f"--resume-drops-turn={drops}"]
        refused = await here.run(*at, stdin=line("again", "55555555-5555-4555-8555-555555555555"))
        result = refused.messages[-1]
        assert result["subtype"] == "error_during_execution" and len(here.model.requests) == 3
        assert result["errors"][0].startswith("Resume rejected by --resume-drops-turn:") and why in result["errors"][0]

    at = [*words, "--resume", session, "--resume-session-at", answer["uuid"], "--resume-drops-turn", LATER]
    third = await here.run(*at, stdin=line("again", "33333333-3333-4333-8333-333333333333"))
    assert third.code == 0, third
    sent = json.dumps(here.model.requests[-1].messages)
    assert "made" in sent and "again" in sent and "forget this" not in sent

    restored = await here.run("--resume", session, "--rewind-files", MESSAGE)
    assert restored.code == 0 and "put back: " in restored.stderr, restored
    assert not made.exists()
    refused = await here.run("--resume", session, "--rewind-files", LATER)
    assert refused.code == 2 and "the files were not put back: “No prompt with the id" in refused.stderr
    at = [*words, "--resume", session, "--resume-session-at", LATER]
    refused = await here.run(*at, stdin=line("again", "44444444-4444-4444-8444-444444444444"))
    assert refused.code == 2 and "the session cannot go on from that message" in refused.stderr
    for words in (
        ["--rewind-files", "x"],
        ["--resume", session, "--resume-session-at", MESSAGE],
        ["-p", "x", "--resume", session, "--resume-drops-turn", LATER],
    ):
        refused = await here.run(*words)
        assert refused.code == 2, refused
