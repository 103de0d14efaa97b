"""Files that usually hold secrets ask, and a mode without questions denies."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.worker.permission_desk import Desk, Named, bash, differing, on_file

from ccb.remote.permissions.rules import Behavior
from ccb.remote.settings.worker_settings import USER, Layer, WorkerSettings

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    for name in (".env", ".env.example", "server.key", "src/id_ed25519"):
        (desk.cwd / name).write_text("x")
    return desk


@pytest.mark.parametrize("name", [".env", "SUB/.Env.Production", "server.key", "src/id_ed25519", "credentials.json"])
def test_a_file_that_usually_holds_secrets_is_not_read_or_changed_without_a_question(desk: Desk, name: str) -> None:
    for tool, mode in (("Read", "default"), ("Grep", "default"), ("Edit", "acceptEdits"), ("Write", "acceptEdits")):
        where = {"path": name} if tool == "Grep" else {"file_path": name}
        decision = desk.engine(mode).decide(Named(tool), {"pattern": "x", **where})
        assert decision.behavior is ASK and "usually holds secrets" in decision.reason, tool
        assert [update["rules"][0]["ruleContent"] for update in decision.suggestions] == [f"/{desk.cwd / name}"]


def test_a_rule_allows_it_and_others_like_it_are_not_meant(desk: Desk) -> None:
    for rule in ("Read(.env)", "Read"):
        assert on_file(desk.engine(allowed=rule), "Read", ".env").behavior is ALLOW
    others = (".env.example", "src/id_ed25519.pub", "keys.py", "src/environment.ts")
    assert differing(desk.engine(), ALLOW, *(f"Read {name}" for name in others)) == []


@pytest.mark.parametrize(
    "rule", ["//{home}/**", "~/**", "~", "//**/*", "//{root}/**", "//{home}/.*/**", "//{home}/*/*", "//{home}*/**"]
)
def test_an_old_rule_about_all_of_a_home_opens_no_place_with_secrets(desk: Desk, rule: str) -> None:
    allowed = rule.format(home=str(desk.home)[1:], root=str(desk.root)[1:])
    for tool in ("Read", "Grep", "LS"):
        engine = desk.engine(allowed=f"Read({allowed})")
        decision = engine.decide(Named(tool), {"pattern": "x", "path": "~/.ssh/id", "file_path": "~/.ssh/id"})
        assert decision.behavior is ASK and "usually holds secrets" in decision.reason, tool
    assert bash(engine, "cat ~/.ssh/id").behavior is ASK


@pytest.mark.parametrize("rule", ["~/.ssh/**", "~/.ssh/id", "~/**/id", "//{home}/.ssh/*", "//**/.ssh/**"])
def test_a_rule_that_names_the_place_opens_it(desk: Desk, rule: str) -> None:
    engine = desk.engine(allowed=f"Read({rule.format(home=str(desk.home)[1:])}) Read(~/**)")
    assert differing(engine, ALLOW, "Read ~/.ssh/id", "Read ~/note") == []


@pytest.mark.parametrize(
    "command", ["cat .env", "head -1 server.*", "ls && cat < src/id_ed25519", "grep x ~/.ssh/id", "cat .env | wc -l"]
)
def test_a_command_that_names_one_asks_and_says_which(desk: Desk, command: str) -> None:
    decision = bash(desk.engine(), command)
    assert decision.behavior is ASK
    assert "usually holds secrets" in decision.reason or "/.ssh" in decision.reason, decision.reason
    assert bash(desk.engine(allowed=f"Bash({command})"), "cat .env.example").behavior is ALLOW


def test_the_exact_command_can_be_allowed(desk: Desk) -> None:
    assert bash(desk.engine(), "cat .env").suggestions[0]["rules"] == [{"toolName": "Bash", "ruleContent": "cat .env"}]
    assert bash(desk.engine(allowed="Bash(cat .env)"), "cat .env").behavior is ALLOW


def test_dont_ask_denies_what_would_need_a_question_and_nothing_else(desk: Desk) -> None:
    engine = desk.engine("dontAsk", allowed="Bash(make *)")
    assert differing(engine, ALLOW, "Read a.txt", "$ make test") == []
    for decision in (on_file(engine, "Edit", "a.txt"), on_file(engine, "Read", ".env"), bash(engine, "rm a.txt")):
        assert decision.behavior is DENY and "dontAsk" in decision.reason and not decision.suggestions


def test_rules_of_settings_count_and_a_later_set_replaces_them(desk: Desk) -> None:
    engine = desk.engine()
    rules = {"allow": ["Bash(make *)"], "ask": ["Read(a.txt)"], "deny": ["Read(src/**)"]}
    engine.use_settings(WorkerSettings((Layer(USER, "settings.json", {"permissions": rules}),)))
    decided = [bash(engine, "make x"), on_file(engine, "Read", "a.txt"), on_file(engine, "Read", "src/b.py")]
    assert [each.behavior for each in decided] == [ALLOW, ASK, DENY]
    engine.use_settings(WorkerSettings())
    assert differing(engine, ASK, "$ make x") == differing(engine, ALLOW, "Read src/b.py") == []
