"""Every place of the REPL at which it shows text that it did not write, each as a function that puts a text there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.support.model.model_script import Json
from tests.support.repl.pilot import Desk
from tests.support.repl.scripted_session import ScriptedSession, ScriptedTask, session_rule

from ccb.local.session.session_client import FoundNames, LinkState
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.wire.control_protocol import ProjectTrust, Request
from ccb.tunnel.wire.mcp_messages import ELICITATION, Elicitation

Place = Callable[[ScriptedSession, str], None]
Visit = Callable[[Desk, str], Awaitable[None]]


def streamed(session: ScriptedSession, text: str) -> None:
    session.open_block("text")
    for start in range(0, min(len(text), 300), 3):
        session.delta(text[start : start + 3])
    session.delta(text[300:])


def links(session: ScriptedSession, text: str) -> None:
    session.text(f"[{text}](http://evil/END) and <http://evil/> [x](http://evil/{text}) END")


def code(session: ScriptedSession, text: str) -> None:
    session.text(f"# {text}\n\n```python\n{text}\n```\n\n| {text} | b |\n|---|---|\n| {text} | `{text}` |\n\n- {text}")


def running(session: ScriptedSession, text: str) -> None:
    session.run(session.call(text, command=text), text + "\n" + text, 1)


def mcp_tool(session: ScriptedSession, text: str) -> None:
    session.done(session.call(f"mcp__{text}__{text}", **{text: text}), text)


def finished(session: ScriptedSession, text: str) -> None:
    session.done(session.call(text, **{text: text}), text, is_error=True)


def command(session: ScriptedSession, text: str) -> None:
    session.done(session.call("Bash", command=text, description=text), text)


def file_names(session: ScriptedSession, text: str) -> None:
    session.done(session.call("Read", file_path=f"/srv/shop/{text}"), f"1\t{text}")
    session.done(session.call("Glob", pattern=text), text)


def todos(session: ScriptedSession, text: str) -> None:
    session.done(session.call("TodoWrite", todos=[{"content": text, "status": text, "activeForm": text}]), "ok")
    session.fact("todo", id=text, subject=text, active_form=text, status="in_progress")
    session.done(session.call("TaskUpdate", taskId=text, status=text), "ok")


def patched(session: ScriptedSession, text: str) -> None:
    hunk = {"oldStart": 1, "newStart": 1, "lines": ["+" + text, "-" + text, " " + text, text]}
    session.done(session.call("Edit", file_path=text), "ok", structured={"structuredPatch": [hunk]})


def sub_agent(session: ScriptedSession, text: str) -> None:
    agent = session.call("Task", description=text, prompt=text, subagent_type=text)
    session.run(agent, text, 3, name="Task")
    call = {"type": "tool_use", "id": f"in {agent}", "name": text, "input": {"command": text}}
    session.assistant(call, message_id=f"of {agent}", parent_tool_use_id=agent)
    session.done(agent, text, structured={"status": "completed", "totalTokens": 1})


def initialised(session: ScriptedSession, text: str) -> None:
    session.begin(model=text, mode=text)


def failed(session: ScriptedSession, text: str) -> None:
    session.finish(is_error=True, errors=[text])


def noted(session: ScriptedSession, text: str) -> None:
    session.say({"type": "system", "subtype": "informational", "content": text, "level": "warning"})
    session.say({"type": "system", "subtype": "api_retry", "error": text, "attempt": 1, "max_retries": 2})


def task_note(session: ScriptedSession, text: str) -> None:
    begun = {"type": "system", "subtype": "task_started", "task_id": text, "description": text}
    session.say({**begun, "is_backgrounded": True})
    ended = {"type": "system", "subtype": "task_notification", "task_id": text, "status": text, "summary": text}
    session.say({**ended, "output_file": text})


def api_error(session: ScriptedSession, text: str) -> None:
    session.text(text, is_api_error_message=True)


def printed(session: ScriptedSession, text: str) -> None:
    blocks = [{"type": "text", "text": f"<local-command-stdout>{text}</local-command-stdout>"}]
    session.say({"type": "user", "message": {"role": "user", "content": blocks}, "isReplay": True})


def user(session: ScriptedSession, text: str) -> None:
    session.say({"type": "user", "message": {"role": "user", "content": text}})
    session.fact("input", id="x", body={"type": "user", "message": {"role": "user", "content": text}})


def thinking(session: ScriptedSession, text: str) -> None:
    session.assistant({"type": "thinking", "thinking": text})


def reconnecting(session: ScriptedSession, text: str) -> None:
    session.link(LinkState.RECONNECTING, text)


def asked(session: ScriptedSession, text: str) -> None:
    rule = session_rule(text, text)
    session.ask("1", text, {"command": text, text: text}, decision_reason=text, permission_suggestions=[rule])


def asked_edit(session: ScriptedSession, text: str) -> None:
    call = {"file_path": text, "old_string": text, "new_string": text + "x"}
    session.ask("1", "Edit", call, permission_suggestions=[{"type": "addDirectories", "directories": [text]}])


def asked_plan(session: ScriptedSession, text: str) -> None:
    session.ask("1", "ExitPlanMode", {"plan": text}, permission_suggestions=[])


def asked_questions(session: ScriptedSession, text: str) -> None:
    options = [{"label": text, "description": text}, {"label": text + "2", "description": "x"}]
    session.ask("1", "AskUserQuestion", {"questions": [{"question": text, "header": text, "options": options}]})


def asked_form(session: ScriptedSession, text: str) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "title": text, "description": text}}}
    session.progress(Request(ELICITATION, Elicitation(text, text, requested_schema=schema), id="1").public())


def lost(session: ScriptedSession, text: str) -> None:
    session.fail(ConnectionLost(text, evidence=text, do=text))


TOLD: tuple[Place, ...] = (
    streamed, links, code, running, mcp_tool, finished, command, file_names, todos, patched, sub_agent, initialised,
    failed, noted, task_note, api_error, printed, user, thinking, reconnecting,
)  # fmt: skip
"""What the session tells."""

ASKED: tuple[Place, ...] = (asked, asked_edit, asked_plan, asked_questions, asked_form)
"""What it asks; each has the id 1."""


async def trust_card(at: Desk, text: str) -> None:
    hook = {"kind": text, "name": text, "detail": text, "path": text}
    at.session.ask_trust(ProjectTrust(f"/srv/{text}", "mark", [hook]), f"trust {text}")
    await at.until(lambda: at.view.card is not None)
    await at.pilot.pause()
    at.session.withdraw_question(f"trust {text}")
    await at.until(lambda: at.view.card is None)


async def mcp_servers(at: Desk, text: str) -> None:
    server = {"name": text, "status": text, "transport": text, "error": text, "tools": [{"name": text}]}
    at.session.control_answers["mcp_status"] = {"mcpServers": [server]}
    await at.give("/mcp")


async def facts(at: Desk, text: str) -> None:
    at.session.begin(model=text, mode=text)
    at.session.say({"type": "system", "subtype": "session_title_changed", "title": text})
    for each in ("/model", "/mode", "/status"):
        await at.give(each)
    await at.give("/copy")


async def completions(at: Desk, text: str) -> None:
    async def find(query: str) -> FoundNames:
        return FoundNames((text, f"dir/{text}"), more=False, settled=True, cut=False)

    at.session.find_names = find
    at.composer.focus()
    at.composer.text = ""
    await at.type("@a")
    await at.pilot.pause()
    at.composer.text = ""


async def banner(at: Desk, text: str) -> None:
    at.app.login_says(text)
    at.view.login_says(text)
    await at.pilot.pause()


class HostileTask(ScriptedTask):
    """One whose host cleans nothing."""

    def piece(self, after: int, most: int, before: int | None) -> Json:
        text, at = self.text, {"start": after + 9, "next": after + 99}
        return {"status": text, "seconds": 1, "text": text + "\n", "begun": text, **at}


async def tasks(at: Desk, text: str) -> None:
    at.session.outputs["bash_1"] = HostileTask(text)
    news = {"task_id": "bash_1", "description": text, "output_file": text, "is_backgrounded": True, "task_type": text}
    at.session.say({"type": "system", "subtype": "task_started", **news})
    sub_agent(at.session, text)
    await at.until(lambda: at.view.reducer.tasks.running)
    await at.give("/tasks", then=lambda: at.session.outputs_read)
    await at.press("enter", "escape", "escape")
    call = at.view.reducer.agent_calls[-1]
    at.view.reading.open_agent(call)
    at.session.text(text, message_id="in", parent_tool_use_id=call.tool_id)
    await at.pilot.pause()
    await at.press("escape")


VISITED: tuple[Visit, ...] = (trust_card, mcp_servers, facts, completions, banner, tasks)
"""What takes more than a message of the session."""
