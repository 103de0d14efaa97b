"""Notification hooks of the person's own settings, on the laptop."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.machine.waiting import until
from tests.support.repl.pilot import desk

from ccb.local.session.own_hooks import NotificationHooks


async def test_the_commands_of_the_person_get_fixed_words_and_leave_no_process(tmp_path: Path) -> None:
    done, slow, not_run = tmp_path / "done", tmp_path / "slow", tmp_path / "not"

    def entry(command: str, **matcher: str) -> dict[str, object]:
        return {**matcher, "hooks": [{"type": "command", "command": command}]}

    hooks = {
        "Notification": [
            entry(f"cat > {done}.new; mv {done}.new {done}"),
            entry(f"echo $$ > {slow}; exec sleep 600", matcher="permission_.*"),
            entry(f"touch {not_run}", matcher="idle_prompt"),
        ],
        "Stop": [entry(f"touch {not_run}")],
    }
    own = NotificationHooks(hooks, "ccb devbox")
    own.notify("permission_prompt")
    await until(done.exists)
    await until(slow.exists)
    assert json.loads(done.read_text()) == {
        "hook_event_name": "Notification",
        "notification_type": "permission_prompt",
        "message": "The agent asks you something",
        "title": "ccb devbox",
    }
    await own.close()
    assert not not_run.exists()
    assert slow.read_text() == "" or not Path(f"/proc/{slow.read_text().strip()}").exists()


async def test_a_question_calls_the_person_and_the_end_of_a_turn_only_who_looks_elsewhere() -> None:
    async with desk() as at:
        told: list[str] = []
        at.app.attention.notify_person = told.append
        await at.prompt("go")
        at.session.begin()
        at.session.ask("r1", "Bash", {"command": "rm x"})
        await at.until(lambda: told == ["permission_prompt"])
        at.session.withdraw_question("r1")
        at.session.finish()
        await at.until(lambda: not at.app.view.reducer.running)
        assert told == ["permission_prompt"]
        await at.prompt("again")
        at.session.begin()
        await at.until(lambda: at.app.view.reducer.running)
        at.app.app_focus = False
        at.session.finish()
        await at.until(lambda: told == ["permission_prompt", "idle_prompt"])
