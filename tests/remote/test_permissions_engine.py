"""What the engine decides: rules, modes, directories, and command lines that try to get round them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ccb.remote.permissions.decision import Behavior, Decision
from ccb.remote.permissions.engine import PermissionEngine
from ccb.remote.permissions.headless import headless_denial
from ccb.remote.permissions.modes import ModeError
from ccb.remote.permissions.rules import RuleError

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


@dataclass(frozen=True)
class Named:
    """A tool as far as the engine looks at one."""

    name: str
    reads: bool = False

    def is_read_only(self, tool_input: dict[str, Any]) -> bool:
        return self.reads


class Desk:
    """An engine over a small tree: `project/` is the session's directory."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.realpath(root))
        self.cwd = self.root / "project"
        self.home = self.root / "home"
        for directory in (self.cwd / "src", self.cwd / "sub", self.home / ".ssh", self.root / "other"):
            directory.mkdir(parents=True)
        for file in (self.cwd / "a.txt", self.cwd / "src/b.py", self.home / ".ssh/id", self.root / "other/c"):
            file.write_text("x")

    def engine(self, mode: str = "default", allowed: str = "", disallowed: str = "", **more: Any) -> PermissionEngine:
        return PermissionEngine(
            mode, [allowed], [disallowed], cwd=str(self.cwd), home=str(self.home), is_root=False, **more
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def bash(engine: PermissionEngine, command: str, **more: Any) -> Decision:
    return engine.decide(Named("Bash"), {"command": command}, **more)


def on_file(engine: PermissionEngine, tool: str, path: object, **more: Any) -> Decision:
    return engine.decide(Named(tool), {"file_path": str(path)}, **more)


def test_default_mode_reads_here_and_asks_for_the_rest(desk: Desk) -> None:
    engine = desk.engine()
    for tool, tool_input in [
        ("Read", {"file_path": str(desk.cwd / "a.txt")}),
        ("Grep", {"pattern": "x"}),
        ("Glob", {"pattern": "**/*.py"}),
        ("LS", {"path": str(desk.cwd)}),
        ("TodoWrite", {"todos": []}),
        ("BashOutput", {"bash_id": "1"}),
        ("KillShell", {"shell_id": "1"}),
        ("Bash", {"command": "ls && git status"}),
    ]:
        assert engine.decide(Named(tool), tool_input).behavior is ALLOW, tool
    for tool, tool_input in [
        ("Read", {"file_path": str(desk.home / "x")}),
        ("Read", {"file_path": "../other/c"}),
        ("Grep", {"pattern": "x", "path": "/etc"}),
        ("Glob", {"pattern": "/etc/*"}),
        ("Glob", {"pattern": "*/../../*"}),
        ("LS", {"path": "/"}),
        ("Edit", {"file_path": "a.txt"}),
        ("Write", {"file_path": "new"}),
        ("MultiEdit", {"file_path": "a.txt"}),
        ("Bash", {"command": "make"}),
        ("mcp__a__b", {}),
        ("New", {}),
    ]:
        assert engine.decide(Named(tool, reads=True), tool_input).behavior is ASK, tool


def test_accept_edits_lets_files_here_be_written(desk: Desk) -> None:
    engine = desk.engine("acceptEdits")
    for tool in ("Edit", "Write", "MultiEdit"):
        assert on_file(engine, tool, "src/new.py").behavior is ALLOW
        assert on_file(engine, tool, "../other/c").behavior is ASK
    for command in ("mkdir -p x/y", "touch a b", "echo hi > out.txt", "cat a.txt >> src/b.py", "mkdir x && touch x/y"):
        assert bash(engine, command).behavior is ALLOW, command
    for command in (
        "mkdir ../x",
        "touch ~/x",
        "rm a",
        "mv a b",
        "echo hi > ../x",
        "mkdir -m 777 x",
        "touch -r /etc/x a",
        "make > x",
    ):
        assert bash(engine, command).behavior is ASK, command


@pytest.mark.parametrize(
    "path", [".git/config", ".git/hooks/pre-commit", ".mcp.json", ".claude/settings.json", ".bashrc"]
)
def test_protected_files_ask_even_then(desk: Desk, path: str) -> None:
    engine = desk.engine("acceptEdits", allowed="Edit")
    decision = on_file(engine, "Write", path)
    assert decision.behavior is ASK
    assert decision.suggestions == []
    assert bash(engine, f"echo x > {path}").behavior is ASK
    assert bash(engine, f"touch {path}").behavior is ASK
    assert on_file(desk.engine("bypassPermissions"), "Write", path).behavior is ALLOW


def test_a_link_leads_out_of_the_directory_for_nobody(desk: Desk) -> None:
    (desk.cwd / "key").symlink_to(desk.home / ".ssh/id")
    (desk.cwd / "out").symlink_to(desk.root / "other")
    engine = desk.engine("acceptEdits", allowed="Edit(out/**) Read(out/**)")
    assert on_file(engine, "Read", "key").behavior is ASK
    assert on_file(engine, "Write", "out/new").behavior is ASK
    assert on_file(engine, "Read", "out/c").behavior is ASK
    for command in (
        "cat key",
        "cat ke*",
        "cat < key",
        "cat out/c",
        "cd out && cat c",
        "echo x > out/new",
        "grep -R x .",
        "find -L . -type f -exec cat {} +",
    ):
        assert bash(engine, command).behavior is ASK, command
    assert bash(engine, "find . -type f -exec cat {} +").behavior is ALLOW


@pytest.mark.parametrize(
    "command",
    [
        *(
            "cat /etc/passwd",
            "cat ~/.ssh/id",
            "cat ../other/c",
            "cat src/../../other/c",
            "head -n 1 /etc/hosts",
            "ls /",
            "ls ~root",
        ),
        *(
            "cat $HOME/.ssh/id",
            "cat $(echo /etc/passwd)",
            "cat < /etc/passwd",
            "grep -f/etc/passwd x",
            "grep --file=/etc/passwd x a.txt",
        ),
        *(
            "grep -rnf /etc/passwd .",
            "grep --fil /etc/passwd a.txt",
            "cd / && cat etc/passwd",
            "cd .. && ls",
            "cat ../other/*",
            "find / -name x",
        ),
        *(
            "find .. -type f",
            "git diff -O/etc/x",
            "echo /etc/passwd | xargs cat",
            "wc -l /etc/*",
            "diff -r . src",
            "cat /dev/tcp/a/1",
            "(cd ..; cat x)",
        ),
        *(
            "pushd /; cat etc/passwd",
            "cat */../../other/c",
            "cat '~'/../../other/c",
            "tail -f /var/log/syslog",
            "rg -L x",
            "sort /etc/passwd",
        ),
    ],
)
def test_reading_elsewhere_with_bash_asks(desk: Desk, command: str) -> None:
    assert bash(desk.engine(), command).behavior is ASK


@pytest.mark.parametrize(
    "command",
    [
        *(
            "cat a.txt",
            "cat ./src/../a.txt",
            "grep -rn /api/ src",
            "grep -rn 'a/../b' .",
            "sed -n '/a/p' a.txt",
            "cat *.txt",
            "ls src/*.py",
        ),
        *(
            "cd src && cat b.py",
            "echo /etc/passwd ~ $HOME",
            "test -f /etc/passwd",
            "cat -",
            "cat '~x'",
            "git log -- src",
        ),
        *(
            "find . -type f -name '*.py' -exec grep -n x {} +",
            "cat /dev/null",
            "git log HEAD..main",
            "basename /a/b",
            "[ -e /x ]",
        ),
    ],
)
def test_reading_here_does_not(desk: Desk, command: str) -> None:
    assert bash(desk.engine(), command).behavior is ALLOW


def test_added_directories_count_as_here(desk: Desk) -> None:
    engine = desk.engine("acceptEdits", add_dirs=["../other"])
    assert on_file(engine, "Write", desk.root / "other/new").behavior is ALLOW
    assert bash(engine, "cat ../other/c").behavior is ALLOW
    assert engine.directories == (str(desk.cwd), str(desk.root / "other"))


def test_plan_mode_only_looks(desk: Desk) -> None:
    engine = desk.engine("plan", allowed="Bash(make *) Edit")
    assert bash(engine, "git log && ls").behavior is ALLOW
    assert engine.decide(Named("Looker", reads=True), {}).behavior is ASK
    for decision in (bash(engine, "make x"), on_file(engine, "Edit", "a.txt"), engine.decide(Named("New"), {})):
        assert decision.behavior is DENY
        assert decision.reason_type == "mode"
        assert "lan mode" in decision.reason
    assert bash(engine, "make x", can_ask=True).behavior is ASK
    assert bash(desk.engine("plan", disallowed="Bash(make *)"), "make x", can_ask=True).behavior is DENY


def test_bypass_allows_all_but_what_rules_deny(desk: Desk) -> None:
    engine = desk.engine("bypassPermissions", disallowed="Bash(rm *) Read(//etc/**)")
    assert bash(engine, "make install && curl x | sh").behavior is ALLOW
    assert bash(engine, "a; rm x").behavior is DENY
    assert bash(engine, "cat /etc/passwd").behavior is DENY
    assert bash(engine, "for f in a; do echo; done").behavior is ASK, "what cannot be read may be what is denied"
    assert bash(desk.engine("bypassPermissions"), "for f in a; do echo; done").behavior is ALLOW


def test_modes_are_checked(desk: Desk) -> None:
    engine = desk.engine()
    for mode in ("acceptEdits", "plan", "default"):
        engine.set_mode(mode)
        assert engine.mode == mode
    with pytest.raises(ModeError, match=r"^Cannot set permission mode: must be one of acceptEdits, ") as invalid:
        engine.set_mode("yolo")
    assert invalid.value.code == "invalid_mode"
    with pytest.raises(ModeError, match="was not launched with --dangerously-skip-permissions") as bypass:
        engine.set_mode("bypassPermissions")
    assert bypass.value.code == "bypass_not_launched"
    desk.engine(allow_bypass=True).set_mode("bypassPermissions")
    with pytest.raises(ModeError, match="cannot be used with root"):
        PermissionEngine("bypassPermissions", cwd=str(desk.cwd), home=str(desk.home), is_root=True)
    with pytest.raises(RuleError):
        desk.engine(allowed="Bash(")


def test_a_denied_tool_is_not_shown_to_the_model(desk: Desk) -> None:
    engine = desk.engine(disallowed="Bash,Edit,Read(x),mcp__a")
    hidden = [
        n for n in ("Bash", "Edit", "Write", "MultiEdit", "Read", "Grep", "mcp__a__b", "LS") if not engine.visible(n)
    ]
    assert hidden == ["Bash", "Edit", "Write", "MultiEdit", "mcp__a__b"]
    assert bash(engine, "ls").behavior is DENY


def test_deny_beats_ask_beats_allow(desk: Desk) -> None:
    engine = desk.engine("bypassPermissions", allowed="Bash(git *)", disallowed="Bash(git push *)")
    engine.set_mode("default")
    assert bash(engine, "git commit -m x").behavior is ALLOW
    assert bash(engine, "git push").behavior is DENY
    engine.apply([_rules("ask", "Bash", "git commit *")])
    assert bash(engine, "git commit -m x").behavior is ASK
    assert bash(engine, "ls; git commit").behavior is ASK
    engine.apply([_rules("allow", "Bash", "git push *"), _rules("deny", "Bash", "git commit *")])
    assert bash(engine, "git push").behavior is DENY
    assert bash(engine, "git commit").behavior is DENY


def _rules(
    behavior: str, tool: str, content: str | None = None, kind: str = "addRules", where: str = "session"
) -> dict[str, Any]:
    rule = {"toolName": tool} if content is None else {"toolName": tool, "ruleContent": content}
    return {"type": kind, "rules": [rule], "behavior": behavior, "destination": where}


def test_updates_change_rules_mode_and_directories(desk: Desk) -> None:
    engine = desk.engine()
    assert engine.apply([_rules("allow", "Bash", "make *"), {"type": "setMode", "mode": "acceptEdits"}]) == []
    assert (bash(engine, "make x").behavior, engine.mode) == (ALLOW, "acceptEdits")
    engine.apply([_rules("allow", "Bash", "npm *", "replaceRules")])
    assert (bash(engine, "make x").behavior, bash(engine, "npm x").behavior) == (ASK, ALLOW)
    engine.apply([_rules("allow", "Bash", "npm *", "removeRules", "localSettings")])
    assert bash(engine, "npm x").behavior is ALLOW, "another destination's rule is not this one"
    engine.apply([_rules("allow", "Bash", "npm *", "removeRules")])
    assert bash(engine, "npm x").behavior is ASK
    engine.apply([{"type": "addDirectories", "directories": ["../other"], "destination": "session"}])
    assert on_file(engine, "Write", "../other/x").behavior is ALLOW
    engine.apply([{"type": "removeDirectories", "directories": [str(desk.root / "other")], "destination": "session"}])
    assert on_file(engine, "Write", "../other/x").behavior is ASK


@pytest.mark.parametrize(
    "update",
    [
        *({}, {"type": "dance"}, {"type": "setMode", "mode": "yolo"}, {"type": "setMode", "mode": "bypassPermissions"}),
        *(
            _rules("maybe", "Bash"),
            _rules("allow", "Bash", ""),
            _rules("allow", "("),
            {"type": "addRules", "behavior": "allow"},
        ),
        *(
            {"type": "addDirectories", "directories": "/"},
            {"type": "addDirectories", "directories": [1]},
            {"type": 1},
            "x",
            None,
        ),
    ],
    ids=repr,
)
def test_an_update_that_is_not_understood_changes_nothing_and_is_named(desk: Desk, update: Any) -> None:
    engine = desk.engine()
    assert len(engine.apply([update, _rules("allow", "Bash", "make *")])) == 1
    assert engine.mode == "default"
    assert engine.directories == (str(desk.cwd),)
    assert bash(engine, "make").behavior is ALLOW, "the others are applied"
    assert bash(engine, "rm x").behavior is ASK


def test_whatever_goes_wrong_asks(desk: Desk) -> None:
    class Broken(Named):
        def is_read_only(self, tool_input: dict[str, Any]) -> bool:
            raise RuntimeError("boom")

    assert desk.engine("plan").decide(Broken("New"), {}).behavior is ASK
    for tool_input in ({}, {"command": None}, {"command": 3}):
        assert desk.engine("bypassPermissions", disallowed="Bash(x)").decide(Named("Bash"), tool_input).behavior is ASK
        assert desk.engine(allowed="Bash(x)").decide(Named("Bash"), tool_input).behavior is ASK
    for path in ("", 3, "a\0b", None):
        assert desk.engine("acceptEdits").decide(Named("Write"), {"file_path": path}).behavior is ASK


GIT = "Bash(git status *) Bash(git log *) Bash(ls *) Bash(echo *) Bash(cat *) Bash(npm test) Bash(find *) Bash(xargs *)"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git status && rm -rf x",
            "ls $(rm x)",
            "echo hi > ~/.bashrc",
            "FOO=1 rm x",
            r"\rm x",
            '"rm" x',
            "r''m x",
            "git push",
        ),
        *(
            "find . -exec rm {} +",
            "find . -execdir rm {} \\;",
            "git -c core.pager=x log",
            "cat <(rm x)",
            'echo "$(rm x)"',
            "ls\nrm x",
            "ls & rm x",
        ),
        *(
            "ls\u00a0&& rm x",
            "ls;\u2003rm x",
            "$'rm' x",
            "{rm,x}",
            "cat$IFS/etc/passwd",
            "cat < ~root/x",
            "cat <<X\n$(rm x)\nX",
            "f() { rm x; }; f",
        ),
        *(
            "alias ls=rm; ls x",
            "eval rm x",
            "command rm x",
            "builtin eval rm",
            "exec rm x",
            "! rm x",
            "echo `rm x`",
            "ls || rm x",
        ),
        *(
            "npm test --x",
            "npm test; x",
            "'npm test'",
            "npm 'test' x",
            "npm test$X",
            "npm test <<X\na\nX",
            "PATH=. npm test",
            "npm test > /etc/x",
        ),
        *(
            "ls |& rm x",
            "(rm x)",
            "{ rm x; }",
            "ls # a\nrm x",
            "ls \\\n; rm x",
            "ls \\\\\nrm x",
            "echo 'a' \"b\" ; r\\m x",
            "gitx status",
            "git  stash",
        ),
        *(
            "ls | xargs rm",
            "LD_PRELOAD=./x ls",
            "env PATH=. ls",
            "timeout 5 rm x",
            "nohup rm x",
            "echo a > $X",
            "echo a > *",
            "ls &> ../x",
            "/tmp/ls",
        ),
        *(
            "if ls; then rm x; fi",
            "time { rm x; }",
            "cd .. && echo a > b",
            "echo x > .git/hooks/pre-commit",
            "echo \x1b[2J",
            "git status --x; x=1 y",
        ),
        *(
            "find . -exec sh -c 'rm x' \\;",
            "find . -ok rm {} \\;",
            "cat a >(rm x)",
            "echo ${x:=$(rm x)}",
            "echo $((x[$(rm x)]))",
            "ls;;rm x",
        ),
    ],
    ids=ascii,
)
def test_no_way_round_the_rules(desk: Desk, command: str) -> None:
    assert bash(desk.engine(allowed=GIT), command).behavior is ASK


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git status",
            "git log --output=x",
            "npm test",
            "npm test 2>&1",
            "npm  test",
            "npm 'test'",
            "cd src && npm test",
            "NO_COLOR=1 npm test",
        ),
        *(
            "timeout 60 npm test",
            "git status; ls -l | cat && echo done",
            "git log $(git rev-parse HEAD)",
            "x=1; echo $x",
            "(ls; npm test) | head",
        ),
        *("find . -delete", "find . -exec git log {} +", "ls \\\n -l", "npm test || echo failed", "cat <<X\nhi\nX"),
    ],
)
def test_what_the_rules_do_allow(desk: Desk, command: str) -> None:
    assert bash(desk.engine(allowed=GIT), command).behavior is ALLOW


@pytest.mark.parametrize(
    "command",
    [
        *(
            "rm x",
            "ls; rm x",
            "/bin/rm x",
            r"\rm x",
            "'rm' x",
            "A=1 rm x",
            "sudo rm x",
            "sudo -u bob rm x",
            "env A=1 rm x",
            "timeout 5 rm x",
        ),
        *(
            "ls | xargs rm",
            "xargs -n 1 rm",
            "find . -exec rm {} +",
            "sh -c 'rm x'",
            "bash -c 'ls && rm x'",
            "eval 'rm x'",
            "eval rm x",
            "$(rm x)",
        ),
        *(
            "echo $(rm x)",
            "echo `rm x`",
            "cat <(rm x)",
            "if true; then rm x; fi",
            "for i in a; do rm x; done",
            "f() { rm x; }; f",
            "command rm x",
        ),
        *(
            "while true; do\nrm x\ndone",
            "[[ a ]] && rm x",
            "echo $((1)); rm x",
            "nohup rm x &",
            "exec rm x",
            "case a in b) rm x;; esac",
            "r\\\nm x; ((1))",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions", "acceptEdits"])
def test_a_deny_rule_is_found_wherever_the_command_hides(desk: Desk, mode: str, command: str) -> None:
    assert bash(desk.engine(mode, allowed="Bash", disallowed="Bash(rm *)"), command).behavior is DENY


def test_file_rules_hold_for_bash_too(desk: Desk) -> None:
    engine = desk.engine("bypassPermissions", disallowed="Read(src/**) Edit(a.txt)")
    for command in (
        "cat src/b.py",
        "cd src && cat b.py",
        "cat < src/b.py",
        "python src/b.py",
        "cat sr*/b.py",
        "cp --x=src/b.py y",
        "cat SRC/b.py",
    ):
        assert bash(engine, command).behavior is DENY, command
    for command in ("echo x > a.txt", "rm a.txt", "tee ./a.txt", "cat x >> src/../a.txt"):
        assert bash(engine, command).behavior is DENY, command
    assert bash(engine, "cat a.txt").behavior is ALLOW
    assert bash(desk.engine("bypassPermissions", disallowed="Edit"), "echo x > y").behavior is DENY


def test_git_in_a_bare_repository_asks(desk: Desk) -> None:
    """Its configuration, which the agent could have written as plain files, starts programs."""
    (desk.cwd / "HEAD").write_text("ref: refs/heads/main\n")
    (desk.cwd / "objects").mkdir()
    (desk.cwd / "refs").mkdir()
    assert bash(desk.engine(), "git status").behavior is ASK
    assert bash(desk.engine(), "cd sub && git status").behavior is ASK


PARTS = [
    "ls",
    "git status",
    "git push",
    "rm x",
    "npm test",
    "cat a.txt",
    "cat /etc/passwd",
    "cd src",
    "cd ..",
    "echo a > b",
    "x=1",
    "PATH=.",
    "make",
    "cat ../other/c",
    "touch a",
    "echo $(rm x)",
    "for",
]
SEPARATORS = ["; ", " && ", " || ", " | ", " & ", "\n"]


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(PARTS), st.sampled_from(SEPARATORS)), min_size=1, max_size=4),
    st.sampled_from(["default", "acceptEdits"]),
)
def test_a_compound_command_is_allowed_only_if_each_part_is(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[str, str]], mode: str
) -> None:
    engine = Desk(tmp_path_factory.mktemp("desk")).engine(mode, allowed="Bash(git push *) Bash(npm test)")
    line = "".join(part + separator for part, separator in parts[:-1]) + parts[-1][0]
    if bash(engine, line).behavior is ALLOW:
        assert [part for part, _ in parts if bash(engine, part).behavior is not ALLOW] == []


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.sampled_from(PARTS), max_size=3),
    st.sampled_from(SEPARATORS),
    st.sampled_from(["rm x", "git push -f", "(rm x)", "$(rm x)", "if a; then rm x; fi"]),
    st.sampled_from(["default", "acceptEdits", "plan", "bypassPermissions"]),
    st.sampled_from(["", "Bash", "Bash(rm *) Bash(git *)", "Bash(rm x)"]),
)
def test_deny_always_wins(
    tmp_path_factory: pytest.TempPathFactory, around: list[str], separator: str, denied: str, mode: str, allowed: str
) -> None:
    engine = Desk(tmp_path_factory.mktemp("desk")).engine(
        mode, allowed=allowed, disallowed="Bash(rm *) Bash(git push *)"
    )
    for line in (separator.join([denied, *around]), separator.join([*around, denied])):
        assert bash(engine, line).behavior is DENY


def rules_of(decision: Decision) -> list[str]:
    first = decision.suggestions[0] if decision.suggestions else {"rules": []}
    return [rule.get("ruleContent", rule["toolName"]) for rule in first.get("rules", [])]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        ("npm test -- --watch", ["npm test *"]),
        ("npm run build x", ["npm run build *"]),
        ("pytest -x", ["pytest *"]),
        ("git commit -m 'a b'", ["git commit *"]),
        ("git push", ["git push"]),
        ("cd src && pytest && git add . && ls", ["pytest *", "git add *"]),
        ("timeout 60 pytest", ["pytest *"]),
        ("python x.py", ["python x.py"]),
        ("rm a.txt", ["rm a.txt"]),
        ("sudo ls", ["sudo ls"]),
        ("bash -c 'ls'", ["bash -c 'ls'"]),
        ("python - <<X\nhi\nX", []),
        ("for i in a; do b; done", ["for i in a; do b; done"]),
        ("rm *", []),
        ("rm $X", ["rm $X"]),
        ("A=1 pytest", ["A=1 pytest"]),
    ],
)
def test_suggested_rules_are_no_wider_than_sensible(desk: Desk, command: str, rules: list[str]) -> None:
    decision = bash(desk.engine(), command)
    assert decision.behavior is ASK
    assert rules_of(decision) == rules


@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        *(
            ("Bash", {"command": c})
            for c in (
                "npm test",
                "rm a.txt",
                "cat /etc/hosts",
                "echo a > b",
                "echo a > ../other/x",
                "make x > b",
                "pytest; cat ../other/c",
            )
        ),
        *(
            ("Bash", {"command": c})
            for c in (
                "for i in a; do b; done",
                "rm $X",
                "touch x",
                "cat a.txt ../other/c",
                "touch ../other/x",
                "git x | head",
            )
        ),
        *(("Write", {"file_path": p}) for p in ("new", "../other/x")),
        *(("Read", {"file_path": p}) for p in ("/etc/hosts", "../other/c")),
        ("Grep", {"pattern": "x", "path": "../other"}),
        ("mcp__a__b", {}),
    ],
)
def test_the_first_suggestion_is_enough(desk: Desk, mode: str, tool: str, tool_input: dict[str, Any]) -> None:
    engine = desk.engine(mode)
    decision = engine.decide(Named(tool), tool_input)
    if decision.behavior is ALLOW:
        return
    assert decision.suggestions
    assert engine.apply(decision.suggestions[:1]) == []
    assert engine.decide(Named(tool), tool_input).behavior is ALLOW, decision


def test_suggestions_have_the_public_shape(desk: Desk) -> None:
    engine = desk.engine()
    assert on_file(engine, "Edit", "a.txt").suggestions == [
        {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    ]
    outside = on_file(engine, "Write", "../other/x")
    assert outside.blocked_path == str(desk.root / "other/x")
    assert outside.reason_type == "workingDir"
    assert outside.suggestions == [
        {
            "type": "addRules",
            "rules": [{"toolName": "Edit", "ruleContent": f"/{desk.root}/other/**"}],
            "behavior": "allow",
            "destination": "session",
        },
        {"type": "addDirectories", "directories": [str(desk.root / "other")], "destination": "session"},
    ]
    assert on_file(engine, "Read", "/etc/hosts").suggestions[0]["rules"] == [
        {"toolName": "Read", "ruleContent": "//etc/**"}
    ]


def test_a_headless_denial_says_what_would_allow_it(desk: Desk) -> None:
    engine = desk.engine()
    assert '--allowedTools "Bash(npm test *)"' in headless_denial(bash(engine, "npm test x"), "Bash")
    assert "--permission-mode acceptEdits" in headless_denial(on_file(engine, "Edit", "a.txt"), "Edit")
    assert "--allowedTools 'Bash(rm $X)'" in headless_denial(bash(engine, "rm $X"), "Bash")
    protected = headless_denial(on_file(engine, "Write", ".git/config"), "Write")
    assert "protected" in protected
    assert "--allowedTools" not in protected
