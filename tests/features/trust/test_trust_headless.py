"""Trust in runs without a person: nothing of a project counts unless it was trusted before, or with --trust."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.model.fake_model import FakeModel
from tests.support.person.laptop import Json, Laptop, make_laptop

from ccb.local.command_line.parser import parse_arguments
from ccb.local.config.project_records import Projects
from ccb.local.connect.project_trust import host_identity

pytestmark = pytest.mark.visited


@pytest.fixture
def laptop(tmp_path: Path, fake_model: FakeModel) -> Laptop:
    return make_laptop(tmp_path, fake_model.url)


def bring(project: Path, **values: object) -> None:
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/settings.json").write_text(json.dumps(values))


def script(fake_model: FakeModel, command: str) -> None:
    call: Json = {"type": "tool_use", "name": "Bash", "input": {"command": command}}
    fake_model.add({"blocks": [call]}, {"text": "done"})


async def test_a_headless_run_names_what_it_leaves_out_and_trust_lets_it_count(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    hooks = {"Stop": [{"hooks": [{"type": "command", "command": "make \u202e check; true"}]}]}
    bring(project, permissions={"allow": ["Bash(touch *)"]}, hooks=hooks)
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": {"evil": {"command": "touch", "args": ["began"]}}}))
    script(fake_model, "touch made")
    done = await laptop.run([str(project), "-p", "go"])
    assert not (project / "made").exists() and not (project / "began").exists()
    left_out = [line for line in done.stderr.splitlines() if "is not trusted" in line]
    assert len(left_out) == 1, done.stderr
    assert "hook Stop make " in left_out[0] and "allow Bash(touch *)" in left_out[0]
    assert "touch began" in left_out[0] and "\u202e" not in left_out[0]
    script(fake_model, "touch made")
    done = await laptop.run([str(project), "-p", "go", "--trust"])
    assert done.code == 0 and re.fullmatch(
        r"ccb: the host warns: “The MCP server evil of the project is not connected: .*”\n", done.stderr
    )
    assert "had any effect" not in done.stderr, "nothing was asked of it yet"
    assert (project / "made").exists() and (project / "began").exists()


async def test_trust_belongs_to_the_host_key_and_the_directory(
    laptop: Laptop, fake_model: FakeModel, host_user: HostUser, sshd: Sshd
) -> None:
    project = host_user.home / "project"
    bring(project, permissions={"allow": ["Bash(touch *)"]})
    shutil.chown(project, host_user.name)
    argv = ["ssh", f"{host_user.name}@127.0.0.1:~/project", *sshd.client_options()]
    host = await host_identity(parse_arguments(argv).connection)
    assert len(host.keys) == 1 and host.keys[0].startswith("SHA256:")
    where = [f"{host_user.name}@127.0.0.1:~/project", *sshd.client_options()]
    asked = await laptop.run(["trust", *where])
    assert (asked.code, asked.stderr) == (1, "") and "Nobody can be asked" in asked.stdout
    file = project / ".claude/settings.json"
    assert f"({file}, of {file.owner()})" in asked.stdout
    trusted = await laptop.run(["trust", *where, "--yes"])
    assert 'permissions.allow = "Bash(touch *)"' in trusted.stdout and "is trusted until" in trusted.stdout
    (record,) = Projects(laptop.env).all()
    assert record.host == host and record.trusted
    script(fake_model, "touch made")
    done = await laptop.run([*argv, "-p", "go"])
    assert (done.code, done.stderr) == (0, "")
    assert (project / "made").exists()
    shown = await laptop.run(["config", "show", "--origin", *where])
    assert f'permissions.allow = "Bash(touch *)"  (project: {project}/.claude/settings.json, line 1)' in shown.stdout
    revoked = await laptop.run(["trust", f"{host_user.name}@127.0.0.1:{record.directory}", "--revoke"])
    assert revoked.code == 0 and Projects(laptop.env).all() == [], revoked.stderr


async def test_what_a_trusted_project_switches_on_runs_on_the_host_and_never_on_the_laptop(
    laptop: Laptop, fake_model: FakeModel, host_user: HostUser, sshd: Sshd
) -> None:
    """The laptop runs as another user than the host, so each command tells where it ran."""
    project = host_user.home / "project"
    who = project / "who"
    tell = f"id -un >> {who}"
    events = ("SessionStart", "UserPromptSubmit", "Notification", "Stop", "SessionEnd")
    hooks = {event: [{"hooks": [{"type": "command", "command": tell}]}] for event in events}
    bring(project, hooks=hooks, apiKeyHelper=tell, env={"X": "$(" + tell + ")"})
    servers = {"evil": {"command": "sh", "args": ["-c", tell]}}
    (project / ".mcp.json").write_text(json.dumps({"mcpServers": servers}))
    shutil.chown(project, host_user.name)
    fake_model.add({"text": "done"})
    argv = ["ssh", f"{host_user.name}@127.0.0.1:~/project", *sshd.client_options(), "-p", "go", "--trust"]
    done = await laptop.run(argv)
    assert (done.code, done.stdout) == (0, "done\n"), done.stderr
    assert set(who.read_text().split()) == {host_user.name}


async def test_what_a_client_allows_always_is_kept_for_this_host_and_directory_alone(
    laptop: Laptop, fake_model: FakeModel, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    script(fake_model, "touch made")
    streams = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
    argv = [str(project), "-p", *streams, "--permission-prompt-tool", "stdio"]
    async with laptop.start(argv) as run:
        await run.send({"type": "user", "message": {"role": "user", "content": "go"}, "parent_tool_use_id": None})
        asked = await run.until("control_request")
        rules = [{"toolName": "Bash", "ruleContent": "touch made"}]
        update = {"type": "addRules", "behavior": "allow", "rules": rules, "destination": "userSettings"}
        once = {**update, "rules": [{"toolName": "Write"}], "destination": "session"}
        allow = {"behavior": "allow", "updatedInput": asked["request"]["input"], "updatedPermissions": [update, once]}
        reply = {"subtype": "success", "request_id": asked["request_id"], "response": allow}
        await run.send({"type": "control_response", "response": reply})
        await run.until("result")
        run.end_input()
        assert (await run.done()).code == 0
    (record,) = Projects(laptop.env).all()
    assert (record.directory, record.permissions) == (str(project), {"allow": ["Bash(touch made)"]})
    assert not (project / ".claude").exists()
