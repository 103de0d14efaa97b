"""What the engine decides: rules, modes, directories, updates, suggestions, and for sub-agents."""

from __future__ import annotations

import os
from typing import Any

import pytest
from tests.remote.permissions.corpus.rows import cases, pairs
from tests.remote.tools_kit import plant
from tests.support.worker.cages import ONLY_READING, sandbox
from tests.support.worker.permission_desk import Desk, Named, bash, differing, on_file

from ccb.remote.permissions.engine import ChildPermissions, LaunchRules, PermissionEngine
from ccb.remote.permissions.matchers import PathMatcher
from ccb.remote.permissions.modes import ModeError
from ccb.remote.permissions.rules import Behavior, Decision, headless_denial
from ccb.remote.settings.worker_settings import Layer, WorkerSettings
from ccb.remote.tools.toolset import default_tools

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


def test_default_mode_reads_here_and_asks_for_the_rest(desk: Desk) -> None:
    engine = desk.engine()
    quiet: list[tuple[str, dict[str, Any]]] = [
        *(("Read", {"file_path": str(desk.cwd / "a.txt")}), ("Grep", {"pattern": "x"})),
        ("LS", {"path": str(desk.cwd)}),
        *(("Glob", {"pattern": "**/*.py"}), ("TodoWrite", {"todos": []}), ("BashOutput", {"bash_id": "1"})),
        *(("KillShell", {"shell_id": "1"}), ("Bash", {"command": "ls && git status"})),
    ]
    asked: list[tuple[str, dict[str, Any]]] = [
        *(("Read", {"file_path": str(desk.home / "x")}), ("Read", {"file_path": "../other/c"}), ("New", {})),
        *(("Grep", {"pattern": "x", "path": "/etc"}), ("Glob", {"pattern": "/etc/*"}), ("LS", {"path": "/"})),
        *(("Glob", {"pattern": "*/../../*"}), ("Edit", {"file_path": "a.txt"}), ("Write", {"file_path": "new"})),
        *(("MultiEdit", {"file_path": "a.txt"}), ("Bash", {"command": "make"}), ("mcp__a__b", {})),
    ]
    for rows, expected in ((quiet, ALLOW), (asked, ASK)):
        for tool, tool_input in rows:
            assert engine.decide(Named(tool, reads=expected is ASK), tool_input).behavior is expected, tool


def test_a_rule_of_settings_that_cannot_be_read_stands_for_all_that_it_may_have_been_about(desk: Desk) -> None:
    def engine(kind: str, rule: object, mode: str = "default") -> PermissionEngine:
        found = desk.engine(mode, allowed="Bash,Read,Edit,WebFetch")
        found.use_settings(WorkerSettings((Layer("project", "/p.json", {"permissions": {kind: [rule]}}),)))
        return found

    here = str(desk.cwd / "a.txt")
    for rule, others in (("Bash(rm", [DENY, ALLOW, ALLOW]), ("Read(x", [DENY, DENY, ALLOW]), (7, [DENY, DENY, DENY])):
        denying = engine("deny", rule, "bypassPermissions")
        found = bash(denying, "ls"), on_file(denying, "Read", here), on_file(denying, "Write", here)
        assert [each.behavior for each in found] == others
        assert all("/p.json" in each.reason for each in found if each.behavior is DENY)
        assert denying.visible("Read") and denying.visible("Bash"), "the model is to see why"
    assert on_file(engine("ask", "Read(x"), "Read", here).behavior is ASK
    assert on_file(engine("deny", ""), "Read", here).behavior is ALLOW, "it says nothing"
    with pytest.raises(ValueError, match=r"/p\.json"):
        engine("allow", "Read(x")


def test_a_bug_in_the_check_of_a_hooks_condition_is_not_hidden(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("a bug")

    engine = desk.engine()
    assert engine.covers("Read(x)", "Read", {}), "in doubt the hook runs"
    monkeypatch.setattr(PathMatcher, "matching_rule", broken)
    with pytest.raises(KeyError):
        engine.covers("Read(x)", "Read", {"file_path": "x"})
    assert "a bug" in on_file(engine, "Read", "x").reason


def test_only_the_declared_keys_of_an_input_say_which_path_a_call_is_about(desk: Desk) -> None:
    """No tool without a glob pattern takes an absolute path from a key without a name, whatever its schema allows."""
    secret, here = str(desk.home / ".ssh/id"), str(desk.cwd / "a.txt")
    for mode in ("default", "acceptEdits"):
        engine = desk.engine(mode)
        for tool in ("Read", "Edit", "Write", "MultiEdit"):
            assert engine.decide(Named(tool), {"file_path": secret, "": here}).behavior is ASK, tool
        for tool in ("Grep", "LS"):
            assert engine.decide(Named(tool), {"path": "/etc", "": here}).behavior is ASK, tool
    denying = desk.engine(disallowed=f"Read(/{secret})")
    assert denying.decide(Named("Read"), {"file_path": secret, "": here}).behavior is DENY


EDITS: dict[str, Any] = {"mode": "acceptEdits"}
NO_RM: dict[str, Any] = {"mode": "bypassPermissions", "disallowed": "Bash(rm *) Read(//etc/**)"}
WRITING = ("mkdir -p x/y", "touch a b", "echo hi > out.txt", "cat a.txt >> src/b.py", "mkdir x && touch x/y")
CHANGING = (
    *("cp a.txt b.txt", "cp -r src copy", "mv a.txt src", "mv -f a.txt src/b.py", "rm a.txt", "rm -rf src"),
    *("rmdir sub", "ln -s a.txt l", "ln -s ../a.txt src/l", "ln a.txt l", "cd src && rm b.py"),
    *("sed -i s/x/y/ a.txt", "sed -Ei -e 's/x|z/y/g' -e 2d a.txt src/b.py"),
)


@pytest.mark.parametrize(
    ("settings", "expected", "calls"),
    [
        (EDITS, ALLOW, ["Edit src/new.py", "Write src/new.py", "MultiEdit src/new.py", *(f"$ {c}" for c in WRITING)]),
        (EDITS, ALLOW, [f"$ {command}" for command in CHANGING]),
        ({**EDITS, "sandbox": sandbox(offered=ONLY_READING)}, ASK, [f"$ {command}" for command in CHANGING]),
        ({**EDITS, "disallowed": "Edit(src/b.py)"}, ASK, ["$ rm -r src", "$ mv src x"]),
        ({}, ASK, [f"$ {command}" for command in CHANGING]),
        (EDITS, ASK, ["Edit ../other/c", "Write ../other/c", "MultiEdit ../other/c"]),
        (EDITS, ASK, [f"$ {command}" for command in cases("accept edits lets files here be written")]),
        ({**EDITS, "add_dirs": ["../other"]}, ALLOW, ["Write ../other/new", "$ cat ../other/c"]),
        (NO_RM, ALLOW, ["$ make install && curl x | sh"]),
        (NO_RM, DENY, ["$ a; rm x", "$ cat /etc/passwd"]),
        (NO_RM, ASK, ["$ for f in a; do echo; done"]),  # what cannot be read may be what is denied
        ({"mode": "bypassPermissions"}, ALLOW, ["$ for f in a; do echo; done"]),
    ],
)
def test_a_mode_decides_what_no_rule_does(
    desk: Desk, settings: dict[str, Any], expected: Behavior, calls: list[str]
) -> None:
    assert differing(desk.engine(**settings), expected, *calls) == []


def test_a_command_changes_without_a_question_only_what_can_be_brought_back(desk: Desk) -> None:
    engine = desk.engine(**EDITS)
    assert bash(engine, "rm -r src").changes == (f"{desk.cwd}/src", f"{desk.cwd}/src/b.py")
    (desk.cwd / "src/link").symlink_to("b.py")
    (desk.cwd / "sub/.git").mkdir()
    with (desk.cwd / "large").open("wb") as file:
        file.truncate(31 << 20)
    assert differing(engine, ASK, "$ rm -r src", "$ rm src/link", "$ rm -r sub", "$ rm large") == []
    many = desk.cwd / "many"
    many.mkdir()
    for number in range(101):
        (many / str(number)).touch()
    assert differing(engine, ASK, "$ rm -r many", "$ cp -r many sub") == []


def test_a_line_makes_no_links_and_files_that_its_other_commands_use_unseen(desk: Desk) -> None:
    (desk.cwd / "to-src").symlink_to("src")
    engine = desk.engine("acceptEdits", disallowed="Edit(out/b.py)")
    linked = ("ln -s src l && rm l/b.py", "ln -s src l; echo > l/b.py", "cp -P to-src l && rm l/b.py")
    made = ("mkdir t && cp a.txt t/b.py && mv t out", "cp a.txt src/settings.json && mv src sub/.claude")
    assert differing(engine, ASK, *(f"$ {line}" for line in (*linked, *made))) == []
    moved = ("mkdir b; cp a.txt b && mv b c", "cp -r src b && mv b/b.py c && mv b d", "cp -r src b && mv b c")
    assert differing(engine, ASK, *(f"$ {line}" for line in moved)) == []
    usual = (
        "cp a.txt b && mv b c && cp c d",
        "ln -s src l",
        "sed s/x/y/ a.txt > t && mv t a.txt",
        "cp a.txt to-src",
        "cp -r src copy && rm -r src",
    )
    assert differing(engine, ALLOW, *(f"$ {line}" for line in usual)) == []


def test_a_command_replaces_no_link_without_a_question(desk: Desk) -> None:
    (desk.cwd / "sub/CLAUDE.md").symlink_to("x.md")
    (desk.cwd / "sub/x.md").write_text("x")
    (desk.cwd / "deep").symlink_to("src/deep")
    (desk.cwd / "src/deep").mkdir()
    (desk.cwd / "src/l").symlink_to("b.py")
    lines = ("mv a.txt sub/CLAUDE.md", "ln -sf ../a.txt sub/CLAUDE.md", "ln -sfn src deep", "rm deep/../l")
    assert differing(desk.engine(**EDITS), ASK, *(f"$ {line}" for line in lines)) == []


def test_a_line_that_removes_later_than_it_was_judged_asks(desk: Desk) -> None:
    engine = desk.engine(**EDITS)
    assert differing(engine, ASK, "$ sleep 9; rm a.txt", "$ (nice sleep 9 && rm l/b.py) &") == []
    later = {"command": "rm a.txt", "run_in_background": True}
    assert engine.decide(Named("Bash"), later).behavior is ASK
    assert engine.decide(Named("Bash"), {**later, "run_in_background": False}).behavior is ALLOW


def test_programs_that_show_logs_ask_where_a_rule_is_about_the_logs(desk: Desk) -> None:
    for rule in ("Read(//var/log/**)", "Read(//var/log)"):
        assert differing(desk.engine(disallowed=rule), ASK, "$ journalctl -n 9", "$ last", "$ nice last -5") == []
    assert differing(desk.engine(disallowed="Read(//etc/**)"), ALLOW, "$ journalctl -n 9", "$ last") == []


def test_a_file_that_cannot_be_read_is_not_removed_without_a_question(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: not str(path).endswith("a.txt"))  # root reads everything
    assert differing(desk.engine(**EDITS), ASK, "$ rm a.txt") == []


@pytest.mark.parametrize("path", [".git/config", ".git/hooks/update", ".mcp.json", ".claude/settings.json", ".bashrc"])
def test_protected_files_ask_even_then(desk: Desk, path: str) -> None:
    engine = desk.engine("acceptEdits", allowed="Edit")
    assert on_file(engine, "Write", path).suggestions == []
    assert differing(engine, ASK, f"Write {path}", f"$ echo x > {path}", f"$ touch {path}") == []
    assert on_file(desk.engine("bypassPermissions"), "Write", path).behavior is ALLOW


def test_a_link_leads_out_of_the_directory_for_nobody(desk: Desk) -> None:
    plant(desk.cwd, f"key -> {desk.home}/.ssh/id", f"out -> {desk.root}/other")
    engine = desk.engine("acceptEdits", allowed="Edit(out/**) Read(out/**)")
    commands = cases("a link leads out of the directory for nobody")
    calls = ("Read key", "Write out/new", "Read out/c", *(f"$ {command}" for command in commands))
    assert differing(engine, ASK, *calls) == []
    assert bash(engine, "find . -type f -exec cat {} +").behavior is ALLOW


def test_only_the_plan_itself_is_written_in_plan_mode_and_no_link_in_its_place(desk: Desk) -> None:
    plan = desk.root / "state" / "plan.md"
    plan.parent.mkdir()
    engine = desk.engine("plan", plan_file=str(plan))
    assert differing(engine, ALLOW, f"Write {plan}", f"Edit {plan}", f"Read {plan}") == []
    assert on_file(engine, "Write", plan.parent / "journal.jsonl").behavior is DENY
    assert on_file(desk.engine("plan", plan_file=str(plan), disallowed="Edit"), "Write", plan).behavior is DENY
    plan.symlink_to(desk.root / "elsewhere")
    assert on_file(engine, "Write", plan).behavior is DENY


def test_plan_mode_gives_way_to_the_mode_before_it(desk: Desk) -> None:
    engine = desk.engine("acceptEdits")
    engine.set_mode("plan")
    engine.set_mode("plan")
    assert engine.mode_before_plan == "acceptEdits"
    assert desk.engine("plan").mode_before_plan == "default"


def test_plan_mode_only_looks(desk: Desk) -> None:
    engine = desk.engine("plan", allowed="Bash(make *) Edit")
    assert bash(engine, "git log && ls").behavior is ALLOW
    assert engine.decide(Named("Looker", reads=True), {}).behavior is ASK
    for decision in (bash(engine, "make x"), on_file(engine, "Edit", "a.txt"), engine.decide(Named("New"), {})):
        assert (decision.behavior, decision.reason_type) == (DENY, "mode") and "lan mode" in decision.reason
    assert bash(engine, "make x", can_ask=True).behavior is ASK
    assert bash(desk.engine("plan", disallowed="Bash(make *)"), "make x", can_ask=True).behavior is DENY


def test_modes_are_checked(desk: Desk) -> None:
    engine = desk.engine()
    for mode in ("acceptEdits", "plan", "default"):
        engine.set_mode(mode)
        assert engine.mode == mode
    for mode, code, text in (
        ("yolo", "invalid_mode", r"^Cannot set permission mode: must be one of acceptEdits, "),
        ("bypassPermissions", "bypass_not_launched", "was not launched with --dangerously-skip-permissions"),
    ):
        with pytest.raises(ModeError, match=text) as refused:
            engine.set_mode(mode)
        assert refused.value.code == code
    desk.engine(allow_bypass=True).set_mode("bypassPermissions")
    launch = LaunchRules(sandbox(), "bypassPermissions")
    with pytest.raises(ModeError, match="cannot be used with root"):
        PermissionEngine(launch, cwd=str(desk.cwd), home=str(desk.home), is_root=True)
    with pytest.raises(ValueError, match="parenthesis"):
        desk.engine(allowed="Bash(")


def test_a_denied_tool_is_not_shown_to_the_model(desk: Desk) -> None:
    engine = desk.engine(disallowed="Bash,Edit,Read(x),mcp__a")
    tools = ("Bash", "Edit", "Write", "MultiEdit", "Read", "Grep", "mcp__a__b", "LS")
    hidden = [name for name in tools if not engine.visible(name)]
    assert hidden == ["Bash", "Edit", "Write", "MultiEdit", "mcp__a__b"]
    assert bash(engine, "ls").behavior is DENY


def test_deny_beats_ask_beats_allow(desk: Desk) -> None:
    engine = desk.engine("bypassPermissions", allowed="Bash(git *)", disallowed="Bash(git push *)")
    engine.set_mode("default")
    assert differing(engine, ALLOW, "$ git commit -m x") == differing(engine, DENY, "$ git push") == []
    engine.apply([_rules("ask", "Bash", "git commit *")])
    assert differing(engine, ASK, "$ git commit -m x", "$ ls; git commit") == []
    engine.apply([_rules("allow", "Bash", "git push *"), _rules("deny", "Bash", "git commit *")])
    assert differing(engine, DENY, "$ git push", "$ git commit") == []


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
    assert engine.directories == (str(desk.cwd), str(desk.root / "other"))
    assert on_file(engine, "Write", "../other/x").behavior is ALLOW
    engine.apply([{"type": "removeDirectories", "directories": [str(desk.root / "other")], "destination": "session"}])
    assert on_file(engine, "Write", "../other/x").behavior is ASK


@pytest.mark.parametrize(
    "update",
    [
        *({}, {"type": "dance"}, {"type": "setMode", "mode": "yolo"}, {"type": "setMode", "mode": "bypassPermissions"}),
        *(_rules("maybe", "Bash"), _rules("allow", "Bash", ""), _rules("allow", "("), {"type": 1}, "x", None),
        *({"type": "addRules", "behavior": "allow"}, {"type": "addDirectories", "directories": "/"}),
        {"type": "addDirectories", "directories": [1]},
    ],
    ids=repr,
)
def test_an_update_that_is_not_understood_changes_nothing_and_is_named(desk: Desk, update: Any) -> None:
    engine = desk.engine()
    assert len(engine.apply([update, _rules("allow", "Bash", "make *")])) == 1
    assert (engine.mode, engine.directories) == ("default", (str(desk.cwd),))
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


def rules_of(decision: Decision) -> list[str]:
    first = decision.suggestions[0] if decision.suggestions else {"rules": []}
    return [rule.get("ruleContent", rule["toolName"]) for rule in first.get("rules", [])]


@pytest.mark.parametrize(
    ("command", "rules"),
    [
        *(("npm test -- --watch", ["npm test *"]), ("npm run build x", ["npm run build *"])),
        *(("pytest -x", ["pytest *"]), ("git commit -m 'a b'", ["git commit *"]), ("git push", ["git push"])),
        *(("cd src && pytest && git add . && ls", ["pytest *", "git add *"]), ("timeout 60 pytest", ["pytest *"])),
        *(("python x.py", ["python x.py"]), ("rm a.txt", ["rm a.txt"]), ("sudo ls", ["sudo ls"])),
        *(("bash -c 'ls'", ["bash -c 'ls'"]), ("python - <<X\nhi\nX", [])),
        *(("for i in a; do b; done", ["for i in a; do b; done"]), ("rm *", []), ("rm $X", ["rm $X"])),
        *(("A=1 pytest", ["A=1 pytest"]), ("kubectl get pods -n x", ["kubectl get pods *"])),
        *((f"kubectl get {each}", [f"kubectl get {each}"]) for each in ("secret db", "pods,secrets", "-n x pods")),
    ],
)
def test_suggested_rules_are_no_wider_than_sensible(desk: Desk, command: str, rules: list[str]) -> None:
    decision = bash(desk.engine(), command)
    assert decision.behavior is ASK
    assert rules_of(decision) == rules


SUGGESTING = (
    *("npm test", "rm a.txt", "cat /etc/hosts", "echo a > b", "echo a > ../other/x", "make x > b", "touch x"),
    *("pytest; cat ../other/c", "for i in a; do b; done", "rm $X", "cat a.txt ../other/c", "touch ../other/x"),
    "git x | head",
)


@pytest.mark.parametrize("mode", ["default", "acceptEdits"])
@pytest.mark.parametrize(
    ("tool", "tool_input"),
    [
        *(("Bash", {"command": command}) for command in SUGGESTING),
        *(("Write", {"file_path": "new"}), ("Write", {"file_path": "../other/x"})),
        *(("Read", {"file_path": "/etc/hosts"}), ("Read", {"file_path": "../other/c"})),
        *(("Grep", {"pattern": "x", "path": "../other"}), ("mcp__a__b", {})),
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


@pytest.mark.parametrize("tool", ["Read", "Write", "cat ", "echo x > "])
@pytest.mark.parametrize(("path", "rule"), pairs("files and the rule that is suggested for them"))
def test_a_suggestion_is_about_no_home_and_no_place_with_secrets(desk: Desk, tool: str, path: str, rule: str) -> None:
    plant(desk.root, f"to-home -> {desk.home}", f"to-ssh -> {desk.home}/.ssh", "mixed/.env", "home/notes/")
    named = {"home": str(desk.home), "root": str(desk.root)}
    full = path.format(**named)

    def decide(engine: PermissionEngine) -> Decision:
        return on_file(engine, tool, full) if tool[0].isupper() else bash(engine, tool + full)

    for mode in ("default", "acceptEdits"):
        engine = desk.engine(mode)
        decision = decide(engine)
        assert decision.behavior is ASK
        given = [each for update in decision.suggestions for each in update.get("rules", [])]
        about_files = [each["ruleContent"] for each in given if each["toolName"] != "Bash"]
        assert about_files in ([], [rule.format(**named)])
        added = [each for update in decision.suggestions for each in update.get("directories", [])]
        assert [f"/{each}/**" for each in added if f"/{each}/**" != rule.format(**named)] == []
        if given or added:
            engine.apply(decision.suggestions[:1])
            again = decide(engine)
            assert again.behavior is ALLOW or "secrets" in again.reason


@pytest.mark.parametrize("directory", cases("such a directory itself is suggested by no rule"))
def test_such_a_directory_itself_is_suggested_by_no_rule(desk: Desk, directory: str) -> None:
    (desk.home / ".config").mkdir()
    for decision in (
        desk.engine().decide(Named("Grep"), {"pattern": "x", "path": directory}),
        bash(desk.engine(), f"ls {directory}"),
    ):
        assert decision.behavior is ASK
        assert not any("**" in str(update) for update in decision.suggestions)


def test_suggestions_have_the_public_shape(desk: Desk) -> None:
    engine = desk.engine()
    outside, rule = on_file(engine, "Write", "../other/x"), f"/{desk.root}/other/**"
    assert (outside.blocked_path, outside.reason_type) == (str(desk.root / "other/x"), "workingDir")
    added = {"type": "addDirectories", "directories": [str(desk.root / "other")], "destination": "session"}
    assert outside.suggestions == [_rules("allow", "Edit", rule), added]
    assert on_file(engine, "Read", "/etc/hosts").suggestions == [_rules("allow", "Read", "//etc/hosts")]
    assert bash(engine, "npm test > ../other/x").reason_type == "workingDir"
    inside = bash(engine, "npm test > a.txt")
    assert (inside.blocked_path.endswith("/a.txt"), inside.reason_type) == (True, "other")


def test_a_headless_denial_says_what_would_allow_it(desk: Desk) -> None:
    engine = desk.engine()
    assert '--allowedTools "Bash(npm test *)"' in headless_denial(bash(engine, "npm test x"), "Bash")
    assert "--permission-mode acceptEdits" in headless_denial(on_file(engine, "Edit", "a.txt"), "Edit")
    assert "--allowedTools 'Bash(rm $X)'" in headless_denial(bash(engine, "rm $X"), "Bash")
    protected = headless_denial(on_file(engine, "Write", ".git/config"), "Write")
    assert "protected" in protected and "--allowedTools" not in protected


TOOLS = {tool.name: tool for tool in default_tools()}
CALLS = {
    "Bash": {"command": "touch made"},
    "Write": {"file_path": "/srv/app/x", "content": "y"},
    "Read": {"file_path": "/srv/app/x"},
}


def session_engine(mode: str = "default", *, deny: tuple[str, ...] = ()) -> PermissionEngine:
    launch = LaunchRules(sandbox(), mode, disallowed=deny, allow_bypass=True)
    return PermissionEngine(launch, cwd="/srv/app", home="/home/ann", is_root=False)


def decided(permissions: PermissionEngine, name: str) -> Behavior:
    return permissions.decide(TOOLS[name], dict(CALLS[name]), can_ask=True).behavior


@pytest.mark.parametrize(
    ("parent", "own", "mode"),
    [
        *(("default", "", "default"), ("default", "acceptEdits", "default")),
        *(("default", "bypassPermissions", "default"), ("acceptEdits", "bypassPermissions", "acceptEdits")),
        *(("bypassPermissions", "acceptEdits", "acceptEdits"), ("bypassPermissions", "plan", "plan")),
        *(("plan", "acceptEdits", "plan"), ("acceptEdits", "no such mode", "no such mode")),
    ],
)
def test_the_mode_is_the_stricter_of_both(parent: str, own: str, mode: str) -> None:
    assert ChildPermissions(session_engine(parent), own).mode == mode


def test_a_mode_and_a_rule_that_change_meanwhile_hold_at_once() -> None:
    parent = session_engine("acceptEdits")
    child = ChildPermissions(parent)
    assert decided(child, "Write") is ALLOW
    parent.set_mode("default")
    assert decided(child, "Write") is ASK
    parent.apply([_rules("deny", "Write")])
    assert decided(child, "Write") is DENY and not child.visible("Write")


def test_what_is_granted_to_an_agent_holds_for_the_session_and_a_new_mode_is_told() -> None:
    parent, told = session_engine(), []
    child = ChildPermissions(parent, mode_changed=lambda: told.append(parent.mode))
    child.apply([_rules("allow", "Bash", "touch made")])
    assert decided(parent, "Bash") is ALLOW and not told
    child.apply([{"type": "setMode", "mode": "acceptEdits", "destination": "session"}])
    assert told == ["acceptEdits"] and child.mode == "acceptEdits"


def test_an_agent_that_only_reads_is_denied_what_may_change_something_even_without_permissions() -> None:
    child = ChildPermissions(session_engine("bypassPermissions"), read_only=True)
    assert [decided(child, name) for name in CALLS] == [DENY, DENY, ALLOW]
    assert [name for name in CALLS if child.visible(name)] == ["Bash", "Read"]
    denied = ChildPermissions(session_engine("bypassPermissions", deny=("Read",)), read_only=True)
    assert decided(denied, "Read") is DENY
