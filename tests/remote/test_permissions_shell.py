"""What the reader of command lines understands, and what it leaves to a person."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccb.remote.permissions.readonly import is_read_only_command
from ccb.remote.permissions.shell import NotUnderstood, parse
from ccb.remote.permissions.wrappers import effective

SHELLS = [path for path in map(shutil.which, ("bash", "dash", "busybox")) if path]


def names(text: str) -> list[list[str]]:
    return [[word.text for word in command.words] for command in parse(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ls -l", [["ls", "-l"]]),
        ("a; b && c || d | e & f\ng |& h", [[c] for c in "abcdefgh"]),
        ("(a; b) && { c; } | d", [["a"], ["b"], ["c"], ["d"]]),
        ("! a", [["a"]]),
        (r"\rm x", [["rm", "x"]]),
        ('"rm" x', [["rm", "x"]]),
        ("r''m x", [["rm", "x"]]),
        ("r\\\nm x", [["rm", "x"]]),
        ("echo 'a;b' \"c && d\" e\\;f", [["echo", "a;b", "c && d", "e;f"]]),
        ("echo a#b # rm x\nc", [["echo", "a#b"], ["c"]]),
        ("A=1 B=2 c", [["c"]]),
        ('echo $(a $(b)) `c` "$(d)" <(e) >(f)', [["b"], ["a", ""], ["c"], ["d"], ["e"], ["f"], ["echo"] + [""] * 5]),
        ("cat <<X\nrm y\nX\nc", [["cat"], ["c"]]),
        ("cat <<-'X'\n$(rm y)\n\tX\nc", [["cat"], ["c"]]),
        ("a 2>&1 >/dev/null 2>/dev/null <<<x", [["a"]]),
        ("find . \\( -name a \\) -exec b {} \\;", [["find", ".", "(", "-name", "a", ")", "-exec", "b", "{}", ";"]]),
    ],
)
def test_every_simple_command_is_found(text: str, expected: list[list[str]]) -> None:
    assert names(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        *("echo 'a", 'echo "a', "echo a\\", "echo $(a", "(a", "a)", "{ a;", "}", "a;;b", "a; )", "echo `a"),
        *("$x y", "$(a) b", "`a` b", "a$x b", "~/a", "/bin/r* x", "r?", "{rm,x}", "echo {a,b}", "echo {1..3}"),
        *(
            "f() { a; }",
            "f () ( a )",
            "function f { a; }",
            "if a; then b; fi",
            "for i in a; do b; done",
            "while a; do b; done",
        ),
        *(
            "case a in b) c;; esac",
            "[[ a ]]",
            "a &>f b",
            "coproc a",
            "select x in a; do b; done",
            "until a; do b; done",
        ),
        *("((a=1))", "echo $((1))", "echo $[1]", "a=(b c)", "echo @(a|b)", "${x:=y} a", "echo ${x@P}", "echo ${!x}"),
        *("$'rm' x", "echo $'a'", 'echo $"a"', 'echo "$\\\n(rm x)"', "echo $\\\n(rm x)", "<\\\n(rm x)"),
        *("a\u00a0b", "a\u2028b", "a\u200bb", "a\rb", "a\x00b", "a\x1b[2Jb", "r\u043c x", "a\ud800"),
        *(
            "cat <<X\n$(rm y)\nX",
            "cat <<X\na\\\nX\nX",
            "cat <<X\nabc",
            "cat <<$X\nX",
            "cat << \\X\na\nX",
            "$(cat <<X\na\nX\n)",
        ),
        *("echo `a \\`b\\``", "a >", "a > | b", "a <", "-a", "=a", "a" * 30_000, "(" * 40 + "a" + ")" * 40),
    ],
    ids=ascii,
)
def test_what_is_not_certain_is_not_understood(text: str) -> None:
    with pytest.raises(NotUnderstood):
        parse(text)


@pytest.mark.parametrize(
    ("text", "writes", "reads"),
    [
        ("a > f", ["f"], []),
        ("a >> f 2> g", ["f", "g"], []),
        ("a >| f", ["f"], []),
        ("a &> f", ["f"], []),
        ("a &>> f", ["f"], []),
        ("a >& f", ["f"], []),
        ("a <> f", ["f"], []),
        ("a < f", [], ["f"]),
        ("> f", ["f"], []),
        ("a 2>&1 >&2 2>&- <&3", [], []),
        ("a 'x > y' \\> z", [], []),
        ("(a; b) > f", ["f"], []),
        ("{ a; } > f < g", ["f"], ["g"]),
        ("a>f", ["f"], []),
        ("a 3>f", ["f"], []),
    ],
)
def test_redirections_name_the_files_they_open(text: str, writes: list[str], reads: list[str]) -> None:
    redirects = [redirect for command in parse(text) for redirect in command.redirects]
    assert [r.target.text for r in redirects if r.writes] == writes
    assert [r.target.text for r in redirects if not r.writes] == reads


_ALPHABET = [
    "a",
    "b c",
    " ",
    "\n",
    "\\",
    "\\\n",
    "'",
    '"',
    "$",
    "(",
    ")",
    "`",
    ";",
    "&",
    "|",
    "<",
    ">",
    "#",
    "{",
    "}",
    "=",
    "~",
    "*",
    "!",
    "mark",
    "mark ",
    " mark",
    "time ",
    "&>",
    "$(",
    "<<E",
    "E",
    "\t",
    ",",
    "x=1",
]


@pytest.mark.parametrize("shell", SHELLS)
@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(_ALPHABET), max_size=12).map("".join))
def test_a_shell_runs_nothing_that_the_reader_did_not_find(shell: str, text: str) -> None:
    """`mark` leaves a trace when it runs; then the reader must have found it, refused the line, or not followed it."""
    try:
        started = [effective(command) for command in parse(text)]
    except NotUnderstood:
        return
    if None in started or "mark" not in text:
        return
    script = 'mark() { echo RAN >&9; }\nexec 9>&1 >/dev/null 2>&1 </dev/null\neval "$LINE"'
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(
            [shell, *(["sh"] if shell.endswith("busybox") else []), "-c", script],
            env={"LINE": text, "PATH": empty, "HOME": empty},
            capture_output=True,
            timeout=20,
            check=False,
            cwd=empty,
        )
    if b"RAN" in done.stdout:
        assert "mark" in {command.name for command in started if command}


READ_ONLY = [
    *(
        "ls",
        "ls -la src",
        "cat a b",
        "head -n 5 a | tail -2",
        "wc -l *.py",
        "pwd",
        "echo hi there",
        "true && false",
        "date +%s",
    ),
    *(
        "git status",
        "git status && git diff",
        "git --no-pager log --oneline -5",
        "git diff --stat HEAD~1",
        "git show HEAD:a",
    ),
    *(
        "git branch",
        "git branch -a",
        "git branch --list 'x*'",
        "git branch --show-current",
        "git tag -l",
        "git stash list",
    ),
    *(
        "git remote -v",
        "git rev-parse HEAD",
        "git ls-files",
        "git blame a",
        "git grep foo",
        "git config --get user.name",
    ),
    *("git log --format='%H %s' --grep=x", "git log --output-indicator-new=+", "git reflog", "git worktree list"),
    *(
        "find . -name '*.py' -type f",
        "find src -maxdepth 2 -mtime -7 -print0",
        "find . \\( -name a -o -name b \\) -prune",
    ),
    *(
        "find . -type f -exec grep -n foo {} +",
        "find . -name '*.c' | xargs grep foo",
        "rg foo src",
        "rg --pretty -n foo",
    ),
    *(
        "grep -rn 'a b' . | sort | uniq -c | sort -rn | head",
        "sort -k2,2 -t, a",
        "sed -n '1,20p' a",
        "sed -n '/a/,/b/p' a",
    ),
    *(
        "sed 's/a/b/g' a",
        "sed -n -e 5p -e '$p' a",
        "jq .a b.json",
        "diff -u a b",
        "diff -r a b",
        "cut -d: -f1 a",
        "tr a b",
    ),
    *(
        "ls 2>/dev/null",
        "ls > /dev/null 2>&1",
        "! ls",
        "(ls; pwd)",
        "time ls",
        "timeout 5 ls",
        "nice ls",
        "command ls",
        "env ls",
    ),
    *("LC_ALL=C sort a", "x=1; echo $x", "echo $(git rev-parse HEAD)", 'echo "$(ls)"', "cat <(ls)", "cat <<X\na\nX"),
    *(
        "test -f a && echo yes",
        "[ -d a ]",
        "printf '%s' a",
        "command -v git",
        "which git",
        "python3 --version",
        "go version",
    ),
    *(
        "cd src && ls",
        "set -euo pipefail; ls",
        "file a",
        "tree -L 2",
        "stat a",
        "du -sh .",
        "df -h",
        "ps aux",
        "sha256sum a",
    ),
]

NOT_READ_ONLY = [
    *(
        "rm x",
        "git status && rm -rf x",
        "git log --output=x",
        "git log --outp=x",
        "git log --o x",
        "ls $(rm x)",
        "echo hi > ~/.bashrc",
    ),
    *(
        "FOO=1 rm x",
        r"\rm x",
        '"rm" x',
        "r''m x",
        "find . -exec rm {} +",
        "find . -delete",
        "find . -fprint x",
        "find . -ok rm {} \\;",
    ),
    *(
        "find . -execdir sh -c x \\;",
        "find . -name a -fls b",
        "git -c core.pager=x log",
        "git -C x status",
        "git --exec-path=. log",
    ),
    *(
        "git --git-dir=x log",
        "git diff --ext-diff",
        "git diff --ext",
        "git grep -O foo",
        "git grep -nOless foo",
        "git grep --open foo",
    ),
    *(
        "git diff --no-index a b",
        "git branch x",
        "git branch -D x",
        "git branch -m x",
        "git branch --list --merged -D x",
        "git branch -l x",
    ),
    *(
        "git tag v1",
        "git tag -d v1",
        "git stash",
        "git stash pop",
        "git remote add a b",
        "git config a b",
        "git config --get-urlmatch a b",
    ),
    *(
        "git config --global -e",
        "git reflog expire",
        "git reflog delete x",
        "git worktree add x",
        "git symbolic-ref HEAD x",
        "git st",
        "git",
    ),
    *(
        "git push",
        "git commit -m x",
        "git checkout x",
        "git $x",
        "git log $x",
        "git help log",
        "git submodule foreach ls",
    ),
    *(
        "cat <(rm x)",
        'echo "$(rm x)"',
        "ls\nrm x",
        "ls & rm x",
        "ls | tee x",
        "ls >x",
        "ls >> x",
        "ls &> x",
        "> x",
        "ls > $x",
    ),
    *(
        "{rm,x}",
        "cat$IFS/etc/passwd",
        "eval ls",
        "command rm x",
        "builtin cd x",
        "exec ls",
        "time rm x",
        "! rm x",
        "nohup rm x",
    ),
    *(
        "timeout 5 rm x",
        "env rm x",
        "env A=1 rm x",
        "env -S 'rm x'",
        "xargs rm",
        "xargs",
        "xargs -a x rm",
        "ls | xargs -I{} sh -c {}",
    ),
    *(
        "PATH=. ls",
        "LD_PRELOAD=x ls",
        "GIT_EXTERNAL_DIFF=x git diff",
        "PAGER=x git log",
        "PATH=x; ls",
        "path=x",
        "export A=1",
        "env PATH=. ls",
    ),
    *(
        "sort -o x a",
        "sort -uo x a",
        "sort --output=x a",
        "sort --ou=x a",
        "sort --compress-program=x a",
        "sort *",
        "sort $x",
        "uniq a b",
    ),
    *(
        "sed -i s/a/b/ x",
        "sed -n 'w x' a",
        "sed 's/a/b/w x' a",
        "sed 's/a/b/e' a",
        "sed -n '1e rm x' a",
        "sed 1r/etc/passwd a",
        "sed -f x a",
    ),
    *(
        "sed 's/[/]/;s/w x/y/' a",
        "sed 's/a/b/;w x' a",
        "sed --in-place s/a/b/ x",
        "sed -s -i x",
        "sed 's|a|b|w x' a",
        "sed -ni p x",
    ),
    *(
        "awk 1 x",
        "rg --pre=x foo",
        "rg --pre x foo",
        "rg --hostname-bin=x foo",
        "rg -z foo",
        "rg -nz foo",
        "rg -* foo",
        "rg $x",
    ),
    *(
        "date -s x",
        "date 01010101",
        "date --set=x",
        "date -f x",
        "hostname x",
        "tree -o x",
        "file -C -m x",
        "diff -l a b",
        "diff --paginate a b",
    ),
    *(
        "test -v 'a[$(rm x)]'",
        "[ -v a ]",
        "[ $x = y ]",
        "test 'a[`rm x`]' -eq 1",
        "printf -v PATH x",
        "printf $x",
        "./ls",
        "/tmp/cat a",
    ),
    *(
        "cd a && git status",
        "git status; cd a",
        "cd a; time git log",
        "cd $x",
        "cd -",
        "pushd a",
        "alias ls=rm",
        "ls() { rm x; }; ls",
    ),
    *(
        "source x",
        ". x",
        "trap 'rm x' EXIT",
        "hash -p /tmp/x ls",
        "enable -f x y",
        "set -- x",
        "shopt -s x",
        "read x",
        "unset 'a[$(x)]'",
    ),
    *(
        "curl x",
        "wget x",
        "python -c x",
        "python3 x --version",
        "node -e x",
        "sudo ls",
        "bash -c ls",
        "sh x",
        "less a",
        "vi a",
        "make",
        "",
        "# x",
    ),
    *(
        "ls \u00a0x",
        "echo ${x:=y}",
        "echo $((a[$(x)]))",
        "if ls; then ls; fi",
        "xxd a b",
        "kill 1",
        "dd of=x",
        "mkdir x",
        "touch x",
        "tee x",
    ),
]


@pytest.mark.parametrize("command", READ_ONLY)
def test_commands_that_only_look(command: str) -> None:
    assert is_read_only_command(command)


@pytest.mark.parametrize("command", NOT_READ_ONLY, ids=ascii)
def test_commands_that_may_do_more(command: str) -> None:
    assert not is_read_only_command(command)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(READ_ONLY[:60] + NOT_READ_ONLY[:60]), min_size=1, max_size=4),
    st.sampled_from(["; ", " && ", "\n", " | ", " & "]),
)
def test_a_line_only_looks_when_every_part_does(parts: list[str], separator: str) -> None:
    if is_read_only_command(separator.join(parts)):
        assert all(is_read_only_command(part) for part in parts)


def test_sed_scripts_are_judged_as_sed_reads_them(tmp_path: Path) -> None:
    """No accepted script writes a file, with the sed that is here."""
    (tmp_path / "in").write_text("a\n/\n[\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    for script in (
        "s/[/]/x/",
        "s/a\\/w x/b/",
        "s/[a]/[/",
        "/[/]/p",
        "s/[^]]/w/",
        "s/a/b/gI;p",
        "1~2p",
        "s/[[:alpha:]]/x/",
    ):
        if is_read_only_command(f"sed -n '{script}' in"):
            subprocess.run(["sed", "-n", script, "in"], cwd=tmp_path, capture_output=True, check=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
