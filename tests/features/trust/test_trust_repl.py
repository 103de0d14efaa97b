"""The question about trust in the REPL as a program, with a real daemon and a scripted model."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import make_laptop
from tests.support.person.terminal import terminal

from ccb.local.config.project_records import HostIdentity, Projects


async def test_the_person_is_asked_once_and_the_answer_is_kept_on_the_laptop(
    fake_model: FakeModel, tmp_path: Path
) -> None:
    laptop = make_laptop(tmp_path, fake_model.url)
    project = tmp_path / "project"
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/settings.json").write_text(json.dumps({"permissions": {"allow": ["Bash(touch *)", "("]}}))
    call = {"type": "tool_use", "name": "Bash", "input": {"command": "touch made"}}
    fake_model.add({"blocks": [call]}, {"text": "All done."})
    argv = [sys.executable, "-m", "ccb", str(project)]
    async with terminal(argv, laptop.env, str(laptop.home)) as running:
        await running.shows("line 1: permissions.allow.1")
        await running.shows("Trust the files of this project?")
        await running.shows("allow rule │ Bash(touch *)")
        await running.answer("1")
        kept = Projects(laptop.env)
        await running.until(kept.path.exists)
        running.type("go\r")
        await running.shows("All done.")
        assert (project / "made").exists()
        local = HostIdentity("local", ("local",))
        assert kept.find(local, str(project)).trusted
        running.type("/trust revoke\r")
        await running.shows("Nothing is kept of")
        assert kept.all() == []
        running.type("/stop\r")
        await running.ended()
    assert [path.name for path in (project / ".claude").iterdir()] == ["settings.json"]
