"""What the person has decided about projects on hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from ccb.local.config.project_records import HostIdentity, Projects
from ccb.tunnel.errors import ConfigError

ALICE = HostIdentity("alice", ("SHA256:a", "SHA256:b"))


@pytest.fixture
def projects(tmp_path: Path) -> Projects:
    return Projects({"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config")})


def test_trust_holds_for_another_name_of_the_host_and_for_no_other_key_or_directory(projects: Projects) -> None:
    projects.trust(ALICE, "/srv/shop", "mark")
    assert projects.find(HostIdentity("alias", ("SHA256:b",)), "/srv/shop").trusted == "mark"
    assert projects.find(HostIdentity("alice", ("SHA256:c",)), "/srv/shop").trusted == ""
    assert projects.find(ALICE, "/srv/shop/sub").trusted == ""
    assert projects.knows("/srv/shop") and not projects.knows("/srv")


def test_rules_are_added_once_and_removed_and_leave_trust_alone(projects: Projects) -> None:
    projects.trust(ALICE, "/srv/shop", "mark")
    for _ in range(2):
        projects.change_rules(ALICE, "/srv/shop", "allow", ["Bash(make *)"], add=True)
    projects.change_rules(ALICE, "/srv/shop", "deny", ["Read(.env)"], add=True)
    assert projects.find(ALICE, "/srv/shop").permissions == {"allow": ["Bash(make *)"], "deny": ["Read(.env)"]}
    projects.change_rules(ALICE, "/srv/shop", "allow", ["Bash(make *)"], add=False)
    assert projects.find(ALICE, "/srv/shop").permissions == {"deny": ["Read(.env)"]}
    assert projects.find(ALICE, "/srv/shop").trusted == "mark"


def test_the_file_is_for_the_person_alone_and_a_damaged_one_is_an_error(projects: Projects) -> None:
    projects.trust(ALICE, "/srv/shop", "mark")
    assert projects.path.stat().st_mode & 0o777 == 0o600
    projects.path.write_text('{"projects": [{"directory": "/srv/shop"}]}')
    with pytest.raises(ConfigError, match="is damaged"):
        projects.find(ALICE, "/srv/shop")


def test_a_decision_that_cannot_be_kept_is_an_error(projects: Projects, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("a file where the directory should be")
    with pytest.raises(ConfigError, match="cannot be written"):
        projects.trust(ALICE, "/srv/shop", "mark")
