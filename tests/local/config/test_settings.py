"""The settings file: what it may say, and what a wrong one answers."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ccb.local.config import settings as known
from ccb.local.config.settings import SETTING_NAMES, Settings, SettingsChoice, settings_path
from ccb.local.config.settings_loading import (
    DEFAULT_SCREEN,
    keep_setting,
    load_screen_settings,
    load_settings,
    load_sharing,
)
from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.transports.pipe import Sharing


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "config")}


def write(environ: dict[str, str], content: Any) -> Path:
    path = settings_path(environ)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def refused(environ: dict[str, str], said: str | None = None, flag: str | None = None) -> ConfigError:
    with pytest.raises(ConfigError, match=said) as caught:
        load_settings(environ, SettingsChoice(flag=flag))
    return caught.value


def test_a_file_as_an_editor_of_another_system_writes_it_is_read(environ: dict[str, str]) -> None:
    assert load_settings(environ) == Settings()  # without a file
    path = write(environ, '\ufeff{"permissions": {"deny": ["Read(a)"]},\r\n"permissions": {"deny": ["Read(b)"]}}\r\n')
    settings = load_settings(environ)
    assert settings.permissions.deny == ["Read(a)", "Read(b)"]
    again = "permissions stands here again: entries of both count, of single values the last"
    assert settings.warnings == [f"{path}, line 2: {again}"]


EVERY_KEY = """{
"apiKeyHelper": "pass show anthropic", "model": "some-model", "permissionMode": "acceptEdits", "sandbox": "workspace",
"web": "laptop", "webAllowPrivate": true, "agent": "critic", "smallModel": "fast", "recordModelCalls": true,
"sessionTitles": false,
"permissions": {"allow": ["Bash(git *)"], "deny": ["Read(/etc/**)"], "ask": ["WebFetch"], "defaultMode": "plan",
  "additionalDirectories": ["/srv"], "disableBypassPermissionsMode": "disable"},
"budgets": {"sessionUsd": 5, "sessionTokens": 9, "strict": true, "dayUsd": 20.5, "dayTokens": 1000000,
  "hosts": {"gpu": {"dayUsd": 2, "dayTokens": 3}}},
"modelCalls": {"models": ["claude-*"], "maxOutputTokens": 9000, "maxRequestBytes": 200000, "maxResponseBytes": 200000,
  "maxConcurrent": 2, "perMinute": 9, "expiresHours": 2, "hosts": {}},
"credentials": {"store": "file", "passphraseHelper": "pass show ccb", "helperSeconds": 60, "workspace": "wrk_1",
  "account": {"openai": "home"}, "hosts": {"gpu-*": {"openai": "lab"}}},
"otel": {"endpoint": "https://collector/otlp", "metrics": false, "content": true},
"network": {"caFile": "/etc/ca.pem", "clientCertificate": "/c.pem", "clientKey": "/k.pem"},
"modelAliases": {"fast": "openai/gpt-5-mini"}, "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "make"}]}]},
"statusLine": {"command": "date", "type": "command"},
"ports": {"offer": false, "ignore": [9229], "labels": {"80": "web"}},
  "openWith": "feh", "images": "off", "notify": "osc9", "keys": {"details": "Ctrl+Y"}, "editorMode": "vim",
"mouse": false, "disableAllHooks": true, "allowManagedHooksOnly": true, "env": {"CI": "1"}, "outputStyle": "Learning",
"autoCompactEnabled": false, "language": "Deutsch", "providers": {}, "mcpServers": {"db": {"command": "npx"}},
"connectTimeoutSeconds": 12, "pipelinedLogin": false, "backgroundAfterSeconds": 20, "graceHours": 48, "idleMinutes": 5,
"controlMaster": false, "keepConnection": 30, "nodeCommand": "ssh {node}", "importClaudeSettings": "hooks"}"""


def test_all_known_keys_are_read(environ: dict[str, str]) -> None:
    write(environ, EVERY_KEY)
    settings = load_settings(environ)
    read = {name: value for name, value in asdict(settings).items() if name in SETTING_NAMES}
    assert (read, settings.warnings) == (json.loads(EVERY_KEY), [])


def test_how_images_were_drawn_is_no_choice_any_more_and_no_error(environ: dict[str, str]) -> None:
    for old in ("auto", "kitty", "iterm2", "sixel", "blocks", "off"):
        now = "off" if old == "off" else "on"
        write(environ, {"images": old})
        settings = load_settings(environ)
        assert (settings.images, settings.warnings) == (now, [])
        assert load_screen_settings(environ).images is (now == "on")


def test_whether_connections_are_shared_is_known_without_reading_the_rest(environ: dict[str, str]) -> None:
    assert load_sharing(environ) == Sharing(own_master=True, keep_s=0)
    write(environ, {"controlMaster": False, "keepConnection": 0.5, "model": 7})
    assert load_sharing(environ) == Sharing(own_master=False, keep_s=30)
    for wrong in ("60", True, -1, 1e9):
        write(environ, {"keepConnection": wrong})
        assert load_sharing(environ) == Sharing()
    for value, used in ((True, True), (False, False), ("no", False)):
        write(environ, {"pipelinedLogin": value})
        assert load_sharing(environ).pipelined is used
    write(environ, "{")  # an error for `load_settings`
    assert load_sharing(environ) == Sharing(pipelined=False)


def test_the_file_is_found_by_the_xdg_rules(tmp_path: Path) -> None:
    assert settings_path({"HOME": "/h", "XDG_CONFIG_HOME": "/c"}) == Path("/c/ccb/settings.json")
    assert settings_path({"HOME": "/h"}) == Path("/h/.config/ccb/settings.json")
    assert settings_path({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == Path("/h/.config/ccb/settings.json")


def test_unknown_keys_have_no_effect_and_are_warned_about(environ: dict[str, str]) -> None:
    path = write(environ, {"modle": "typo", "permissions": {"alow": []}})
    settings = load_settings(environ)
    assert settings.model is None
    assert settings.warnings == [
        f"{path}, line 1: unknown key 'modle' has no effect; did you mean 'model'?",
        f"{path}, line 1: unknown key 'permissions.alow' has no effect; did you mean 'permissions.allow'?",
    ]


def test_a_rule_about_a_tool_that_there_is_not_is_warned_about_with_a_near_name(environ: dict[str, str]) -> None:
    rules = {"allow": ["Bash(git *),Raed", "mcp__any__tool"], "deny": ["bash", "Zzz(x)"], "ask": ["Write(a, b)"]}
    path = write(environ, {"permissions": rules})
    assert load_settings(environ).warnings == [
        f"{path}, line 1: permissions.allow: there is no tool 'Raed'; did you mean Read?",
        f"{path}, line 1: permissions.deny: there is no tool 'bash'; did you mean Bash?",
        f"{path}, line 1: permissions.deny: there is no tool 'Zzz'",
    ]


RULES = '{\n"permissions": {\n"allow": ["Bash(git *)", "Read"],\n"deny": [\n"Read(/x)",\n"%s"\n]}}'
WRONG_RULES = ("Bash(", "Bash()", "Bash(git", "1x", "Edit(!a)", "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"model": 5}, ", line 1: model: "),
        ({"model": ""}, ", line 1: model: "),
        ({"permissionMode": "yolo"}, ", line 1: permissionMode: "),
        ({"permissions": {"allow": "Bash"}}, ", line 1: permissions.allow: "),
        ({"permissions": {"deny": [1]}}, ", line 1: permissions.deny.0: "),
        ({"permissions": []}, ", line 1: permissions: "),
        *(({"connectTimeoutSeconds": wrong}, ", line 1: connectTimeoutSeconds: ") for wrong in (0, "30", 1e9)),
        ([], " is not a JSON object"),
        ("{,", "(line 1, column 2)"),
        ("[" * 100_000, " is not JSON"),
        ('{"other": ' + "[" * 900 + "]" * 900 + "}", "200 levels"),
        ('{"model": "' + "x" * 1024 * 1024 + '"}', " is larger than"),
        *((f'{{"graceHours": {digits}}}', "") for digits in ("9" * 5_000, "-" + "9" * 4_000, "1e999", "NaN")),
        ('{\n"model": "opus",\n"permissions": {\n"allow": [],\n"ask": "Bash"}}', ", line 5: permissions.ask: "),
        ('{\n"env": {},\n"model": "foo bar"}', ", line 3: model: 'foo bar' is no model"),
        ('{"model": "fast", "modelAliases": {\n"fast": "a b"}}', ", line 2: modelAliases.fast: 'a b' is no model"),
        ('{"permissions": {"deny": [\n"Read(a)",\n"Read(b"]}}', ", line 3: permissions.deny"),
        ('{"permissions": {"deny": [\n"Read(a)",\n3]}}', ", line 3: permissions.deny.1"),
        *((RULES % rule, ", line 6: permissions.deny: ") for rule in WRONG_RULES),
        ('{"env": {\n"T": "9",\n"NPM_TOKEN": "x"}}', ", line 3: env.NPM_TOKEN: settings must not hold a secret"),
        ('{"keys": {"todos": "F2",\n"detials": "F3"}}', ", line 2: keys.detials: there is no key of this"),
        ('{"model": "\udcff"}', " is not UTF-8 text"),
        ({"ANTHROPIC_API_KEY": "x"}, "must not hold a secret"),
        ({"apiKey": "x"}, "must not hold a secret"),
        ({"authToken": "x"}, "must not hold a secret"),
        ({"apiKeyHelper": "echo sk-ant-api03-abcdefgh"}, "must not hold a secret"),
        ({"other": {"deep": ["sk-ant-api03-abcdefgh"]}}, "must not hold a secret"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_wrong_is_named_with_file_line_and_no_secret(environ: dict[str, str], content: Any, said: str) -> None:
    path = write(environ, "")
    path.write_bytes((content if isinstance(content, str) else json.dumps(content)).encode(errors="surrogateescape"))
    error = refused(environ)
    assert error.what.startswith(str(path)) and said in error.what and error.do
    assert len(str(error)) < 1_000 and "sk-ant" not in str(error)


@pytest.mark.parametrize(
    ("place", "said", "modes", "safe"),
    [
        ("config/ccb/settings.json", "other users", (0o664, 0o646, 0o666), 0o644),
        ("config/ccb", "other users through", (0o775, 0o757), 0o1777),  # others can neither remove nor replace ours
        ("config", "other users through", (0o775, 0o757), 0o1777),
    ],
)
def test_what_others_can_change_is_refused(
    environ: dict[str, str], tmp_path: Path, place: str, said: str, modes: tuple[int, ...], safe: int
) -> None:
    write(environ, {"apiKeyHelper": "true"})
    path = tmp_path / place
    for mode in modes:
        path.chmod(mode)
        error = refused(environ, said)
        assert f"mode {mode:04o}" in error.what and error.do == f"Run `chmod go-w {path}`."
    path.chmod(safe)
    assert load_settings(environ).apiKeyHelper == "true"


def test_a_link_is_followed_and_every_directory_on_its_way_counts(environ: dict[str, str], tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "deep" / "ccb.json"
    real.parent.mkdir(parents=True)
    real.write_text('{"model": "opus"}')
    hop = tmp_path / "hop" / "settings"
    hop.parent.mkdir()
    hop.symlink_to("../dotfiles/deep/ccb.json")
    path = settings_path(environ)
    path.parent.mkdir(parents=True)
    path.symlink_to(hop)
    assert load_settings(environ).model == "opus"
    for on_the_way in (tmp_path / "dotfiles", real.parent, hop.parent, path.parent):
        on_the_way.chmod(0o777)
        refused(environ, f"through {on_the_way}:")
        on_the_way.chmod(0o755)
    hop.unlink()
    hop.symlink_to(path)
    refused(environ, "cannot be read")
    hop.unlink()
    assert load_settings(environ) == Settings()


def test_directories_above_the_home_directory_do_not_count(tmp_path: Path) -> None:
    environ = {"HOME": str(tmp_path / "shared" / "home")}
    write(environ, {"model": "opus"})
    (tmp_path / "shared").chmod(0o777)
    assert load_settings(environ).model == "opus"
    (tmp_path / "shared" / "home").chmod(0o775)
    refused(environ, "other users")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("place", ["config/ccb/settings.json", "config/ccb", "config"])
def test_what_belongs_to_another_user_is_refused(environ: dict[str, str], tmp_path: Path, place: str) -> None:
    write(environ, {"apiKeyHelper": "true"})
    os.chown(tmp_path / place, 12345, -1)
    error = refused(environ, "belongs to user 12345")
    assert error.do == f"Make yourself the owner: `sudo chown {os.getuid()} {tmp_path / place}`."


@pytest.mark.parametrize("kind", ["a named pipe", "a socket", "a device", "a directory"])
def test_what_is_no_file_is_refused_without_opening_it(environ: dict[str, str], tmp_path: Path, kind: str) -> None:
    path = settings_path(environ)
    path.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "a named pipe":
            os.mkfifo(path)
        elif kind == "a socket":
            server.bind(str(path))
        elif kind == "a device":
            path.symlink_to("/dev/zero")
        else:
            path.mkdir()
        error = refused(environ, "cannot be read: it is not a file")
    assert error.do == f"Remove {path}, or make it a file."
    path.rmdir() if kind == "a directory" else path.unlink()
    os.truncate(write(environ, ""), 1 << 40)
    refused(environ, "larger than")  # at once


def test_options_outrank_the_file_and_a_policy_outranks_both(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(environ, {"model": "opus", "sandbox": "off", "permissions": {"deny": ["Read(/a)"]}, "env": {"A": "1"}})
    policy = tmp_path / "policy.json"
    policy.write_text('{"sandbox": "read-only", "permissions": {"deny": ["Read(/c)"]}}')
    flag = '{"model": "haiku", "permissions": {"deny": ["Read(/b)"]}, "env": {"B": "2"}, "sandbox": {"enabled": true}}'
    with monkeypatch.context() as there:
        there.setattr(known, "POLICY_FILES", (policy,))
        settings = load_settings(environ, SettingsChoice(flag=flag))
    assert (settings.model, settings.sandbox, settings.env) == ("haiku", "read-only", {"A": "1", "B": "2"})
    assert settings.permissions.deny == ["Read(/a)", "Read(/b)", "Read(/c)"]
    assert settings.is_managed("sandbox") and not settings.is_managed("model")
    assert [layer.source for layer in settings.layers] == ["user", "flag", "managed"]
    assert settings.warnings == ["--settings, line 1: unknown key 'sandbox' has no effect"]
    assert load_settings(environ, SettingsChoice(user=False, flag=flag)).env == {"B": "2"}


def test_the_settings_of_an_option_may_be_in_a_file(environ: dict[str, str], tmp_path: Path) -> None:
    path = tmp_path / "more.json"
    with pytest.raises(UsageError, match=f"Error: Settings file not found: {path}"):
        load_settings(environ, SettingsChoice(flag=str(path)))
    with pytest.raises(UsageError, match="cannot be read"):
        load_settings(environ, SettingsChoice(flag=str(tmp_path)))
    path.write_text('{"model": "opus"}')
    assert load_settings(environ, SettingsChoice(flag=str(path))).model == "opus"


def test_the_first_frame_has_the_settings_of_file_and_option(environ: dict[str, str]) -> None:
    write(environ, {"editorMode": "vim", "mouse": False, "keys": {"details": "Ctrl+Y", "todos": "Ctrl+O"}})
    found = load_screen_settings(environ, SettingsChoice(flag='{"mouse": true, "keys": {"todos": ["F2", "F3"]}}'))
    assert (found.mouse, found.vim) == (True, True)
    assert (found.keymap.names("details"), found.keymap.names("todos")) == ("Ctrl+Y", "F2, F3")


@pytest.mark.parametrize("content", ["{", {"keys": {"details": "q"}}, {"keys": 1, "mouse": "no", "editorMode": 7}])
def test_what_cannot_be_used_does_not_keep_the_first_frame_away(environ: dict[str, str], content: Any) -> None:
    write(environ, content)
    assert load_screen_settings(environ) == DEFAULT_SCREEN
    refused(environ)


def test_a_key_that_two_sources_give_away_is_refused_where_it_was_given_last(environ: dict[str, str]) -> None:
    write(environ, {"keys": {"details": "F2"}})
    error = refused(environ, flag='{"keys": {"todos": "F2"}}')
    assert error.what.startswith("--settings, line 1: keys.todos: F2 is the key of 'details', too")


def test_the_keys_of_the_input_are_kept_beside_all_other_settings(environ: dict[str, str]) -> None:
    path = write(environ, {"model": "opus", "editorMode": "vim"})
    keep_setting(environ, ["editorMode"], "normal")
    assert json.loads(path.read_text(encoding="utf-8")) == {"model": "opus", "editorMode": "normal"}
    keep_setting(environ, ["editorMode"], "vim")
    assert load_settings(environ).editorMode == "vim"
