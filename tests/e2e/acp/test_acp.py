"""An editor drives sessions of a host over a real sshd: `ccb acp`."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from tests.support.acp_client import AcpClient, AcpError, Json, acp, chosen, content
from tests.support.hosts.reached_host import Host
from tests.support.machine.processes import name_of, processes_of
from tests.support.machine.waiting import until
from tests.support.model.model_script import uses
from tests.support.network.relay import relay
from tests.support.person.laptop import STDIO

from ccb.local.command_line.exit_codes import ExitCode

pytestmark = pytest.mark.visited


def words(host: Host, path: str = "~/app", port: int | None = None) -> list[str]:
    return [f"{host.login}:{path}", *host.server.client_options(port)]


@pytest.fixture
def here(host: Host) -> Path:
    """The folder of the editor, which stands for `~/app` of the host."""
    host.put("app")
    folder = host.laptop.home / "work"
    folder.mkdir()
    return folder


async def test_a_prompt_streams_text_and_a_tool_call_that_the_editor_allows(host: Host, here: Path) -> None:
    host.model.add(
        {"blocks": [{"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Let me see."},
                    *uses("Bash", command="echo made > made.txt; echo out")["blocks"]]},
        {"text": "Done."},
    )  # fmt: skip
    async with acp(host.laptop, words(host)) as editor:
        editor.answers["session/request_permission"] = lambda params: chosen("allow")
        await editor.initialize()
        session = await editor.new(here)
        assert await editor.prompt(session, "go") == {"stopReason": "end_turn"}
        assert (editor.text(), editor.text("agent_thought_chunk")) == ("Let me see.Done.", "Hm.")
        assert (host.home / "app" / "made.txt").read_text() == "made\n"
        call = editor.tool_call("toolu_0001_02")
        assert (call["status"], call["kind"], call["title"]) == (
            "completed", "execute", "echo made > made.txt; echo out",
        )  # fmt: skip
        terminal = [each["_meta"] for each in editor.updates("tool_call_update") if "_meta" in each]
        assert "".join(each.get("terminal_output", {}).get("data", "") for each in terminal) == "out"
        assert terminal[-1]["terminal_exit"]["exit_code"] == 0
        usage = editor.updates("usage_update")
        assert usage[-1]["size"] == 200_000 and usage[-1]["cost"]["amount"] > 0
        kinds = [each["sessionUpdate"] for each in editor.updates()]
        assert kinds.index("usage_update") < kinds.index("tool_call")  # not only when the turn has ended


async def test_a_session_is_loaded_resumed_listed_and_deleted_by_another_process(host: Host, here: Path) -> None:
    host.model.add(uses("Read", file_path=str(host.put("app/a.txt", b"one\n"))), {"text": "It says one."})
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        await editor.prompt(session, "read it")
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        assert (await editor.call("session/list", cwd=str(here)))["sessions"]
        assert (await editor.call("session/list", cwd=str(here / "sub")))["sessions"] == []
        listed = (await editor.call("session/list", cwd=f"{here}/"))["sessions"]
        assert [(each["sessionId"], each["cwd"]) for each in listed] == [(session, str(here))]
        assert listed[0]["title"].endswith("read it")
        loaded = await editor.load(session, here)
        assert (editor.text("user_message_chunk"), editor.text()) == ("read it", "It says one.")
        assert editor.tool_call("toolu_0001_00")["status"] == "completed"
        assert loaded["modes"]["currentModeId"] == "default" and loaded["configOptions"]
        await editor.until(lambda: editor.updates("available_commands_update"))
        before = len(editor.updates("user_message_chunk"))
        await editor.load(session, here, "session/resume")
        host.model.add({"text": "Again."})
        assert await editor.prompt(session, "and now") == {"stopReason": "end_turn"}
        assert len(editor.updates("user_message_chunk")) == before
        assert editor.text() == "It says one.Again."
        await editor.call("session/delete", sessionId=session)
        assert (await editor.call("session/list"))["sessions"] == []
        with pytest.raises(AcpError) as raised:
            await editor.load(session, here)
        assert raised.value.code == -32002


async def test_cancel_answers_open_questions_and_ends_the_prompt_as_cancelled(host: Host, here: Path) -> None:
    host.model.add(uses("Bash", command="touch never"))
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        prompt = await editor.begin("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "go"}])
        asked = await editor.question()
        await editor.notify("session/cancel", sessionId=session)
        await editor.answer(asked, {"outcome": {"outcome": "cancelled"}})
        assert (await prompt)["result"] == {"stopReason": "cancelled"}
        host.model.add({"text": "Fine."})
        assert await editor.prompt(session, "something else") == {"stopReason": "end_turn"}
        host.model.add(uses("Bash", command="touch never"))
        editor.answers["session/request_permission"] = lambda params: chosen("an option that nobody offered")
        assert await editor.prompt(session, "go") == {"stopReason": "cancelled"}
    assert not (host.home / "app" / "never").exists()


async def test_a_cut_in_mid_answer_and_a_killed_worker_show_each_word_once(host: Host, here: Path) -> None:
    host.model.add({"text": "A long answer that is cut in the middle.", "stall_after": 5})
    async with relay(host.server.port) as between, acp(host.laptop, words(host, port=between.port)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        prompt = await editor.begin("session/prompt", sessionId=session, prompt=content("hi"))
        await editor.until(editor.text)
        between.cut()
        await until(lambda: between.connections == 2)
        host.model.release()
        assert (await prompt)["result"] == {"stopReason": "end_turn"}
        assert editor.text() == "A long answer that is cut in the middle."
        host.model.add({"text": "Nobody hears this.", "stall_after": 5}, {"text": "The second one."})
        second = await editor.begin("session/prompt", sessionId=session, prompt=content("more"))
        await host.model.until(lambda model: len(model.requests) == 2)
        (daemon,) = [each for each in processes_of(host.user) if name_of(each) == "ccb"]
        daemon.kill()
        host.model.release()
        assert "worker was stopped in the middle of this turn" in (await second)["error"]["message"]
        titles = [each["title"] for each in editor.updates("notice")]
        assert any("connects again" in each for each in titles), titles
    assert len(host.model.requests) <= 3


async def test_without_a_connection_cancel_ends_the_prompt_at_once_and_the_turn_afterwards(
    host: Host, here: Path
) -> None:
    host.model.add(uses("Bash", command="touch never"), {"text": "Back."})
    async with relay(host.server.port) as between, acp(host.laptop, words(host, port=between.port)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        prompt = await editor.begin("session/prompt", sessionId=session, prompt=content("hi"))
        asked = await editor.question()
        between.freeze()
        between.cut()
        await editor.until(lambda: any("connects again" in each["title"] for each in editor.updates("notice")))
        await editor.notify("session/cancel", sessionId=session)
        assert (await prompt)["result"] == {"stopReason": "cancelled"}
        await editor.answer(asked, {"outcome": {"outcome": "cancelled"}})
        between.thaw()
        assert await editor.prompt(session, "again") == {"stopReason": "end_turn"}
        assert editor.text() == "Back."
    assert not (host.home / "app" / "never").exists()


async def test_the_editor_ends_a_terminal_goes_on_and_the_editor_takes_it_back(host: Host, here: Path) -> None:
    host.model.add({"text": "The first half, and the second.", "stall_after": 5})
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        await editor.begin("session/prompt", sessionId=session, prompt=content("begin"))
        await editor.until(editor.text)
        editor.running.end_input()
        assert editor.running.process.stderr is not None
        assert b"when it has read the answer" in await editor.running.process.stderr.readline()
        host.model.release()
    host.model.add({"text": "Said in the terminal."})
    done = await host.run("--resume", session, "-p", "go on")
    assert done.stdout == "Said in the terminal.\n", done.stderr
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        await editor.load(session, here)
        assert editor.text() == "The first half, and the second.Said in the terminal."
        assert editor.text("user_message_chunk") == "begingo on"
        host.model.add(uses("Bash", command="touch made"), {"text": "Made."})
        prompt = await editor.begin("session/prompt", sessionId=session, prompt=content("third"))
        await editor.question()
        async with host.start("--resume", session, "-p", *STDIO) as terminal:
            taken = (await prompt)["result"]
            assert taken["stopReason"] == "end_turn" and "drives this session now" in taken["_meta"]["ccb"]["takenOver"]
            with pytest.raises(AcpError, match="only watches"):
                await editor.prompt(session, "too late")
            await terminal.until("control_request")
            await editor.load(session, here)
        async with acp(host.laptop, words(host)) as another:
            another.answers["session/request_permission"] = lambda params: chosen("allow")
            await another.initialize()
            await another.load(session, here, "session/resume")
            await another.until(lambda: another.text() == "Made.")
            (asked,) = another.updates("tool_call")
            assert another.tool_call(asked["toolCallId"])["status"] == "completed"
    assert (host.home / "app" / "made").exists()


async def test_a_signal_ends_it_without_waiting_for_the_answer_of_the_model(host: Host, here: Path) -> None:
    host.model.add({"text": "An answer that takes long.", "stall_after": 6})
    async with host.laptop.start(["acp", *words(host)]) as running:
        editor = AcpClient(running)
        reading = asyncio.create_task(editor.read())
        await editor.initialize()
        await editor.begin("session/prompt", sessionId=await editor.new(here), prompt=content("hi"))
        await editor.until(editor.text)
        running.process.terminate()
        assert await asyncio.wait_for(running.process.wait(), 10) == ExitCode.TERMINATED
        await reading


async def test_modes_models_and_effort_are_shown_and_changed_both_ways(host: Host, here: Path) -> None:
    host.model.add({"text": "Ok."}, uses("Write", file_path=str(host.home / "app" / "a"), content="a"), {"text": "Ok."})
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        made = await editor.call("session/new", cwd=str(here), mcpServers=[])
        session = made["sessionId"]
        assert [each["id"] for each in made["modes"]["availableModes"]][:3] == ["default", "acceptEdits", "plan"]
        assert [each["id"] for each in made["configOptions"]] == ["mode", "model"]  # the model has no levels
        await editor.call("session/set_mode", sessionId=session, modeId="acceptEdits")
        changed = await editor.call("session/set_config_option", sessionId=session, configId="model", value="opus")
        by_id = {each["id"]: each["currentValue"] for each in changed["configOptions"]}
        assert by_id == {"mode": "acceptEdits", "model": "opus", "effort": "default"}
        await editor.call("session/set_config_option", sessionId=session, configId="effort", value="high")
        await editor.prompt(session, "hi")
        body = host.model.requests[-1].body or {}
        assert "opus" in body["model"] and body["output_config"]["effort"] == "high"
        await editor.prompt(session, "write it")
        assert not editor.asked and editor.updates("tool_call")[0]["content"][0]["newText"] == "a"
        for wrong in ({"configId": "mode", "value": "none"}, {"configId": "speed", "value": "1"}):
            with pytest.raises(AcpError) as raised:
                await editor.call("session/set_config_option", sessionId=session, **wrong)
            assert raised.value.code == -32602


async def test_always_and_never_are_rules_of_the_session(host: Host, here: Path) -> None:
    host.model.add(*(uses("Bash", command=f"touch {name}") for name in ("a", "a", "b", "b")), {"text": "Done."})
    async with acp(host.laptop, words(host)) as editor:
        kinds = iter(("allow_always", "reject_always"))

        def decide(params: Json) -> Json:
            kind = next(kinds)
            return chosen(next(each["optionId"] for each in params["options"] if each["kind"] == kind))

        editor.answers["session/request_permission"] = decide
        await editor.initialize()
        session = await editor.new(here)
        await editor.prompt(session, "go")
        assert [each["params"]["toolCall"]["title"] for each in editor.asked] == ["touch a", "touch b"]
        states = [editor.tool_call(f"toolu_000{n}_00")["status"] for n in (1, 2, 3, 4)]
        assert states == ["completed", "completed", "failed", "failed"]
    assert (host.home / "app" / "a").exists() and not (host.home / "app" / "b").exists()


async def test_a_project_is_trusted_by_a_question_to_the_editor(host: Host, here: Path) -> None:
    host.put("app/.claude/settings.json", json.dumps({"permissions": {"allow": ["Bash(touch made)"]}}).encode())
    host.model.add(uses("Bash", command="touch made"), {"text": "Made."})
    async with acp(host.laptop, words(host)) as editor:  # whose end checks that each call was announced
        editor.answers["session/request_permission"] = lambda params: chosen("trust")
        await editor.initialize()
        assert await editor.prompt(await editor.new(here), "go") == {"stopReason": "end_turn"}
        assert [each["params"]["options"][0]["kind"] for each in editor.asked] == ["allow_always"]
        assert "Bash(touch made)" in json.dumps(editor.asked) and editor.updates("tool_call")[0]["kind"] == "other"


async def test_mcp_servers_of_the_editor_run_on_the_laptop_and_their_forms_come_to_it(host: Host, here: Path) -> None:
    log = host.laptop.home / "notes.log"
    server = {
        "name": "My notes", "command": sys.executable, "args": ["-m", "tests.support.mcp_server", str(log)],
        "env": [{"name": "NOTES_TOKEN", "value": "abc"}, {"name": "PYTHONPATH", "value": os.pathsep.join(sys.path)}],
    }  # fmt: skip
    host.model.add(uses("mcp__My-notes__token"), uses("mcp__My-notes__clear"), {"text": "Done."})
    async with acp(host.laptop, words(host)) as editor:
        editor.answers["session/request_permission"] = lambda params: chosen("allow")
        editor.answers["elicitation/create"] = lambda params: {"action": "accept", "content": {}}
        await editor.initialize()
        session = await editor.new(here, mcpServers=[server])
        await editor.prompt(session, "go")
        results = host.model.requests[-1].tool_result_text
        assert "the token has 3 letters" in host.model.requests[-2].tool_result_text and "accept" in results
        form = next(each["params"] for each in editor.asked if each["method"] == "elicitation/create")
        assert form["mode"] == "form" and "Throw all notes away?" in form["message"]
    assert "token" in log.read_text()


async def test_questions_of_the_agent_are_a_form_or_without_forms_asked_in_its_answer(host: Host, here: Path) -> None:
    question = {
        "question": "Which color?", "header": "Color", "multiSelect": False,
        "options": [{"label": "Red", "description": "warm"}, {"label": "Blue", "description": "cold"}],
    }  # fmt: skip
    async with acp(host.laptop, words(host)) as editor:
        editor.answers["elicitation/create"] = lambda params: {"action": "accept", "content": {"answer_0": "Blue"}}
        await editor.initialize()
        session = await editor.new(here)
        host.model.add(uses("AskUserQuestion", questions=[question]), {"text": "Done."})
        await editor.prompt(session, "ask me")
        assert "Blue" in host.model.requests[-1].tool_result_text
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize({})
        session = await editor.new(here)
        host.model.add(uses("AskUserQuestion", questions=[question]), {"text": "Which color?"})
        await editor.prompt(session, "ask me")
        assert "Ask in the text" in host.model.requests[-1].tool_result_text and not editor.asked


async def test_todos_are_a_plan_and_a_command_of_the_laptop_is_answered_there(host: Host, here: Path) -> None:
    todos = [{"content": "Look", "status": "completed", "activeForm": "x"}, {"content": "Do", "status": "pending"}]
    host.model.add(uses("TodoWrite", todos=todos), {"text": "Planned."})
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        await editor.prompt(session, "plan")
        assert [(each["content"], each["status"]) for each in editor.updates("plan")[-1]["entries"]] == [
            ("Look", "completed"), ("Do", "pending"),
        ]  # fmt: skip
        assert await editor.prompt(session, "/status") == {"stopReason": "end_turn"}
        assert session in editor.text() and len(host.model.requests) == 2
        host.model.add({"text": "A summary."}, {"text": "Named."})
        assert await editor.prompt(session, "/compact") == {"stopReason": "end_turn"}
        states = [(each["compactionId"], each["status"]) for each in editor.updates("compaction_update")]
        assert [state for _, state in states] == ["in_progress", "completed"] and len({each for each, _ in states}) == 1
        await editor.prompt(session, "/rename A better name")
        await editor.until(lambda: editor.updates("session_info_update"))
        assert editor.updates("session_info_update")[-1]["title"] == "A better name"


async def test_files_of_the_editor_go_along_or_are_read_on_the_host(host: Host, here: Path) -> None:
    host.put("app/there.txt", b"words of the host\n")
    (here / "mine.txt").write_text("words of the laptop\n")
    (here / "link.txt").symlink_to("/etc/passwd")
    outside = host.laptop.home / "outside.txt"
    outside.write_text("outside")
    mapped = host.laptop.home / "mounted"
    host.model.add({"text": "Read."})
    argv = [*words(host), "--map", f"{host.home}/app={mapped}"]
    async with acp(host.laptop, argv) as editor:
        await editor.initialize()
        session = await editor.new(mapped, additionalDirectories=[])
        links = [mapped / "there.txt", here / "mine.txt", outside]
        blocks: list[Json] = [{"type": "resource_link", "uri": each.as_uri(), "name": each.name} for each in links]
        blocks.append({"type": "resource", "resource": {"uri": "file:///x/y.txt", "text": "embedded words"}})
        await editor.prompt(session, "look at", *blocks)
        said = json.dumps(host.model.requests[-1].messages)
        assert "words of the host" in said and "embedded words" in said
        assert "outside of the folders of the editor" in said and "words of the laptop" not in said
    host.model.add({"text": "Read."})
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        blocks = [{"type": "resource_link", "uri": (here / each).as_uri(), "name": each} for each in
                  ("mine.txt", "link.txt")]  # fmt: skip
        await editor.prompt(session, *blocks)
        said = json.dumps(host.model.requests[-1].messages)
        assert "words of the laptop" in said and "root:" not in said


async def test_an_agent_of_others_on_the_host_is_driven_as_ccbs_own(host: Host, here: Path) -> None:
    agent = Path(__file__).resolve().parents[2] / "support" / "acp_agent.py"
    program = host.put("acp_agent.py", agent.read_bytes())
    argv = [*words(host), "--agent", f"python3 {program} {host.home / 'log'}"]
    async with acp(host.laptop, argv) as editor:
        editor.answers["session/request_permission"] = lambda params: chosen("allow")
        await editor.initialize()
        session = await editor.new(here)
        prompt = "think:hm say:hello ask terminal edit plan title:New"
        assert await editor.prompt(session, prompt) == {"stopReason": "end_turn"}
        assert (editor.text("agent_thought_chunk"), editor.text()) == ("hm", "hello")
        assert [each["kind"] for each in editor.updates("tool_call")] == ["execute", "execute", "edit", "think"]
        assert len(editor.updates("plan")[-1]["entries"]) == 2
        assert editor.updates("session_info_update")[-1]["title"] == "New"
        running = await editor.begin("session/prompt", sessionId=session, prompt=content("wait"))
        await editor.until(lambda: len(editor.updates("tool_call")) == 5)
        await editor.notify("session/cancel", sessionId=session)
        assert (await running)["result"] == {"stopReason": "cancelled"}


async def test_what_cannot_be_opened_is_an_error_with_the_places_in_it(host: Host, here: Path) -> None:
    host.put("app/sub")
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        await editor.new(here / "sub")
        for params, code, says in (
            ({"cwd": str(here / "none")}, -32602, "app/none"),
            ({"cwd": "/elsewhere"}, -32602, f"{host.login}:~/app"),
            ({"cwd": "relative"}, -32602, "absolute"),
            ({"cwd": f"{here}\0"}, -32602, "absolute"),
            ({"cwd": str(here), "mcpServers": [{"name": "x"}]}, -32602, "'x' is not configured correctly (command"),
            ({"cwd": str(here), "mcpServers": [{"name": "a b"}, {"name": "a.b"}]}, -32602, "have the name 'a-b'"),
        ):
            with pytest.raises(AcpError, match=re.escape(says)) as raised:
                await editor.call("session/new", **{"mcpServers": [], **params})
            assert raised.value.code == code
        for method in ("session/load", "session/resume"):
            with pytest.raises(AcpError) as raised:
                await editor.load(str(uuid4()), here, method)
            assert raised.value.code == -32002
            with pytest.raises(AcpError, match="outside"):
                await editor.load(session, "/elsewhere", method)
        assert await editor.prompt(session, "/status") == {"stopReason": "end_turn"}  # it is still open
        for method in ("session/prompt", "session/set_mode", "session/close"):
            with pytest.raises(AcpError) as raised:
                await editor.call(method, sessionId="nothing", prompt=[])
            assert raised.value.code == -32002
