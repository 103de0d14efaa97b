"""Agents of others in a session of the real worker: what clients see of them, and what survives what."""

from __future__ import annotations

import json
import os
import shlex
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.remote.agent_kit import Json
from tests.remote.worker_process import Laptop, WorkerHost, alive, file_limit, until

from ccb.tunnel.wire.frames import Detach, Progress
from ccb.tunnel.wire.session_options import SessionOptions

_AGENT = Path(__file__).resolve().parents[2] / "support" / "acp_agent.py"


class Foreign:
    """A session in which the scripted agent works. `options` are words for it."""

    def __init__(self, host: WorkerHost, *options: str) -> None:
        self.host, self.session, self.log = host, str(uuid.uuid4()), host.home / "agent.log"
        self.command = shlex.join([sys.executable, str(_AGENT), str(self.log), *options])

    async def drive(self, *, have: int = 0, **options: Any) -> Laptop:
        fields = {"permission_prompts": "stdio", "client": "alice@laptop pid 1 aa", **options}
        return await self.host.drive(self.session, SessionOptions(foreign_agent=self.command, **fields), have=have)

    def named_gemini(self) -> Foreign:
        """The same agent under a name that ccb knows."""
        program = self.host.home / "gemini"
        program.write_text(f"#!/bin/sh\nexec {self.command}\n")
        program.chmod(0o755)
        self.command = f"{program} --acp"
        return self

    def notes(self, method: str) -> list[Json]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [each["params"] for each in lines if each.get("method") == method]

    def outcomes(self) -> list[str]:
        """What the agent was answered to its questions."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return [each["result"]["outcome"].get("optionId", "") for each in lines if "result" in each]

    def said(self) -> list[Json]:
        """The public messages in the journal, without those that only begin a turn."""
        bodies = [each["body"] for each in self.host.journal(self.session) if each["kind"] == "message"]
        return [each for each in bodies if each.get("subtype") != "init"]


def blocks(messages: list[Json]) -> list[Json]:
    return [block for each in messages if each["type"] in ("assistant", "user") for block in each["message"]["content"]]


async def turn(laptop: Laptop, prompt: str) -> Json:
    await laptop.say(prompt)
    return await laptop.message("result")


async def test_what_an_agent_says_is_public_messages(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive(partial_messages=True)
    result = await turn(laptop, "think:hm_well say:I_look plan terminal edit title:Mended say:all_done")
    assert (result["subtype"], result["result"], result["total_cost_usd"]) == ("success", "all done", 0.25)
    said = foreign.said()
    shown = [{name: value for name, value in block.items() if name in ("type", "text", "thinking", "name", "input")}
             for block in blocks(said) if block["type"] != "tool_result"]  # fmt: skip
    todos = [{"content": "look", "status": "completed"}, {"content": "mend", "status": "pending"}]
    edited = {"file_path": str(host.project / "a.py"), "old_string": "old", "new_string": "new"}
    assert shown == [
        {"type": "thinking", "thinking": "hm well"},
        {"type": "text", "text": "I look"},
        {"type": "tool_use", "name": "TodoWrite", "input": {"todos": todos}},
        {"type": "tool_use", "name": "Bash", "input": {"command": "touch made", "description": "touch made"}},
        {"type": "tool_use", "name": "Edit", "input": edited},
        {"type": "text", "text": "all done"},
    ]
    uses = [block["id"] for block in blocks(said) if block["type"] == "tool_use"]
    results = {block["tool_use_id"]: block for block in blocks(said) if block["type"] == "tool_result"}
    assert list(results) == uses
    assert results[uses[1]]["content"] == "Exit code 3\none\ntwo" and results[uses[1]]["is_error"]
    assert next(each["title"] for each in said if each.get("subtype") == "session_title_changed") == "Mended"
    live = [frame.body for frame in laptop.frames if isinstance(frame, Progress)]
    deltas = [each["event"].get("delta", {}) for each in live if each["type"] == "stream_event"]
    assert "".join(each["text"] for each in deltas if each.get("type") == "text_delta") == "I lookall done"
    assert [each["output"] for each in live if each["type"] == "tool_progress"][-1] == "one\ntwo\n"
    await laptop.end()


@pytest.mark.parametrize(
    ("answer", "chosen"),
    [
        ({"behavior": "allow", "updatedInput": {}}, "allow_once"),
        (
            {"behavior": "allow", "updatedPermissions": [{"type": "agentOption", "option": "allow_always"}]},
            "allow_always",
        ),
        ({"behavior": "allow", "updatedPermissions": [{"type": "agentOption", "option": "reject_once"}]}, "allow_once"),
        ({"behavior": "deny", "message": "no"}, "reject_once"),
        ({}, "reject_once"),
    ],
)
async def test_the_person_answers_what_an_agent_asks(host: WorkerHost, answer: Json, chosen: str) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say("ask say:done")
    asked = await laptop.message("control_request")
    request = asked["request"]
    assert (request["tool_name"], request["input"]["command"]) == ("Bash", "touch made")
    always = {"type": "agentOption", "option": "allow_always", "name": "allow_always touch"}
    assert request["permission_suggestions"] == [always]
    await laptop.reply(asked["request_id"], answer)
    assert (await laptop.message("result"))["result"] == "done"
    (result,) = [block for block in blocks(foreign.said()) if block["type"] == "tool_result"]
    assert foreign.outcomes() == [chosen] and result.get("is_error", False) is (chosen == "reject_once")
    await laptop.end()


@pytest.mark.parametrize(
    ("mode", "prompt", "outcome"),
    [("bypassPermissions", "ask", "allow_once"), ("plan", "ask", "reject_once"), ("dontAsk", "ask", "reject_once")],
)
async def test_a_permission_mode_answers_in_place_of_the_person(
    host: WorkerHost, mode: str, prompt: str, outcome: str
) -> None:
    host.more_env["IS_SANDBOX"] = "1"
    foreign = Foreign(host)
    laptop = await foreign.drive(permission_mode=mode, allow_bypass=True)
    await turn(laptop, prompt)
    assert foreign.outcomes() == [outcome]
    assert [each["modeId"] for each in foreign.notes("session/set_mode")] == (["plan"] if mode == "plan" else [])
    await laptop.end()


async def test_nobody_can_be_asked_in_a_run_without_a_person(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive(permission_prompts="none")
    denied = (await turn(laptop, "ask"))["permission_denials"]
    assert foreign.outcomes() == ["reject_once"] and [each["tool_name"] for each in denied] == ["Bash"]
    assert "asked for touch made. Nobody can be asked here: refused." in json.dumps(foreign.said())
    await laptop.end()


async def test_a_question_waits_for_the_next_connection_and_is_asked_once(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say("ask say:done")
    asked = await laptop.message("control_request")
    await laptop.drop()
    again = await foreign.drive(have=laptop.last_seq)
    await again.reply(asked["request_id"], {"behavior": "allow"})
    assert (await again.message("result"))["result"] == "done"
    assert len([each for each in foreign.said() if each["type"] == "control_request"]) == 1
    await again.end()


@pytest.mark.parametrize("words", ["wait", "ask"])
async def test_an_interrupted_agent_ends_its_turn_and_lives_on(host: WorkerHost, words: str) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say(words)
    await (laptop.message("control_request") if words == "ask" else laptop.message("assistant"))
    await laptop.request("interrupt")
    result = await laptop.message("result")
    assert (result["subtype"], result["errors"]) == ("error_during_execution", ["Request interrupted by user"])
    uses = [block["id"] for block in blocks(foreign.said()) if block["type"] == "tool_use"]
    assert uses == [block["tool_use_id"] for block in blocks(foreign.said()) if block["type"] == "tool_result"]
    assert (await turn(laptop, "say:again"))["result"] == "again"
    assert len([line for line in foreign.log.read_text().splitlines() if "environment" in line]) == 1
    await laptop.end()


async def test_an_agent_hears_of_an_interrupt_before_its_question_is_answered(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say("ask")
    await laptop.message("control_request")
    await laptop.request("interrupt")
    await laptop.message("result")
    lines = [json.loads(line) for line in foreign.log.read_text().splitlines()]
    heard = [each.get("method") or "the answer" for each in lines if "params" in each or "result" in each]
    assert heard[-2:] == ["session/cancel", "the answer"]
    await laptop.end()


async def test_gemini_which_loses_the_result_of_an_interrupted_call_begins_anew(host: WorkerHost) -> None:
    foreign = Foreign(host, "gateway").named_gemini()
    laptop = await foreign.drive()
    await turn(laptop, "say:first")
    await laptop.say("wait")
    await laptop.message("assistant")
    await laptop.say("say:again", "queued")
    await laptop.request("interrupt")
    assert (await laptop.message("result"))["errors"] == ["Request interrupted by user"]
    assert (await laptop.message("result"))["result"] == "again"
    assert (await turn(laptop, "say:again"))["result"] == "again"
    assert len({each["sessionId"] for each in foreign.notes("session/prompt")}) == 2
    assert "does not know this conversation" in json.dumps(foreign.said())
    await laptop.end()


async def test_an_agent_that_ignores_an_interrupt_is_ended(host: WorkerHost) -> None:
    foreign = Foreign(host, "deaf")
    laptop = await foreign.drive()
    await laptop.say("wait")
    await laptop.message("assistant")
    await laptop.request("interrupt")
    await laptop.message("result")
    assert "did not stop, so it was ended" in json.dumps(foreign.said())
    assert (await turn(laptop, "say:again"))["result"] == "again"
    await laptop.end()


@pytest.mark.parametrize(("options", "is_loaded"), [(["load"], True), ([], False)])
@pytest.mark.parametrize("killed", ["agent", "worker"])
async def test_a_dead_agent_is_started_again_and_says_what_it_knows(
    host: WorkerHost, options: list[str], is_loaded: bool, killed: str
) -> None:
    foreign = Foreign(host, *options)
    laptop = await foreign.drive()
    if killed == "agent":
        result = await turn(laptop, "say:first die")
        assert (
            result["is_error"] and "ended with exit code 1: it has died. The turn ends with it." in result["errors"][0]
        )
        assert [block["text"] for block in blocks(foreign.said())] == ["firstlast words"]
    else:
        await turn(laptop, "say:first")
        await laptop.say("wait")
        await laptop.message("assistant")
        await laptop.kill()
        laptop = await foreign.drive(have=laptop.last_seq)
        await laptop.message("result")
    assert (await turn(laptop, "say:again"))["result"] == "again"
    assert bool(foreign.notes("session/load")) is is_loaded
    told = "It does not know this conversation" in json.dumps(foreign.said())
    assert told is not is_loaded
    assert "what was said before" not in json.dumps(foreign.said())
    await laptop.end()


@pytest.mark.parametrize("options", [["gateway"], ["providers"], []])
async def test_the_address_of_the_models_goes_in_band_or_into_the_environment_of_the_agent(
    host: WorkerHost, options: list[str]
) -> None:
    foreign = Foreign(host, *options)
    laptop = await foreign.drive()
    await turn(laptop, "say:hello")
    told = [each["_meta"]["gateway"]["baseUrl"] for each in foreign.notes("authenticate")]
    if options == ["providers"]:
        sent = foreign.notes("providers/set")
        told = [each["baseUrl"].removesuffix("/v1") for each in sent]
        assert [(each["providerId"], each["apiType"]) for each in sent] == [("main", "anthropic"), ("codex", "openai")]
        assert sent[1]["baseUrl"].endswith("/v1") and len({*told}) == 1
    assert bool(told) is bool(options) and all(each.startswith("http://127.0.0.1:") for each in told)
    first = json.loads(foreign.log.read_text().splitlines()[0])
    assert "ANTHROPIC_BASE_URL" in first["environment"]  # a command that ccb does not know gets both
    assert "127.0.0.1" not in json.dumps(first["argv"])
    assert (await turn(laptop, "leak"))["result"].endswith("/...")
    token = told[0].rpartition("/")[2] if told else ""
    kept = [path.read_bytes() for path in host.home.rglob("*") if path.is_file() and path != foreign.log]
    assert not any(token and token.encode() in each for each in kept)
    await laptop.end()


async def test_model_and_mode_of_the_session_are_those_of_the_agent(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive(model="large", max_turns=3)
    init = await turn_begin(laptop, "say:hello")
    assert init["model"] == "large-2" and init["sandbox"].startswith("no cage: ")
    assert [each["value"] for each in foreign.notes("session/set_config_option")] == ["large-2"]
    assert "does not take it: --max-turns" in json.dumps(foreign.said())
    await laptop.request("set_model", model="small-1")
    await laptop.request("set_permission_mode", mode="plan")
    assert (await turn_begin(laptop, "say:on"))["model"] == "small-1"
    assert [each["value"] for each in foreign.notes("session/set_config_option")] == ["large-2", "small-1"]
    assert [each["modeId"] for each in foreign.notes("session/set_mode")] == ["plan"]
    await laptop.request("set_model", model="no-such-9")
    await turn(laptop, "say:on")
    assert "has no model 'no-such-9'. It offers small-1, large-2." in json.dumps(foreign.said())
    described = (await laptop.request("initialize"))["response"]
    assert [each["value"] for each in described["models"]] == ["small-1", "large-2"]
    assert "tidy" in [each["name"] for each in described["commands"]]
    await laptop.end()


async def test_a_model_of_another_maker_is_that_of_a_session_with_gemini(host: WorkerHost) -> None:
    foreign = Foreign(host, "gateway").named_gemini()
    aliases = {"mine": "openai/gpt-5"}
    laptop = await foreign.drive(model="mine", model_aliases=aliases)
    assert (await turn_begin(laptop, "say:hello"))["model"] == "openai/gpt-5"
    await laptop.request("set_model", model="large-2")
    assert (await turn_begin(laptop, "say:on"))["model"] == "openai/gpt-5"
    said = [each["content"] for each in foreign.said() if each.get("subtype") == "informational"]
    assert said == ["gemini has no model 'large-2'. It offers openai/gpt-5."]
    await laptop.kill()
    laptop = await foreign.drive(have=laptop.last_seq, model_aliases=aliases)
    assert (await turn_begin(laptop, "say:again"))["model"] == "openai/gpt-5"
    told = [each["_meta"]["gateway"]["baseUrl"] for each in foreign.notes("authenticate")]
    assert len(told) == 2 and all(each.endswith("/instead/openai%2Fgpt-5") for each in told)
    await laptop.end()


async def turn_begin(laptop: Laptop, prompt: str) -> Json:
    """Run a turn, and return how it began."""
    await laptop.say(prompt)
    init = await laptop.message("system", "init")
    await laptop.message("result")
    return init


async def test_prompts_with_pictures_and_commands_reach_the_agent(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
    await laptop.say([{"type": "text", "text": "say:see"}, picture])
    await laptop.message("result")
    (sent,) = foreign.notes("session/prompt")
    kinds = [{name: each.get(name) for name in ("type", "mimeType") if name in each} for each in sent["prompt"]]
    assert kinds == [{"type": "text"}, {"type": "image", "mimeType": "image/png"}]
    context = await turn(laptop, "/context")
    assert "small-1: 1.2k of 100.0k tokens (1 %)" in context["result"] and "/compact" not in context["result"]
    await turn(laptop, "/tidy say:up")
    assert foreign.notes("session/prompt")[-1]["prompt"][0]["text"] == "/tidy say:up"
    await laptop.end()


async def test_a_form_of_the_agent_is_put_to_the_person(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say("form")
    asked = await laptop.message("control_request")
    assert (asked["request"]["subtype"], asked["request"]["message"]) == ("elicitation", "Your name?")
    await laptop.reply(asked["request_id"], {"action": "accept", "content": {"name": "Ann"}})
    assert json.loads((await laptop.message("result"))["result"]) == {"action": "accept", "content": {"name": "Ann"}}
    await laptop.end()


async def test_clear_begins_a_new_conversation(host: WorkerHost) -> None:
    foreign = Foreign(host, "load")
    laptop = await foreign.drive()
    await turn(laptop, "say:first")
    await turn(laptop, "/clear")
    described = (await laptop.request("initialize"))["response"]
    assert "tidy" in [each["name"] for each in described["commands"]]
    assert (await turn(laptop, "say:second"))["result"] == "second"
    assert len({each["sessionId"] for each in foreign.notes("session/prompt")}) == 2
    assert not foreign.notes("session/load") and "does not know" not in json.dumps(foreign.said())
    await laptop.end()


async def test_a_conversation_that_was_cleared_does_not_come_back_with_another_worker(host: WorkerHost) -> None:
    foreign = Foreign(host, "load")
    laptop = await foreign.drive()
    await turn(laptop, "say:first")
    await turn(laptop, "/clear")
    await laptop.kill()
    laptop = await foreign.drive(have=laptop.last_seq)
    assert (await turn(laptop, "say:second"))["result"] == "second"
    assert not foreign.notes("session/load") and "does not know" not in json.dumps(foreign.said())
    await laptop.end()


async def test_an_agent_that_cannot_start_ends_the_turn_and_says_why(host: WorkerHost) -> None:
    foreign = Foreign(host)
    foreign.command = "/nowhere/agent --acp"
    laptop = await foreign.drive()
    result = await turn(laptop, "hello")
    assert result["is_error"] and "/nowhere/agent --acp cannot be started on this host" in result["errors"][0]
    await laptop.end()


async def test_an_agent_whose_memory_is_its_process_stays_when_everybody_leaves(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await turn(laptop, "say:hello")
    await laptop.send(Detach(laptop.epoch, done=True))
    await laptop.drop()
    again = await foreign.drive(have=laptop.last_seq)
    assert (again.hello.pid, (await turn(again, "say:on"))["result"]) == (laptop.hello.pid, "on")
    await again.end()


async def test_the_agent_ends_with_its_session(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await turn(laptop, "say:hello")
    pid = int(foreign.notes("session/prompt")[0]["sessionId"].removeprefix("own-"))
    assert alive(pid)
    await laptop.end()
    await until(lambda: not alive(pid), "the end of the agent")


async def test_an_agent_whose_work_cannot_be_kept_is_ended_and_begins_anew(host: WorkerHost) -> None:
    foreign, gate = Foreign(host), host.home / "gate"
    os.mkfifo(gate)
    laptop = await foreign.drive()
    await laptop.say(f"touch:{gate} edit wait")
    await until(lambda: foreign.log.exists() and bool(foreign.notes("session/prompt")), "the prompt at the agent")
    pid = int(foreign.notes("session/prompt")[0]["sessionId"].removeprefix("own-"))
    with file_limit(0, laptop.hello.pid):
        os.close(os.open(gate, os.O_RDONLY | os.O_NONBLOCK))
        result = (await laptop.next(Progress, lambda frame: frame.body.get("type") == "result")).body
        assert result["terminal_reason"] == "storage_full" and not alive(pid)
    assert (await turn(laptop, "say:again"))["result"] == "again"


@pytest.mark.parametrize("allow_net", [True, False])
async def test_in_the_workspace_cage_works_what_the_cage_lets_work(host: WorkerHost, allow_net: bool) -> None:
    foreign = Foreign(host)
    program, foreign.log = host.project / "agent.py", host.project / "agent.log"
    program.write_bytes(_AGENT.read_bytes())
    foreign.command = shlex.join(["python3", str(program), str(foreign.log)])
    laptop = await foreign.drive(sandbox="workspace", allow_net=allow_net)
    result = await turn(laptop, f"touch:{host.project}/made touch:{host.home}/outside")
    if allow_net:
        assert result["result"].startswith("made") and result["result"] != "mademade"
        assert not (host.home / "outside").exists()
    else:
        assert "--sandbox workspace closes. Add --allow-net" in result["errors"][0]
    await laptop.end()


async def test_a_prompt_waits_for_the_end_of_the_turn(host: WorkerHost) -> None:
    foreign = Foreign(host)
    laptop = await foreign.drive()
    await laptop.say("ask say:first")
    asked = await laptop.message("control_request")
    await laptop.say("say:second", "second")
    await laptop.reply(asked["request_id"], {"behavior": "allow"})
    assert (await laptop.message("result"))["result"] == "first"
    assert (await laptop.message("result"))["result"] == "second"
    await laptop.end()
