"""What a rule with a wildcard does not cover, and what the rules of an ordinary session do."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.remote.permissions.corpus.rows import cases, pairs
from tests.support.worker.permission_desk import Desk, bash

from ccb.remote.permissions.rules import Behavior
from ccb.remote.permissions.shell.harmless_options import HARMLESS
from ccb.remote.permissions.shell.risky_options import TABLES, uncovered
from ccb.remote.permissions.shell.shell_parser import parse

ALLOW, ASK = Behavior.ALLOW, Behavior.ASK


def refused(desk: Desk, lines: Iterable[str]) -> list[str]:
    """Return the lines `rule: command` that a rule covers although it must not."""
    wrong = []
    for line in lines:
        rule, _, command = line.partition(": ")
        if bash(desk.engine(allowed=f"Bash({rule})"), command).behavior is not ASK:
            wrong.append(line)
    return wrong


def test_a_rule_with_a_wildcard_covers_no_option_that_runs_writes_or_reaches_elsewhere(desk: Desk) -> None:
    assert refused(desk, cases("options that run, write or reach elsewhere")) == []


def test_what_the_text_or_the_directory_hides_may_be_an_option(desk: Desk) -> None:
    (desk.cwd / "--upload-pack=x").touch()
    (desk.cwd / "SHELL=x.o").touch()
    lines = ("git fetch *: git fetch *", "git fetch *: git fetch -*", "make *: make *.o", "make *: make ?HELL*")
    assert refused(desk, lines) == []


def test_old_rules_tell_why_they_do_not_cover_a_call(desk: Desk) -> None:
    decision = bash(desk.engine(allowed="Bash(git fetch *)"), "git fetch --upload-pack=x")
    assert "A rule with a wildcard does not cover --upload-pack=x." in decision.reason
    assert [rule["ruleContent"] for rule in decision.suggestions[0]["rules"]] == ["git fetch --upload-pack=x"]


@pytest.mark.parametrize(("rule", "command"), pairs("rules and commands whose risk they spell out"))
def test_what_the_rule_itself_spells_out_is_covered(desk: Desk, rule: str, command: str) -> None:
    assert bash(desk.engine(allowed=f"Bash({rule})"), command).behavior is ALLOW


def test_a_rule_that_ends_in_an_option_does_not_cover_its_value(desk: Desk) -> None:
    assert refused(desk, ["docker run -v *: docker run -v /:/x a", "git -c *: git -c core.pager=x log -p"]) == []


RULES = (
    "Bash(git add *) Bash(git commit *) Bash(git fetch *) Bash(git pull *) Bash(git stash *) Bash(git switch *)"
    " Bash(git restore *) Bash(git push *) Bash(git checkout *) Bash(git rebase *) Bash(git merge *) Bash(git log *)"
    " Bash(pytest *) Bash(ruff *) Bash(mypy *) Bash(npm test *) Bash(npm run build *) Bash(npm install *)"
    " Bash(cargo test *) Bash(cargo clippy *) Bash(go test *) Bash(go build *) Bash(make *) Bash(docker *)"
    " Bash(kubectl get *) Bash(kubectl logs *) Bash(tar *) Bash(curl *) Bash(sed *) Bash(awk *) Bash(find *)"
    " Bash(pip install *) Bash(uv run *) Bash(python -m pytest *) Bash(mvn test *) Bash(cmake *) Bash(sort *)"
    " Bash(npx *) Bash(vim *) Bash(tsc *) Bash(eslint *) Bash(prettier *) Bash(black *)"
    " Bash(uv sync *) Bash(rsync *)"
)


def test_the_everyday_commands_of_a_session_are_covered_as_before(desk: Desk) -> None:
    (desk.cwd / "pyproject.toml").touch()
    allowed = RULES.replace("Bash(python -m", "Bash(.venv/bin/python -m pytest *) Bash(python -m")
    engine = desk.engine(allowed=allowed)
    commands = cases("everyday commands that rules cover")
    assert len(commands) >= 65
    asked = [(line, bash(engine, line).reason) for line in commands if bash(engine, line).behavior is ASK]
    assert asked == []


def test_the_rule_that_an_everyday_command_suggests_covers_it(desk: Desk) -> None:
    wrong = []
    for line in cases("everyday commands whose suggested rule covers them"):
        updates = bash(desk.engine(), line).suggestions
        rules = [rule["ruleContent"] for rule in updates[0]["rules"]] if updates else []
        given = desk.engine(allowed=" ".join(f"Bash({rule})" for rule in rules))
        if not any("*" in rule for rule in rules) or bash(given, line).behavior is not ALLOW:
            wrong.append((line, rules))
    assert wrong == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(
    st.sampled_from(sorted(HARMLESS)),
    st.from_regex(r"--?[a-zA-Z][a-zA-Z.-]{0,12}", fullmatch=True),
    st.sampled_from(["", "=x", ":x", " x"]),
    st.sampled_from(["", "-- ", "x "]),
)
def test_a_suggested_rule_covers_no_option_that_is_not_listed(name: str, option: str, value: str, before: str) -> None:
    listed = {entry.rstrip("=@").lstrip("-") for entry in f"--help --version {HARMLESS[name]}".split()}
    assume(option.lstrip("-") not in listed and (option.startswith("--") or option[1] not in listed))
    (command,) = parse(f"{name} {before}{option}{value}")
    assert uncovered(command.words, len(name.split()), lambda path: True, ["/"]) is not None, command.raw


@pytest.mark.parametrize(("mode", "allowed"), [("default", "Bash"), ("bypassPermissions", "")])
def test_deny_rules_ask_about_arguments_that_may_run_what_they_deny(desk: Desk, mode: str, allowed: str) -> None:
    engine = desk.engine(mode, allowed, "Bash(rm *)")
    lines = cases("arguments that may run what is denied")
    assert [line for line in lines if bash(engine, line).behavior is not ASK] == []


@pytest.mark.parametrize(
    "command",
    [
        *("git commit -m 'fix: a[0]' && GIT_EDITOR=true git rebase --continue", '[ "$a[1]" = x ] && make -j8 test'),
        "npm test -- --watch=false && docker compose up -d",
        "git commit -m 'PAGER=less -R is set' && export A=b && read -r x <<< y && unset x && pytest -q -n auto",
        "curl -s http://localhost:8000/health && tar xzf a.tgz && ssh h ls",
    ],
)
def test_deny_rules_ask_about_no_everyday_command(desk: Desk, command: str) -> None:
    assert bash(desk.engine("bypassPermissions", "", "Bash(rm *)"), command).behavior is ALLOW


_LETTERS = {
    "tar": ("xzvf", "IFTgP"),
    "curl": ("sSLfk", "oKTFD"),
    "ssh": ("4qtv", "oFJLR"),
    "docker run": ("itd", "v"),
    "pytest": ("qvxs", "pco"),
}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.sampled_from(sorted(_LETTERS)), st.data())
def test_no_bundle_hides_a_letter(tmp_path_factory: pytest.TempPathFactory, name: str, data: st.DataObject) -> None:
    harmless, excluded = _LETTERS[name]
    bundle = "".join(data.draw(st.lists(st.sampled_from(harmless), max_size=4))) + data.draw(st.sampled_from(excluded))
    line = f"{name} -{bundle}{data.draw(st.sampled_from(['', ' ', '=']))}./x y"
    engine = Desk(tmp_path_factory.mktemp("desk")).engine(allowed=f"Bash({name} *)")
    assert bash(engine, line).behavior is ASK, line


_ABBREVIATE = ("tar", "sort", "rsync", "npm", "wget", "man")
_ENTRIES = [
    (program, entry.rstrip("@!*"), entry.endswith("@"))
    for program, table in TABLES.items()
    for entry in table.split()
    if entry != "@" and entry[-1] not in "+="
]


@settings(deadline=None, max_examples=300)
@given(st.sampled_from(_ENTRIES), st.data())
def test_each_option_of_each_table_is_found_in_each_spelling(entry: tuple[str, str, bool], data: st.DataObject) -> None:
    program, option, is_place = entry
    is_letter = len(option) == 2 and option.startswith("-")
    if not option.startswith("-"):
        option = data.draw(st.sampled_from(["-", "--"])) + option
    value = "/elsewhere/x" if is_place else data.draw(st.sampled_from(["./x", "/elsewhere/x"]))
    if program in _ABBREVIATE and len(option) > 9:
        option = option[: len(option) - data.draw(st.integers(0, 3))]
    quotes = data.draw(st.sampled_from(["", "''"]))
    option = option[:3] + quotes + option[3:]
    glue = data.draw(st.sampled_from([" ", "=", ""] if is_letter else [" ", "="]))
    before = data.draw(st.sampled_from(["", "x ", "-- ", "x -- "]))
    behind = data.draw(st.sampled_from(["", " y", " -- y"]))
    runner = data.draw(
        st.sampled_from(["", "timeout 5 ", "sudo nice -n 5 ", "/usr/bin/", "NO_COLOR=1 env ", "command "])
    )
    (command,) = parse(f"{runner}{program} {before}{option}{glue}{value}{behind}")
    found = uncovered(command.words, 1, lambda path: not path.startswith("/"), ["/"])
    assert found is not None, command.raw


def test_a_line_with_thousands_of_paths_is_judged_soon(desk: Desk) -> None:
    line = "pytest " + " ".join(f"a{number}" for number in range(3000))
    started = time.process_time()
    assert bash(desk.engine(allowed="Bash(pytest *)"), line).behavior is ASK
    assert time.process_time() - started < 10
