"""/export: all of a session in a file on the laptop."""

from __future__ import annotations

import json
from pathlib import Path

from tests.local.tui.widgets.test_history import long_session, said
from tests.support.repl.pilot import desk

from ccb.local.transcript.blocks import Level, MarkdownBlock, NoticeBlock, PromptBlock, ToolBlock, ToolState
from ccb.local.transcript.markdown_export import markdown_of


async def test_all_of_the_session_is_written_also_what_is_not_on_the_screen(tmp_path: Path) -> None:
    session = long_session()
    session.past.append(said(26, "the end"))
    async with desk(session) as at:
        for ends in ("md", "json"):
            at.app.composer.text = f"/export {tmp_path}/session.{ends}"
            await at.pilot.press("enter")
            await at.sees("The session is in", f"session.{ends},")
    text = (tmp_path / "session.md").read_text()
    assert text.startswith("# A session of ccb on devbox:/srv/shop\n")
    assert [f"event {seq:04}" in text for seq in range(1, 26)] == [True] * 25
    assert text.rstrip().endswith("the end")
    assert (tmp_path / "session.md").stat().st_mode & 0o777 == 0o600
    found = json.loads((tmp_path / "session.json").read_text())
    assert found["session"] == "5e55" and len(found["messages"]) == 26


def test_what_the_host_says_cannot_leave_its_place_in_the_document() -> None:
    forged = "```\n# not ours\x1b[2J"
    call = ToolBlock(name="Bash", tool_input={"command": "cat x"}, state=ToolState.FAILED, result=forged)
    notice = NoticeBlock(text="a\nb", level=Level.ERROR)
    blocks = [PromptBlock(text="go"), MarkdownBlock(text="It *works*."), call, notice]
    text = markdown_of("A\x1bB", blocks)
    assert "## Prompt\n\ngo\n\nIt *works*." in text
    assert "**Bash** (failed)" in text and "````\n```\n# not ours" in text
    assert text.endswith("> a\n> b\n") and "\x1b" not in text


def test_a_call_can_be_read_as_a_person_would_write_it() -> None:
    error = "tool_use_error"
    patch = [{"lines": [" a", "-b", "+c"]}]
    todos = [{"content": "read", "status": "completed"}, {"content": "write", "status": "pending"}]
    calls = [
        ToolBlock(name="Edit", tool_input={"file_path": "/srv/a.py", "old_string": "b"}, patch=patch),
        ToolBlock(name="Write", tool_input={"file_path": "/srv/new.py", "content": "one\ntwo\n"}),
        ToolBlock(name="Read", tool_input={"file_path": "/srv/a.py"}, result="a"),
        ToolBlock(name="TodoWrite", tool_input={"todos": todos}, result="updated"),
        ToolBlock(name="Task", tool_input={"description": "look", "prompt": "Find it."}),
        ToolBlock(name="ExitPlanMode", tool_input={"plan": "1. Read"}),
        ToolBlock(name="AskUserQuestion", tool_input={"questions": [{"question": "DB?", "options": [{"label": "A"}]}]}),
        ToolBlock(name="Grep", tool_input={"pattern": "x"}, state=ToolState.FAILED, result=f"<{error}>no</{error}>"),
    ]
    parts = markdown_of("T", calls).split("\n\n")[1:]
    assert parts[:6] == [
        *("**Edit** /srv/a.py", "```diff\n@@\n a\n-b\n+c\n```", "**Write** /srv/new.py", "```\none\ntwo\n```"),
        *("**Read** /srv/a.py", "```\na\n```"),
    ]
    assert parts[6:8] == ["**TodoWrite**", "- [x] read\n- [ ] write"]
    assert parts[8:14] == [
        *("**Agent** general-purpose: look", "```\nFind it.\n```", "**ExitPlanMode**", "1. Read"),
        *("**AskUserQuestion**", "- DB?\n  - A"),
    ]
    assert '"pattern": "x"' in parts[15] and parts[16] == "```\nno\n```\n"
