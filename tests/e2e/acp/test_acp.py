"""An editor drives sessions of a host over a real sshd: `ccb acp`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.acp_client import AcpError, acp, chosen
from tests.support.hosts.reached_host import Host
from tests.support.model.model_script import uses


def words(host: Host, path: str = "~/app") -> list[str]:
    return [f"{host.login}:{path}", *host.server.client_options()]


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
        usage = editor.updates("usage_update")[-1]
        assert usage["size"] == 200_000 and usage["cost"]["amount"] > 0


async def test_a_session_is_loaded_resumed_listed_and_deleted_by_another_process(host: Host, here: Path) -> None:
    host.model.add(uses("Read", file_path=str(host.put("app/a.txt", b"one\n"))), {"text": "It says one."})
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        session = await editor.new(here)
        await editor.prompt(session, "read it")
    async with acp(host.laptop, words(host)) as editor:
        await editor.initialize()
        listed = (await editor.call("session/list", cwd=str(here)))["sessions"]
        assert [(each["sessionId"], each["cwd"], each["title"]) for each in listed] == [(session, str(here), "read it")]
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
    assert not (host.home / "app" / "never").exists()
