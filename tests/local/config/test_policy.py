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

from ccb.local.commands.config import schema_text
from ccb.local.config import policy, settings
from ccb.local.config.settings import PolicySettings, Settings, SettingsChoice
from ccb.local.config.settings_loading import load_policy, load_settings
from ccb.local.ledger.budgets import budgets
from ccb.local.providers.named_provider import named_provider
from ccb.tunnel.errors import ConfigError, PolicyRefused
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
    place.write_text('{\n"policy": {\n"remoteOnly": true,\n"models": ["claude-*"]}}')
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    mine = tmp_path / "config/ccb/settings.json"
    mine.parent.mkdir(parents=True)
    mine.write_text(loose := '{"policy": {"remoteOnly": false, "models": ["*"]}}')
    found = load_settings(environ, SettingsChoice(flag=loose)).policy
    assert found == load_policy() == PolicySettings(remoteOnly=True, models=["claude-*"])
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
    with pytest.raises(ConfigError, match="is not a file"):
        load_policy()


def test_no_list_and_no_host_of_a_person_widens_a_setting_of_it(place: Path) -> None:
    place.write_text(
        '{"modelCalls": {"models": ["claude-haiku-*"], "perMinute": 9}, "permissions": {"deny": ["Read"]}}'
    )
    calls = {"models": ["*"], "hosts": {"*": {"models": ["*"], "perMinute": 99, "maxConcurrent": 2}}}
    mine = json.dumps({"modelCalls": calls, "permissions": {"deny": ["Bash"]}})
    found = load_settings({}, SettingsChoice(user=False, flag=mine))
    limits = found.modelCalls.of_host("gpu-1")
    assert (limits.models, limits.perMinute, limits.maxConcurrent) == (["claude-haiku-*"], 9, 2)
    assert found.permissions.deny == ["Bash", "Read"]


def test_no_variable_begins_a_new_day(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place.write_text('{"policy": {"budgets": {"dayUsd": 5}}}')
    allowed, found = budgets(None, load_settings({}, SettingsChoice(user=False)), "h"), set()
    with monkeypatch.context() as changed:
        for zone in ("UTC", "X-12", "X12"):
            changed.setenv("TZ", zone)
            time.tzset()
            found.add(allowed.midnight())
    time.tzset()
    assert len(found) == 1


@pytest.mark.parametrize("wrong", [{"remote": True}, {"retentionDays": 0}, {"ledger": "here"}])
def test_the_schema_of_a_policy_refuses_a_wrong_value(wrong: dict[str, object]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"policy": wrong}, json.loads(schema_text(policy=True)))


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
    allowed = budgets(100.0, found, "gpu-1")
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
    ],
)
def test_no_path_of_a_url_looks_like_its_host(pattern: str, text: str, allowed: bool) -> None:
    assert is_allowed(text, [pattern]) is allowed


def test_a_star_in_a_directory_stands_for_a_part_of_one_name() -> None:
    fits = [
        path
        for path in ("/srv", "/srv/a", "/srv/a/b", "/srv/../etc", "/etc", "/srva/x")
        if holds_directory(path, ["/srv/*"])
    ]
    assert fits == ["/srv/a", "/srv/a/b"]


@pytest.mark.parametrize(
    ("bounds", "allowed"),
    [
        ({}, True),
        ({"hosts": ["*"]}, True),
        ({"providers": ["anthropic"]}, False),
        ({"models": ["claude-*"]}, False),
        ({"providers": ["anthropic"], "agents": ["acp:good*"]}, True),
    ],
)
def test_an_agent_with_calls_of_its_own_needs_a_pattern(bounds: dict[str, Any], allowed: bool) -> None:
    with nullcontext() if allowed else pytest.raises(PolicyRefused, match="does not allow the agent"):
        policy.check_agent(Settings(policy=PolicySettings(**bounds)), "acp:good")


def test_own_hooks_of_the_laptop_are_filtered() -> None:
    hooks = {"Notification": [{"hooks": [{"command": each} for each in ("/opt/a", "curl evil")]}]}
    found = policy.own_hooks(Settings(hooks=hooks, policy=PolicySettings(hooks=["/opt/*"])))
    assert found == {"Notification": [{"hooks": [{"command": "/opt/a"}]}]}


@pytest.mark.parametrize(("policy_says", "runs"), [({}, True), ({"disableAllHooks": True}, False)])
def test_nobody_else_switches_its_hooks_off(place: Path, policy_says: dict[str, bool], runs: bool) -> None:
    place.write_text(json.dumps({"hooks": {"Notification": []}, **policy_says}))
    found = load_settings({}, SettingsChoice(user=False, flag='{"disableAllHooks": true}'))
    assert bool(policy.own_hooks(found)) is runs
