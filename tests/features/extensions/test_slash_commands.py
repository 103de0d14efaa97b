"""Slash commands of files, skills, and the commands about a session, with a real worker and no screen."""

from __future__ import annotations

import json
from typing import Any

from tests.features.extensions.test_hooks import hooks, options
from tests.remote import tools_kit
from tests.remote.agent_kit import calls, says
from tests.remote.worker_process import Laptop, WorkerHost

from ccb.tunnel.wire.session_options import OwnFile, SessionOptions, SettingsOption, pack


def write(host: WorkerHost, name: str, text: str) -> None:
    tools_kit.write(host.project / ".claude" / name, text)


async def start(host: WorkerHost, session: str, **given: Any) -> Laptop:
    """Attach to a session whose project is trusted."""
    return await host.drive(session, SessionOptions(settings=SettingsOption(trusted="*").to_json(), **given))


async def test_a_command_brings_its_text_its_commands_its_files_and_its_rules(host: WorkerHost, session: str) -> None:
    (host.project / "notes.md").write_text("remember the milk")
    front = "---\ndescription: Makes it\nallowed-tools: Bash(touch *), Bash(cat *)\nmodel: haiku\n---\n"
    write(host, "commands/team/make.md", front + "Make $1. Now: !`touch a && cat .claude/x`\nSee @notes.md")
    write(host, "x", "cat says hi")
    laptop = await start(host, session)
    await laptop.say("/team:make cake")
    assert "team:make" in (await laptop.message("system", "init"))["slash_commands"]
    sent = await laptop.tell(calls(("toolu_1", "Bash", {"command": "touch b"})))
    texts = [block["text"] for block in sent["messages"][-1]["content"]]
    assert texts[-3:] == [
        "/team:make cake",
        "Make cake. Now: cat says hi\nSee @notes.md",
        "The file notes.md:\n1\tremember the milk",
    ]
    assert "haiku" in sent["model"] and (host.project / "a").exists()
    await laptop.tell(says("done", "msg_2"))
    await laptop.message("result")
    assert (host.project / "b").exists(), "its rules hold during its turn"
    await laptop.say("go on")
    touch = calls(("toolu_2", "Bash", {"command": "touch c"}), message_id="msg_3")
    assert "haiku" not in (await laptop.tell(touch))["model"]
    await laptop.tell(says("done", "msg_4"))
    await laptop.message("result")
    assert not (host.project / "c").exists(), "and no longer"


async def test_a_command_that_may_not_run_its_commands_does_not_run(host: WorkerHost, session: str) -> None:
    write(host, "commands/make.md", "Now: !`touch a`")
    laptop = await start(host, session)
    await laptop.say("/make")
    output = (await laptop.message("user"))["message"]["content"][0]["text"]
    assert output.startswith("<local-command-stdout>/make was not run. `touch a`: ")
    ended = await laptop.message("result")
    assert (ended["is_error"], ended["num_turns"]) == (False, 0)
    assert not (host.project / "a").exists()
    assert "/make" not in json.dumps((await laptop.sent("hello", says("hi")))["messages"])


async def test_a_file_that_the_session_writes_is_no_command(host: WorkerHost, session: str) -> None:
    write(host, "commands/known.md", "Known: !`touch a`")
    laptop = await start(host, session, permission_mode="default", allowed_tools=["Bash(touch *)"])
    await laptop.turn("hello", says("hi"))
    write(host, "commands/known.md", "Changed: !`touch a`")
    write(host, "commands/fresh.md", "New: !`touch a`")
    for prompt in ("/fresh", "/known"):
        texts = json.dumps((await laptop.sent(prompt, says("hm", f"msg_{prompt}")))["messages"])
        assert "New" not in texts
    assert "Changed: !`touch a`" in texts and not (host.project / "a").exists()


async def test_a_skill_is_listed_and_loaded_when_the_model_wants_it(host: WorkerHost, session: str) -> None:
    write(host, "skills/pdf/SKILL.md", "---\ndescription: Reads PDFs\n---\nRun ${CLAUDE_SKILL_DIR}/read.sh !`id`")
    laptop = await start(host, session)
    await laptop.say("read it")
    assert (await laptop.message("system", "init"))["skills"] == ["pdf"]
    request = await laptop.tell(calls(("toolu_1", "Skill", {"skill": "pdf"})))
    tool = next(each for each in request["tools"] if each["name"] == "Skill")
    assert tool["description"].endswith("- pdf: Reads PDFs") and "read.sh" not in str(request)
    result = json.dumps((await laptop.tell(says("done", "msg_2")))["messages"][-1])
    where = host.project / ".claude/skills/pdf"
    assert f"Base directory for this skill: {where}\\n\\nRun {where}/read.sh !`id`" in result


async def test_hooks_shows_what_is_configured_without_the_model(host: WorkerHost, session: str) -> None:
    laptop = await host.drive(session, options(hooks(PreToolUse=("Bash", "guard.sh"))))
    shown = (await laptop.turn("/hooks"))["result"]
    assert shown == "PreToolUse\n  Bash: guard.sh  (user, ~/.claude/settings.json; at most 600 s)"


async def test_own_commands_and_skills_come_along_but_a_trusted_project_wins(host: WorkerHost, session: str) -> None:
    write(host, "commands/both.md", "Of the project")
    skill = "---\ndescription: Greets\nallowed-tools: Bash(*/greet.sh)\n---\nIt says !`${CLAUDE_SKILL_DIR}/greet.sh`"
    own = [
        OwnFile("commands/both.md", "Of the person"),
        OwnFile("commands/mine.md", "Mine: $1"),
        OwnFile("skills/greet/SKILL.md", skill),
        OwnFile("skills/greet/greet.sh", "#!/bin/sh\necho hello\n", executable=True),
        OwnFile("skills/greet/more.md", "read me"),
        OwnFile("skills/broken/SKILL.md", "no description"),
    ]
    laptop = await start(host, session, own_files=pack(own))
    await laptop.say("/greet")
    texts = json.dumps((await laptop.tell(calls(("toolu_1", "Bash", {"command": "true"}))))["messages"])
    assert "It says hello" in texts
    where = next((host.state(session) / "own").glob("*/.claude/skills/greet"))
    read = calls(("toolu_2", "Read", {"file_path": str(where / "more.md")}), message_id="msg_2")
    await laptop.tell(read)
    assert "read me" in json.dumps((await laptop.tell(says("ok", "msg_3")))["messages"][-1]), "no question is needed"
    await laptop.message("result")
    assert any("a skill needs a description" in str(each.body.get("content")) for each in laptop.events)
    await laptop.kill()
    laptop = await host.drive(session, SessionOptions(client="another"))
    for prompt, text in (("/both", "Of the project"), ("/mine x", "Mine: x")):
        messages = (await laptop.sent(prompt, says("ok", f"msg{prompt}")))["messages"]
        assert text in json.dumps(messages[-1]), prompt
    listed = (await laptop.request("initialize"))["response"]["commands"]
    described = {each["name"]: each["description"] for each in listed}
    assert described["both"] == "Of the project (project)" and described["greet"] == "Greets (user skill)"
    assert "Of the person" not in (host.state(session) / "journal.jsonl").read_text()


async def told(laptop: Laptop, command: str) -> str:
    """Return what a command prints. The model is not called: it would be waited for."""
    result = await laptop.turn(command)
    assert (result["subtype"], result["num_turns"]) == ("success", 0), result
    return str(result["result"])


async def test_what_fills_the_context_is_told_and_commands_of_the_laptop_are_refused(
    host: WorkerHost, session: str
) -> None:
    (host.project / "CLAUDE.md").write_text("Say please.\n" * 2000)
    laptop = await host.drive(session, SessionOptions(model="sonnet"))
    picture = await told(laptop, "/context")
    shown = {line.split()[1]: line.split()[-3] for line in picture.splitlines() if line.endswith("%")}
    assert shown["System"] != "0" and shown["Instructions"] != "0", "what the first turn will send is shown before it"
    assert (await laptop.turn("hello", says("hi")))["num_turns"] == 1
    for name in ("/vim", "/theme dark", "/mode bypassPermissions", "/quit"):
        assert "belongs to the screen of ccb" in await told(laptop, name)
    for name in ("/cost", "/help", "/mcp", "/model opus", "/status"):  # from a laptop that does not answer them itself
        assert "this client does not" in await told(laptop, name)
    assert "/nosuch thing" in json.dumps((await laptop.sent("/nosuch thing", says("no", "msg_2")))["messages"])


async def test_a_conversation_that_is_cleared_ends_and_starts_for_hooks(host: WorkerHost, session: str) -> None:
    note = 'cat >> said; echo "the house rules"'
    laptop = await host.drive(session, options(hooks(SessionStart=note, SessionEnd=("clear", "cat >> said"))))
    assert "the house rules" in json.dumps((await laptop.sent("one", says("1")))["messages"])
    assert await told(laptop, "/clear") == ""
    said = [json.loads(line) for line in (host.project / "said").read_text().splitlines()]
    events = [(each["hook_event_name"], each.get("source", each.get("reason"))) for each in said]
    assert events == [("SessionStart", "startup"), ("SessionEnd", "clear"), ("SessionStart", "clear")]
    messages = json.dumps((await laptop.sent("two", says("2", "msg_2")))["messages"])
    assert "the house rules" in messages and '"one"' not in messages, "the model has forgotten what they said"


async def test_reviews_are_prompts_on_the_git_of_the_host_unless_the_project_has_its_own(
    host: WorkerHost, session: str
) -> None:
    write(host, "commands/review.md", "Look for typos only.")
    laptop = await start(host, session)
    listed = {each["name"] for each in (await laptop.request("list_commands"))["response"]["commands"]}
    assert {"init", "review", "security-review"} <= listed
    await laptop.say("/security-review the last commit")
    texts = [block["text"] for block in (await laptop.tell(says("None.", "m1")))["messages"][-1]["content"]]
    assert "security holes" in texts[-1] and texts[-1].endswith("the last commit")
    await laptop.message("result")
    await laptop.say("/review")
    assert (await laptop.tell(says("None.", "m2")))["messages"][-1]["content"][-1]["text"] == "Look for typos only."
    await laptop.message("result")
