"""Command lines that try to get round the rules, and the properties that hold for every line."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.worker.permission_desk import Desk, bash

from ccb.remote.permissions.rules import Behavior

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY


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


@pytest.mark.parametrize("command", ["find . -exec " * 1_400 + "rm {} +", "xargs " * 3_000 + "rm"])
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_commands_that_start_each_other_too_deeply_are_asked_about(desk: Desk, mode: str, command: str) -> None:
    assert bash(desk.engine(mode, allowed="Bash", disallowed="Bash(rm *)"), command).behavior is ASK
    assert bash(desk.engine("default"), command).behavior is ASK


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


def test_paths_count_from_where_the_shell_is(desk: Desk) -> None:
    engine = desk.engine("acceptEdits", disallowed="Read(src/key)")
    inside, outside = str(desk.cwd / "src"), str(desk.root / "other")
    assert bash(engine, "cat ../a.txt", shell_cwd=inside).behavior is ALLOW
    assert bash(engine, "cat ../a.txt").behavior is ASK
    assert bash(engine, "cat key", shell_cwd=inside).behavior is DENY
    for command in ("ls", "cat c", "echo x > c", "rg x", "git log", "touch c"):
        assert bash(engine, command, shell_cwd=outside).behavior is ASK, command
    assert bash(engine, "pwd; echo x", shell_cwd=outside).behavior is ALLOW


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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
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


WITHOUT_A_QUESTION = r"""
git status
git status --short --branch
git diff
git diff --stat HEAD~1
git diff --cached
git log --oneline -n 10
git log -p -1 -- src/b.py
git show HEAD --stat
git branch -a
git blame -L 1,5 src/b.py
git rev-parse --abbrev-ref HEAD
git grep -n TODO
git ls-files | head -50
git stash list
git remote -v
ls -la
ls src && pwd
cat a.txt
cat src/b.py | head -40
tail -n 50 a.txt
sed -n '1,80p' src/b.py
nl -ba src/b.py | sed -n 10,30p
grep -rn "def main" src
grep -n x a.txt src/b.py | wc -l
rg -n "class .*Error" src
rg --files -g '*.py'
rg TODO | sort | uniq -c | sort -rn | head
find . -name '*.py' -not -path './.git/*'
wc -l src/*.py
tree -L 2 -a
du -sh .
stat a.txt
diff a.txt src/b.py
sort a.txt | uniq | cut -d: -f1
jq .name package.json
which python3
test -f a.txt && echo yes
cd src && ls
ps aux | head
"""
WITH_A_QUESTION = r"""
find src -type f | xargs wc -l
awk '{ print $1 }' a.txt
git add -A
git commit -m "Fix a thing"
git push
git checkout -b feature
pytest -q
python -m pytest tests -q
npm test
npm run build
make test
cargo build
cargo test
go test ./...
ruff check .
mypy src
docker ps
docker compose up -d
kubectl get pods
pip install -e .
curl -s http://localhost:8000/health
mkdir -p out
cp a.txt out/
mv a.txt b.txt
rm -r out
python script.py
"""


def test_of_the_65_everyday_commands_of_a_session_at_most_30_ask(desk: Desk) -> None:
    subprocess.run(["git", "init", "-q", str(desk.cwd)], check=True)
    engine, free, asking = desk.engine(), WITHOUT_A_QUESTION.split("\n")[1:-1], WITH_A_QUESTION.split("\n")[1:-1]
    assert (len([*free, *asking]), len(asking) <= 30) == (65, True)
    asked = [command for command in [*free, *asking] if bash(engine, command).behavior is ASK]
    assert [command for command in asked if command not in asking] == []
