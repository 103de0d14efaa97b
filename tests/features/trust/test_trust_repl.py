"""The question about trust in the REPL as a program, with a real daemon and a scripted model."""

from __future__ import annotations

import json

from tests.remote.tools_kit import write
from tests.support.model.model_script import uses
from tests.support.person.laptop import Here

from ccb.local.config.project_records import HostIdentity, Projects


async def test_the_person_is_asked_once_and_the_answer_is_kept_on_the_laptop(here: Here) -> None:
    project = here.project
    write(project / ".claude/settings.json", json.dumps({"permissions": {"allow": ["Bash(touch *)", "("]}}))
    here.model.add(uses("Bash", command="touch made"), {"text": "All done."})
    async with here.on_terminal() as running:
        await running.shows("permissions.allow.1")
        await running.shows("Trust the files of this project?")
        await running.shows("allow rule │ Bash(touch *)")
        await running.answer("1")
        kept = Projects(here.laptop.env)
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
