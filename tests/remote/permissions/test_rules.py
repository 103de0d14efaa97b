"""Rules as people write them, and the paths and commands they match."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest
from tests.remote.permissions.corpus.rows import pairs
from tests.remote.tools_kit import plant

from ccb.remote.permissions.engine import read_rule
from ccb.remote.permissions.paths import PathPattern, PathScope, protection
from ccb.remote.permissions.rules import CommandPattern, Rule, parse_rule, parse_rules, split_rules
from ccb.remote.settings.worker_settings import PROJECT, Layer, Sourced


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        *(("Bash", Rule("Bash")), (" Bash(git *) ", Rule("Bash", "git *"))),
        *(("Bash(echo (a))", Rule("Bash", "echo (a)")), ("Bash(*)", Rule("Bash")), ("Read(//**)", Rule("Read"))),
        *(("Edit(src/**)", Rule("Edit", "src/**")), ("mcp__server", Rule("mcp__server"))),
        ("mcp__server__*", Rule("mcp__server__*")),
    ],
)
def test_a_rule_is_a_tool_and_perhaps_a_pattern(text: str, rule: Rule) -> None:
    assert parse_rule(text) == rule


@pytest.mark.parametrize(
    "text", ["", "  ", "Bash(", "Bash(git", "Bash)", "Bash(a)b", "Bash()", "1x", "(x)", "Edit(!a)", "Ba*"]
)
def test_a_bad_rule_is_named_in_the_error(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text.strip()) or "is empty"):
        parse_rule(text)


def test_a_list_is_split_on_commas_and_blanks_outside_parentheses() -> None:
    text = "Bash(git log *),Read  Edit(src/**, x)\tBash(echo (a b)),,"
    assert split_rules(text) == ["Bash(git log *)", "Read", "Edit(src/**, x)", "Bash(echo (a b))"]
    assert parse_rules(["Bash,Read", "Write"]) == [Rule("Bash"), Rule("Read"), Rule("Write")]


def test_an_open_parenthesis_in_a_list_is_an_error() -> None:
    with pytest.raises(ValueError, match="not closed"):
        split_rules("Read Bash(git *")


@pytest.mark.parametrize(
    ("rule", "covered", "not_covered"),
    [
        ("Edit", ["Edit", "Write", "MultiEdit"], ["Read", "Bash"]),
        *(("Read", ["Read", "Grep", "Glob", "LS"], ["Edit"]), ("Write", ["Write"], ["Edit"])),
        ("mcp__a", ["mcp__a__x", "mcp__a__y"], ["mcp__ab__x", "mcp__b__x"]),
        *(("mcp__a__*", ["mcp__a__x"], ["mcp__ab__x"]), ("mcp__a__x", ["mcp__a__x"], ["mcp__a__xy"])),
    ],
)
def test_which_tools_a_rule_is_about(rule: str, covered: list[str], not_covered: list[str]) -> None:
    parsed = parse_rule(rule)
    assert all(parsed.covers_tool(name) for name in covered)
    assert not any(parsed.covers_tool(name) for name in not_covered)


@pytest.mark.parametrize(
    ("pattern", "matching", "other"),
    [
        ("git *", ["git", "git log", "git  x", "git\tlog"], ["gitk", "xgit"]),
        *(("git:*", ["git", "git log"], ["gitk"]), ("ls*", ["ls", "lsof", "ls -l"], ["xls"])),
        ("npm test", ["npm test"], ["npm test x", "npm tes", " npm test"]),
        ("* --version", ["node --version", "a b --version"], ["node --versions", "--version"]),
        ("git * main", ["git push origin main"], ["git push origin main2"]),
        *(("a*b*c", ["abc", "a1b2c"], ["acb", "ab", "ac"]), ("aa*aa", ["aaaa"], ["aaa"])),
    ],
)
def test_command_patterns(pattern: str, matching: list[str], other: list[str]) -> None:
    assert [text for text in matching if not CommandPattern(pattern).matches(text)] == []
    assert [text for text in other if CommandPattern(pattern).matches(text)] == []


def test_matching_takes_linear_time() -> None:
    started = time.process_time()
    assert not CommandPattern("a*a*a*a*a*a*b").matches("a" * 20_000)
    assert time.process_time() - started < 5


@pytest.fixture
def places(tmp_path: Path) -> PathScope:
    plant(tmp_path, "project/src/deep/", "home/", "other/")
    return PathScope.of(str(tmp_path / "project"), str(tmp_path / "home"), [str(tmp_path / "other")])


@pytest.mark.parametrize("allows", [True, False])
def test_path_patterns(places: PathScope, allows: bool) -> None:
    for pattern, path in pairs(f"patterns and paths that they {'' if allows else 'do not '}allow"):
        assert PathPattern(pattern).allows(places.real(path), places) is allows, (pattern, path)


def test_two_slashes_make_a_pattern_absolute(places: PathScope, tmp_path: Path) -> None:
    real = str((tmp_path / "other").resolve())
    assert PathPattern(f"/{real}/**").allows(f"{real}/x", places)
    assert not PathPattern(f"{real}/**").allows(f"{real}/x", places)


def test_a_link_in_the_project_leads_no_allow_rule_out_of_it(places: PathScope, tmp_path: Path) -> None:
    (tmp_path / "project/out").symlink_to(tmp_path / "home")
    for pattern in ("out/**", "**", "out/x"):
        assert not PathPattern(pattern).allows(places.real("out/x"), places)


def test_an_absolute_rule_about_a_link_is_about_where_it_leads(places: PathScope, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert PathPattern(f"/{tmp_path}/link/**").allows(places.real(f"{tmp_path}/link/x"), places)


def test_a_deny_pattern_sees_the_name_the_target_and_any_case(places: PathScope, tmp_path: Path) -> None:
    (tmp_path / "project/alias").symlink_to(tmp_path / "project/src")
    for path in ("src/key", "./src/../src/key", "alias/key", "SRC/Key"):
        assert PathPattern("src/*").forbids(path, places), path
    assert PathPattern("alias/**").forbids("alias/key", places)
    assert PathPattern(f"{tmp_path}/other/**").forbids(f"{tmp_path}/other/x", places), "also with one slash"
    assert PathPattern("src/*").forbids("src/deep/er", places), "what is below a denied directory is denied"


_PROTECTED = (
    *(".git/hooks/x", "sub/.GIT/config", "~/.ssh/config", "~/.bashrc", ".mcp.json", ".claude/settings.local.json"),
    *("CLAUDE.md", "sub/AGENTS.md", ".cursor/rules/a.mdc", ".vscode/tasks.json", ".envrc", ".githooks/pre-commit"),
    *(".claude/rules/a.md", ".cursorrules", ".git", ".nvim.lua", ".yarnrc.yml"),
)
_ORDINARY = ("src/a.py", ".gitignore", ".github/workflows/x.yml", ".claude/notes.md", "bin/x")


def test_files_that_start_programs_or_hold_keys_are_protected_and_ordinary_files_are_not(places: PathScope) -> None:
    why = {path: protection(places.real(path), places.home) for path in (*_PROTECTED, *_ORDINARY)}
    assert [path for path in _PROTECTED if not why[path]] == []
    assert [path for path in _ORDINARY if why[path] is not None] == []


def test_what_the_next_worker_runs_is_protected(places: PathScope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", f"{places.home}/Cache")
    assert protection(places.real("~/Cache/ccb/worker/bundle.code"), places.home)
    assert protection(places.real(f"/tmp/ccb-{os.getuid()}/worker"), places.home)
    assert protection(places.real("~/Cache/ccb/other"), places.home) is None


def test_a_path_with_one_slash_in_settings_of_a_project_starts_where_they_are(tmp_path: Path) -> None:
    home, root = tmp_path / "home", tmp_path.resolve() / "re[po"
    plant(root, "deep/", f"out -> {tmp_path}")
    layer = Layer(PROJECT, f"{root}/.claude/settings.json", {}, on_host=True)
    places = PathScope.of(str(root / "deep"), str(home))

    def pattern(text: str) -> PathPattern:
        return PathPattern(read_rule(Sourced(text, layer)).content or "")

    assert pattern("Edit(/src/**)").allows(f"{root}/src/a.py", places)
    assert not pattern("Edit(src/**)").allows(f"{root}/src/a.py", places)
    assert not pattern("Edit(/out/**)").allows(str(tmp_path.resolve() / "key"), places), "a link leads out"
    assert pattern("Read(/out/**)").forbids(f"{root}/out/key", places)
    assert pattern("Read(//etc/*)").text == "//etc/*" and pattern("Read(~/x)").text == "~/x"
