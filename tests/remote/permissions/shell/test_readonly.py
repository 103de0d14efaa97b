"""Which command lines only look."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccb.remote.permissions.shell.read_only import changes_directory, is_read_only_command

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
        "make --version",
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


def test_a_version_is_asked_of_programs_that_obey_no_file_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shim asks the project which program to run: those of pyenv and asdf lie in `shims`, others are links."""
    for directory in ("bin", "root/shims"):
        (tmp_path / directory).mkdir(parents=True)
    for program in ("bin/python3.11", "bin/volta-shim", "bin/ruby", "root/shims/python3"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    (tmp_path / "bin/python3").symlink_to("python3.11")
    (tmp_path / "bin/node").symlink_to("volta-shim")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert is_read_only_command("python3 --version; python3 -V; ruby --version")
    assert not is_read_only_command("node --version")
    assert not is_read_only_command("cargo --version")
    monkeypatch.setenv("PATH", str(tmp_path / "root/shims"))
    assert not is_read_only_command("python3 --version")
    assert is_read_only_command("ruby --version"), "it is not there"


@given(
    st.lists(st.sampled_from(READ_ONLY[:60] + NOT_READ_ONLY[:60]), min_size=1, max_size=4),
    st.sampled_from(["; ", " && ", "\n", " | ", " & "]),
)
def test_a_line_only_looks_when_every_part_does(parts: list[str], separator: str) -> None:
    if is_read_only_command(separator.join(parts)):
        assert all(is_read_only_command(part) for part in parts)


def test_a_line_that_moves_the_shell_is_known() -> None:
    assert [
        line for line in ("cd a", "ls; pushd b", "(cd a)", "command cd a", "if x") if not changes_directory(line)
    ] == []
    assert [line for line in ("ls", "git -C a log", "echo cd") if changes_directory(line)] == []


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
