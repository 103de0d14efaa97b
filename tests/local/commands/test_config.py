"""`ccb config show`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.run_words import run_words

from ccb.local.config.project_records import HostIdentity, Projects


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
