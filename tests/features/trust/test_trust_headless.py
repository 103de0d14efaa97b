"""Trust in runs without a person: nothing of a project counts unless it was trusted before, or with --trust."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.remote.tools_kit import write
from tests.support.hosts.reached_host import Host
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.model.model_script import uses
from tests.support.person.laptop import STDIO, Here, Laptop, user_message

from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.project_records import Projects
from ccb.local.connect.project_trust import host_identity

pytestmark = pytest.mark.visited


def bring(project: Path, **values: object) -> None:
    write(project / ".claude/settings.json", json.dumps(values))


@pytest.fixture
def host(laptop: Laptop, fake_model: FakeModel, sshd: Sshd, host_user: HostUser) -> Host:
    return Host(laptop, fake_model, sshd, host_user)


async def test_a_headless_run_names_what_it_leaves_out_and_trust_lets_it_count(here: Here) -> None:
    project = here.project
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "make \u202e check; true"}]}]}
    bring(project, permissions={"allow": ["Bash(touch *)"]}, hooks=hooks)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": {"command": "touch", "args": ["began"]}}}))
    here.model.add(*[uses("Bash", command="touch made"), {"text": "done"}] * 2)
    done = await here.run("-p", "go")
    assert not (project / "made").exists() and not (project / "began").exists()
    left_out = [line for line in done.stderr.splitlines() if "is not trusted" in line]
    assert len(left_out) == 1, done.stderr
    assert "hook Stop make " in left_out[0] and "allow Bash(touch *)" in left_out[0]
    assert "touch began" in left_out[0] and "\u202e" not in left_out[0]
    done = await here.run("-p", "go", "--trust")
    warning = r"ccb: the host warns: “The MCP server evil of the project is not connected: .*”\n"
    assert done.code == 0 and re.fullmatch(warning, done.stderr)
    assert "had any effect" not in done.stderr, "nothing was asked of it yet"
    assert (project / "made").exists() and (project / "began").exists()


async def test_trust_belongs_to_the_host_key_and_the_directory(host: Host) -> None:
    project = host.put("project")
    bring(project, permissions={"allow": ["Bash(touch *)"]})
    _, *where = host.ssh(path="~/project")
    identity = await host_identity(parse_arguments(["ssh", *where]).connection)
    assert len(identity.keys) == 1 and identity.keys[0].startswith("SHA256:")
    asked = await host.laptop.run(["trust", *where])
    assert (asked.code, asked.stderr) == (1, "") and "Nobody can be asked" in asked.stdout
    file = project / ".claude/settings.json"
    assert f"({file}, of {file.owner()})" in asked.stdout
    trusted = await host.laptop.run(["trust", *where, "--yes"])
    assert 'permissions.allow = "Bash(touch *)"' in trusted.stdout and "is trusted until" in trusted.stdout
    (record,) = Projects(host.laptop.env).all()
    assert record.host == identity and record.trusted
    host.model.add(uses("Bash", command="touch made"), {"text": "done"})
    done = await host.run("-p", "go", path="~/project")
    assert (done.code, done.stderr) == (0, "")
    assert (project / "made").exists()
    shown = await host.laptop.run(["config", "show", "--origin", *where])
    assert f'permissions.allow = "Bash(touch *)"  (project: {project}/.claude/settings.json, line 1)' in shown.stdout
    revoked = await host.laptop.run(["trust", f"{host.login}:{record.directory}", "--revoke"])
    assert revoked.code == 0 and Projects(host.laptop.env).all() == [], revoked.stderr


async def test_what_a_trusted_project_switches_on_runs_on_the_host_and_never_on_the_laptop(host: Host) -> None:
    """The laptop runs as another user than the host, so each command tells where it ran."""
    project = host.put("project")
    who = project / "who"
    tell = f"id -un >> {who}"
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")
    hooks = {event: [{"hooks": [{"type": "command", "command": tell}]}] for event in events}
    bring(project, hooks=hooks, apiKeyHelper=tell, env={"X": "$(" + tell + ")"})
    servers = {"evil": {"command": "sh", "args": ["-c", tell]}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    host.model.add({"text": "done"})
    done = await host.run("-p", "go", "--trust", path="~/project")
    assert (done.code, done.stdout) == (0, "done\n"), done.stderr
    assert set(who.read_text().split()) == {host.user.name}


async def test_what_a_client_allows_always_is_kept_for_this_host_and_directory_alone(here: Here) -> None:
    here.model.add(uses("Bash", command="touch made"), {"text": "done"})
    async with here.start("-p", *STDIO) as run:
        await run.send(user_message("go"))
        asked = await run.until("control_request")
        rules = [{"toolName": "Bash", "ruleContent": "touch made"}]
        update = {"type": "addRules", "behavior": "allow", "rules": rules, "destination": "userSettings"}
        once = {**update, "rules": [{"toolName": "Write"}], "destination": "session"}
        allow = {"behavior": "allow", "updatedInput": asked["request"]["input"], "updatedPermissions": [update, once]}
        await run.reply(asked, allow)
        await run.until("result")
        assert (await run.finish()).code == 0
    (record,) = Projects(here.laptop.env).all()
    assert (record.directory, record.permissions) == (str(here.project), {"allow": ["Bash(touch made)"]})
    assert not (here.project / ".claude").exists()
