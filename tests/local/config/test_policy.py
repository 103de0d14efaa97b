"""The policy of a machine: who may have written it, what it may say, and what nobody gets around."""

from __future__ import annotations

import json
import os
import pwd
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.run_words import run_words

from ccb.local.command_line.arguments import FleetOptions
from ccb.local.commands.config import schema_text
from ccb.local.config import policy, settings
from ccb.local.config.settings import PolicySettings, SettingsChoice
from ccb.local.config.settings_loading import load_policy, load_settings, load_sharing
from ccb.local.doctor.laptop_checks import laptop_findings
from ccb.local.ledger.budgets import budgets, midnight
from ccb.local.providers.known_models import list_or_why
from ccb.local.providers.named_provider import named_provider
from ccb.tunnel.errors import ConfigError, PolicyRefused
from ccb.tunnel.transports.pipe import Sharing
from ccb.tunnel.wire.policy_patterns import holds_directory, is_allowed

REMOTE = '{"policy": {"remoteOnly": true}}'


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the policy of this machine is, and was before it was renamed."""
    (tmp_path / "etc").mkdir()
    files = tmp_path / "etc" / "policy.json", tmp_path / "etc" / "managed-settings.json"
    monkeypatch.setattr(settings, "POLICY_FILES", files)
    return files[0]


def test_no_source_of_the_person_changes_it_and_the_origin_is_shown(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.write_text('{\n"policy": {\n"remoteOnly": true,\n"hosts": ["web-*"]}}')
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    mine = tmp_path / "config/ccb/settings.json"
    mine.parent.mkdir(parents=True)
    mine.write_text(loose := '{"policy": {"remoteOnly": false, "hosts": ["*"]}}')
    found = load_settings(environ, SettingsChoice(flag=loose)).policy
    assert found == load_policy() == PolicySettings(remoteOnly=True, hosts=["web-*"])
    assert run_words(["config", "show", "--origin", "--settings", loose], environ) == 0
    shown = capsys.readouterr()
    assert f"policy.remoteOnly = true  (managed: {place}, line 3)" in shown.out.splitlines()
    assert "--settings, line 1: unknown key 'policy' has no effect" in shown.err
    assert run_words(["config", "set", "policy.remoteOnly", "false"], environ) == 2
    assert "no setting policy.remoteOnly" in capsys.readouterr().err.replace("'", "")


@pytest.mark.parametrize("part", ["policy.json", "."])
@pytest.mark.parametrize("change", ["owner", "group", "others"])
def test_one_that_others_than_root_can_change_is_refused(place: Path, part: str, change: str) -> None:
    place.write_text(REMOTE)
    path = place.parent / part
    if change == "owner":
        os.chown(path, 12345, -1)
    else:
        path.chmod(path.stat().st_mode | (0o020 if change == "group" else 0o002))
    with pytest.raises(ConfigError, match="can be changed by other users"):
        load_policy()


def test_one_of_the_person_below_their_home_is_not_trusted(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write_text(REMOTE)
    os.chown(place.parent, 12345, -1)
    monkeypatch.setenv("HOME", str(place.parent / "home"))  # what is above it is not checked for settings
    with pytest.raises(ConfigError, match="belongs to user 12345"):
        load_policy()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"policy": {"remoteOnyl": true}}', "unknown key 'policy.remoteOnyl'"),
        ('{"modle": "opus"}', "unknown key 'modle'"),
        ('{"policy": {"sandbox": "off"}}', "policy.sandbox"),
        ('{"policy": {"hosts": "*"}}', "policy.hosts"),
        ("{", "not JSON"),
    ],
)
def test_what_would_hold_nothing_is_refused(place: Path, text: str, says: str) -> None:
    place.write_text(text)
    with pytest.raises(ConfigError, match=says):
        load_policy()


def test_its_old_name_counts_where_there_is_no_other(place: Path) -> None:
    place.with_name("managed-settings.json").write_text(REMOTE)
    assert load_policy().remoteOnly
    place.write_text("{}")
    assert not load_policy().remoteOnly


def test_a_link_to_a_file_that_is_not_there_is_refused(place: Path) -> None:
    place.symlink_to(place.parent / "unmounted" / "policy.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_policy()


def test_no_list_and_no_host_of_a_person_widens_a_setting_of_it(place: Path) -> None:
    place.write_text(
        '{"modelCalls": {"models": ["claude-haiku-*"], "perMinute": 9}, "permissions": {"deny": ["Read"]}}'
    )
    calls = {"models": ["*"], "hosts": {"*": {"models": ["*"], "perMinute": 99, "maxConcurrent": 2}}}
    mine = json.dumps({"modelCalls": calls, "permissions": {"deny": ["Bash"]}})
    found = load_settings({}, SettingsChoice(user=False, flag=mine))
    limits = found.modelCalls.of_host("gpu-1")
    assert (limits.models, limits.perMinute, limits.maxConcurrent) == (["claude-haiku-*"], 9, None)
    assert found.permissions.deny == ["Bash", "Read"]


def test_it_says_which_connections_are_shared(place: Path, tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    mine = tmp_path / "config/ccb/settings.json"
    mine.parent.mkdir(parents=True)
    mine.write_text('{"controlMaster": true, "keepConnection": 60, "pipelinedLogin": true}')
    place.write_text('{"controlMaster": false, "keepConnection": 0, "pipelinedLogin": false}')
    assert load_sharing(environ) == Sharing(own_master=False, keep_s=0, pipelined=False)


def test_no_variable_begins_a_new_day(monkeypatch: pytest.MonkeyPatch) -> None:
    found = set()
    with monkeypatch.context() as changed:
        for zone in ("UTC", "X-12", "X12"):
            changed.setenv("TZ", zone)
            time.tzset()
            found.add(midnight())
    time.tzset()
    assert len(found) == 1


@pytest.mark.parametrize("wrong", [{"remote": True}, {"retentionDays": 0}, {"ledger": "here"}])
def test_the_schema_of_a_policy_refuses_a_wrong_value(wrong: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"policy": wrong}, json.loads(schema_text()))


def test_no_variable_moves_the_ledger(place: Path, tmp_path: Path) -> None:
    environ = {"HOME": "/nowhere", "XDG_STATE_HOME": str(tmp_path / "state")}
    assert policy.ledger_folder(environ) == tmp_path / "state" / "ccb"
    place.write_text("{}")
    account = pwd.getpwuid(os.getuid())
    assert policy.ledger_folder(environ) == Path(account.pw_dir, ".local/state/ccb")
    place.write_text('{"policy": {"ledger": "/var/lib/ccb/%u"}}')
    assert policy.ledger_folder(environ) == Path("/var/lib/ccb", account.pw_name)


def test_of_two_budgets_the_smaller_counts_and_no_price_of_a_person_does(place: Path) -> None:
    limits = {"dayUsd": 5, "sessionUsd": 3, "hosts": {"gpu-*": {"dayUsd": 1}}}
    place.write_text(json.dumps({"policy": {"budgets": limits}, "providers": {"site": {"baseUrl": "https://site"}}}))
    mine: dict[str, Any] = {"budgets": {"dayUsd": 50, "sessionUsd": 2, "hosts": {"*": {"dayUsd": 9}}}}
    mine["providers"] = {"openai": {"models": {"gpt-5": {"inputPrice": 0, "contextWindow": 9}}}}
    found = load_settings({}, SettingsChoice(user=False, flag=json.dumps(mine)))
    allowed = budgets(100.0, found, "gpu-1", FleetOptions())
    assert (allowed.run_usd, allowed.session_usd, allowed.day_usd, allowed.host_usd) == (100.0, 2, 5, 1)
    named = named_provider("openai", {}, found)
    assert named is not None
    model = named.own.models["gpt-5"]
    assert (model.inputPrice, model.contextWindow) == (None, 9)


@pytest.mark.parametrize(
    ("server", "allowed"),
    [
        ("api.anthropic.com:443", True),
        ("bedrock-runtime.eu-west-1.amazonaws.com", True),
        ("llm.example.com:8443", True),
        ("api.openai.com", False),
        ("api.anthropic.com.evil.example", False),
        ("127.0.0.1:4000", False),
    ],
)
def test_a_provider_is_known_by_its_server(server: str, allowed: bool) -> None:
    owners = PolicySettings(providers=["anthropic", "bedrock", "llm.example.com"])
    with nullcontext() if allowed else pytest.raises(PolicyRefused, match="does not allow model calls to"):
        policy.check_provider(owners, server)


async def test_one_that_is_not_allowed_is_not_asked_for_its_models_either(place: Path) -> None:
    place.write_text('{"policy": {"providers": ["anthropic"]}}')
    found = load_settings({}, SettingsChoice(user=False, flag='{"providers": {"openai": {}}}'))
    environ = {"HOME": str(place.parent), "OPENAI_API_KEY": "k", "ANTHROPIC_BASE_URL": "http://127.0.0.1:1"}
    named = named_provider("openai", environ, found)
    assert named is not None
    assert "does not allow model calls to api.openai.com" in (await list_or_why(named, environ, found))[1]
    doctor = [each async for each in laptop_findings(environ)]
    assert any("does not allow model calls to 127.0.0.1" in each.found for each in doctor), doctor


def test_a_server_that_is_not_allowed_is_not_tried_either(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place.write_text('{"policy": {"mcpServers": ["/usr/bin/ok"]}}')
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    assert run_words(["mcp", "add", "mine", "--", "/usr/bin/touch", str(tmp_path / "started")], environ) == 0
    assert run_words(["mcp", "test", "mine"], environ) == 78
    assert "does not allow the MCP server mine (mcpServers)" in capsys.readouterr().err
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("pattern", "text", "allowed"),
    [
        ("https://*.example.com/mcp*", "https://a.example.com/mcp/x", True),
        ("https://*.example.com/mcp*", "https://evil.org/.example.com/mcp", False),
        ("https://a.example.com/*", "https://a.example.com@evil.org/", False),
        ("https://a.example.com/*", "http://a.example.com/", False),
        ("https://*.example.com/*", "https://evil.org\\.example.com/", False),
        ("/usr/bin/npx @corp/*", "/usr/bin/npx @corp/a", True),
        ("/usr/bin/npx @corp/*", "npx @corp/a", False),
        ("/opt/checks/*", "/opt/checks/run --all", True),
        ("/opt/checks/*", "/opt/checks/../../tmp/evil", False),
        ("/opt/checks/*", "/opt/checks/run; evil", False),
        ("/opt/checks/*", "/opt/checks/run\nevil", False),
        ("/opt/checks/*", "/opt/checks/$(evil)", False),
        ("/opt/checks/* 2>&1", "/opt/checks/run 2>&1", True),
        ("https://a.example.com/*", "https://a.example.com/;evil", False),
        ("*", "evil | sh", True),
    ],
)
def test_no_star_leads_to_another_host_or_command(pattern: str, text: str, allowed: bool) -> None:
    assert is_allowed(text, [pattern]) is allowed


def test_a_star_in_a_directory_stands_for_a_part_of_one_name() -> None:
    fits = [
        path
        for path in ("/srv", "/srv/a", "/srv/a/b", "/srv/../etc", "/etc", "/srva/x")
        if holds_directory(path, ["/srv/*"])
    ]
    assert fits == ["/srv/a", "/srv/a/b"]


def test_a_list_of_no_models_is_refused_and_does_not_mean_all(place: Path) -> None:
    place.write_text('{"modelCalls": {"models": []}}')
    with pytest.raises(ConfigError, match=r"modelCalls.models: .* at least 1"):
        load_policy()


@pytest.mark.parametrize(
    ("policy_says", "run"),
    [
        ({}, ["ship", "/opt/a", "curl evil"]),
        ({"policy": {"hooks": ["/opt/*"]}}, ["ship", "/opt/a"]),
        ({"allowManagedHooksOnly": True}, ["ship"]),
    ],
)
def test_hooks_of_the_policy_run_beside_those_of_the_person(
    place: Path, policy_says: dict[str, Any], run: list[str]
) -> None:
    place.write_text(json.dumps({"hooks": {"Notification": [{"hooks": [{"command": "ship"}]}]}, **policy_says}))
    hooks = {"Notification": [{"hooks": [{"command": each} for each in ("/opt/a", "curl evil")]}]}
    found = policy.own_hooks(load_settings({}, SettingsChoice(user=False, flag=json.dumps({"hooks": hooks}))))
    assert [hook["command"] for entry in found["Notification"] for hook in entry["hooks"]] == run


@pytest.mark.parametrize(("policy_says", "runs"), [({}, True), ({"disableAllHooks": True}, False)])
def test_nobody_else_switches_its_hooks_off(place: Path, policy_says: dict[str, bool], runs: bool) -> None:
    place.write_text(json.dumps({"hooks": {"Notification": []}, **policy_says}))
    found = load_settings({}, SettingsChoice(user=False, flag='{"disableAllHooks": true}'))
    assert bool(policy.own_hooks(found)) is runs
