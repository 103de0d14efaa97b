"""`ccb config`: what is shown, and what is changed."""

from __future__ import annotations

import functools
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from tests.support.machine.programs import shell_script
from tests.support.run_words import run_words

from ccb.local.commands.config import change_setting, schema_text
from ccb.local.config import settings as known
from ccb.local.config.project_records import HostIdentity, Projects
from ccb.local.config.settings import settings_path
from ccb.local.config.settings_loading import load_settings
from ccb.tunnel.errors import CcbError

GUIDE = Path(__file__).resolve().parents[3] / "docs"


def test_each_value_is_shown_with_its_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    path = tmp_path / "config/ccb/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n"model": "opus",\n"permissions": {\n"deny": ["Read(/c)",\n"Read(/a)"]},\n"modle": 1}')
    projects = Projects(environ)
    host = HostIdentity("devbox", ("SHA256:a",))
    projects.trust(host, "/srv/shop", "mark")
    projects.change_rules(host, "/srv/shop", "allow", ["Bash(make *)"], add=True)
    flag = '{"model": "haiku", "permissions": {"deny": ["Read(/b)"]}}'
    assert run_words(["config", "show", "--origin", "--settings", flag], environ) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines() == [
        'model = "haiku"  (flag: --settings, line 1)',
        f'permissions.deny = "Read(/c)"  (user: {path}, line 4)',
        f'permissions.deny = "Read(/a)"  (user: {path}, line 5)',
        'permissions.deny = "Read(/b)"  (flag: --settings, line 1)',
        f"devbox:/srv/shop is trusted  (kept: {projects.path})",
        f'devbox:/srv/shop permissions.allow = "Bash(make *)"  (kept: {projects.path})',
    ]
    assert shown.err == f"ccb: {path}, line 6: unknown key 'modle' has no effect; did you mean 'model'?\n"
    assert run_words(["config", "show"], environ) == 0
    assert capsys.readouterr().out.splitlines()[2:3] == ['permissions.deny = "Read(/a)"']


def test_where_nothing_is_set_it_says_where_settings_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_words(["config", "show"], {"HOME": str(tmp_path)}) == 0
    assert capsys.readouterr().out.startswith(f"Nothing is set. Settings are in {tmp_path}/.config/ccb/settings.json")


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    path = tmp_path / "config/ccb/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n  "$schema": "./s.json",\n  "permissions": {\n    "deny": [\n      "Read(/a)"\n    ]\n  }\n}\n')
    return {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": "/usr/bin:/bin"}


@pytest.mark.quick_rows(8)
@pytest.mark.parametrize(
    "words, said",
    [
        (["get", "model"], "null"),
        (["get", "notify"], "auto"),
        (["get", "graceHours", "--origin"], "24  (default)"),
        (["get", "permissions.deny", "--origin"], '["Read(/a)"]  (user: FILE, line 5)'),
        (["get", "env.FOO"], "null"),
        (
            ["get", "ports.offer", "--settings", '{"ports": {\n"offer": false}}', "--origin"],
            "false  (flag: --settings, line 2)",
        ),
        (["get", "ports.ignore", "--settings", '{"ports": {"offer": false}}', "--origin"], "[]  (default)"),
        (["get", "model", "--settings", '{"model": "haiku"}', "--origin"], "haiku  (flag: --settings, line 1)"),
        (["get", "providers"], "{}"),
        (["set", "language", "5"], 'language = "5"  (FILE, line 8)'),
        (["set", "keepConnection", "30"], "keepConnection = 30  (FILE, line 8)"),
        (["set", 'budgets.hosts."gpu.x".dayUsd', "3"], 'budgets.hosts."gpu.x".dayUsd = 3  (FILE, line 11)'),
        (["unset", "permissions.deny"], "permissions.deny is removed from FILE."),
        (["set", "permissions", "null"], "permissions is removed from FILE."),
        (["unset", "model"], "model is not set in FILE."),
    ],
)
def test_a_value_is_read_and_changed_under_its_name(
    environ: dict[str, str], words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_words(["config", *words], environ) == 0
    path = settings_path(environ)
    assert capsys.readouterr().out == f"{said}\n".replace("FILE", str(path))
    assert path.read_text().startswith('{\n  "$schema": "./s.json"') and not load_settings(environ).warnings


@pytest.mark.parametrize(
    "key, value, said",
    [
        ("modle", "x", "Did you mean model?"),
        ("permissions.alow", "[]", "Did you mean permissions.allow?"),
        ("given", "[]", "there is no setting"),
        (".", "[]", "names no setting"),
        ("graceHours", "soon", "graceHours: Input should be a valid number"),
        ("permissions.deny", '["Read("]', "the closing parenthesis is missing"),
        ("keys.details", "Ctrl+Q", "is the key of 'quit'"),
        ("env.API_TOKEN", "x", "must not hold a secret"),
        ("model", "haiku", "model is held by the policy"),
        ("budgets.dayUsd", "100", "budgets.dayUsd is held by the policy"),
    ],
)
def test_what_would_be_wrong_or_without_effect_is_not_written(
    environ: dict[str, str], key: str, value: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "managed.json"
    monkeypatch.setattr(known, "POLICY_FILES", (policy,))
    policy.write_text('{"model": "opus", "budgets": {"dayUsd": 5}, "permissions": {"deny": ["Read(/b)"]}}')
    before = settings_path(environ).read_text()
    with pytest.raises(CcbError) as refused:
        change_setting(key, value, environ)
    assert said in str(refused.value) and settings_path(environ).read_text() == before
    change_setting("permissions.deny", "[]", environ)  # rules of both count


@pytest.mark.parametrize("written, code", [('{"modle": 1}', 0), ('{"model": 1}', 78)])
def test_the_file_is_checked_when_the_editor_has_ended(
    environ: dict[str, str], written: str, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    editor = shell_script(tmp_path / "bin/ed", f"echo '{written}' > \"$1\"")
    assert run_words(["config", "edit"], {**environ, "EDITOR": str(editor)}) == code
    assert "line 1" in capsys.readouterr().err and settings_path(environ).read_text() == f"{written}\n"


def _documented() -> list[str]:
    pages = [GUIDE / "reference/settings.md", *sorted((GUIDE / "guide").glob("*.md"))]
    blocks = [each for page in pages for each in re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)]
    return [each for each in blocks if _is_of_settings(each)]


@functools.cache
def schema() -> dict[str, Any]:
    return dict(json.loads(schema_text()))


def _is_of_settings(block: str) -> bool:
    try:
        return bool(json.loads(block).keys() & schema()["properties"].keys())
    except (ValueError, AttributeError):
        return False


@functools.cache
def validator() -> Draft202012Validator:
    Draft202012Validator.check_schema(schema())
    return Draft202012Validator(schema())


@pytest.mark.parametrize("text", _documented())
def test_the_schema_accepts_each_documented_example(text: str) -> None:
    given = json.loads(text)
    validator().validate(given)


@pytest.mark.parametrize("wrong", [{"model": 5}, {"modle": "opus"}, {"graceHours": 0}, {"permissions": {"allow": "x"}}])
def test_the_schema_refuses_a_wrong_value(wrong: dict[str, Any]) -> None:
    assert not validator().is_valid(wrong)
