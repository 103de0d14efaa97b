"""A program comes back to its session and sends a prompt again under the same uuid, because it saw no answer."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import make_laptop

STREAMS = ["--output-format", "stream-json", "--verbose", "--input-format", "stream-json"]
FIRST, SECOND, NEW = (f"{n * 4}-{n * 2}-4{n[1:] * 3}-8{n[1:] * 3}-{n * 6}" for n in ("11", "22", "33"))


def line(text: str, identity: str) -> bytes:
    body = {"type": "user", "message": {"role": "user", "content": text}, "uuid": identity}
    return json.dumps(body).encode() + b"\n"


async def test_a_prompt_that_was_answered_before_gets_its_result_again_and_does_not_run(
    tmp_path: Path, fake_model: FakeModel
) -> None:
    laptop = make_laptop(tmp_path, fake_model.url)
    fake_model.add({"text": "one"}, {"text": "two"}, {"text": "three"})
    words = [str(tmp_path), *STREAMS]
    first = await laptop.run(words, stdin=line("go", FIRST) + line("go on", SECOND))
    results = [each for each in map(json.loads, first.stdout.splitlines()) if each["type"] == "result"]
    assert [each["result"] for each in results] == ["one", "two"]

    words += ["--resume", results[0]["session_id"]]
    again = await laptop.run(words, stdin=line("go", FIRST) + line("and now?", NEW))
    messages = [json.loads(each) for each in again.stdout.splitlines()]
    told = {each["result"]: each for each in messages if each["type"] == "result"}
    assert again.code == 0 and sorted(told) == ["one", "three"], again
    assert told["one"]["uuid"] == results[0]["uuid"] and told["one"]["user_message_uuids"] == [FIRST]
    states = [each["state"] for each in messages if each.get("command_uuid") == FIRST]
    assert states == ["queued", "started", "completed"]

    last = await laptop.run(words, stdin=line("go on", SECOND))
    assert last.code == 0 and [json.loads(each)["type"] for each in last.stdout.splitlines()].count("result") == 1
    assert len(fake_model.requests) == 3
