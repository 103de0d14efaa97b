"""What a command reads when its arguments are read as its own program reads them: each line here read a file outside
once, or ran what a rule denies, and nobody was asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.remote.permissions.corpus.rows import cases
from tests.support.worker.permission_desk import Desk, bash

from ccb.remote.permissions.rules import Behavior
from ccb.remote.permissions.shell.read_only import is_read_only_command

ALLOW, ASK, DENY = Behavior.ALLOW, Behavior.ASK, Behavior.DENY
SECRET = "the secret of another project"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """`link`, `-link` and `sub/same` lead to `../other/c`; `list` and `sums` name it."""
    desk = Desk(tmp_path)
    (desk.root / "other/c").write_text(f"{SECRET}\n")
    (desk.root / "other/deep").mkdir()
    (desk.root / "other/deep/c.json").write_text(f'"{SECRET}"\n')
    for file, text in (("c", SECRET), ("same", "x"), ("list", "../other/c\0"), ("all", "."), ("json", "{}")):
        (desk.cwd / file).write_text(text)
    (desk.cwd / "src/same").write_text("x\n")
    for link in ("link", "-link", "sub/same"):
        os.symlink(desk.root / "other/c", desk.cwd / link)
    os.symlink(desk.root / "other/deep", desk.cwd / "sub/deep")
    return desk


@pytest.mark.parametrize(
    "command",
    cases("no file outside is read unasked"),
)
def test_no_file_outside_is_read_unasked(desk: Desk, command: str) -> None:
    """Most of them print the secret here, which shows that they are worth asking about."""
    (desk.cwd / "prog").write_text('import "c" as $c {search:"../other/deep"}; $c\n')
    (desk.cwd / "e").write_text("x")
    (desk.cwd / "secret").write_text("x")
    done = subprocess.run(["bash", "-c", command], cwd=desk.cwd, capture_output=True, check=False, timeout=30)
    assert SECRET.encode() in done.stdout + done.stderr or done.returncode, "the line is harmless: it proves nothing"
    for mode in ("default", "acceptEdits"):
        assert bash(desk.engine(mode), command).behavior is ASK
    denied = desk.engine(allowed="Bash", disallowed=f"Read(/{desk.root}/other/**)")
    assert bash(denied, command).behavior is not ALLOW


@pytest.mark.parametrize(
    "command",
    [
        *(f"grep -{'n' * 19_000}f/etc/passwd a.txt", f"grep -{'n' * 19_000}flink a.txt"),
        *("grep -Ff/etc/passwd a.txt", "grep -nFf../other/c a.txt", "grep -nflink a.txt"),
        *("grep --file=link a.txt", "grep --fil=link a.txt", "rg -.f../other/c x", "rg -nflink a.txt"),
        *("rg --ignore-file ../other/c x", "rg --ignore-file=link x", "git grep -nf../other/c", "git grep -nflink"),
        *(
            "grep --exclude-from ../other/c x a.txt",
            "grep --exclude-fr ../other/c x a.txt",
            "git blame --contents=link c",
        ),
        *(
            "md5sum -c sums",
            "sha256sum --chec sums",
            "b2sum -wc sums",
            "du --files0-from=list",
            "wc --files0-from=list",
            "wc --f=list",
            "jq -nL../other/deep 1",
            "du -L .",
            "du --deref .",
        ),
        *("tree -l", "tree -al", "ls -RL", "ls -L -R", "ls --recursive --deref", "find -L .", "find . -follow -name x"),
        *("ps auxe", "ps e", "ps ax -o cmd e", "ps --forest e", "ps -o environ", "ps $x", "ps aux $x"),
    ],
)
def test_nothing_outside_is_told_unasked(desk: Desk, command: str) -> None:
    assert bash(desk.engine(), command).behavior is ASK


@pytest.mark.parametrize(
    "command",
    cases("what developers run all day is not asked about"),
)
def test_what_developers_run_all_day_is_not_asked_about(desk: Desk, command: str) -> None:
    assert bash(desk.engine(), command).behavior is ALLOW


def test_a_file_that_looks_like_an_option_is_not_let_through_a_wildcard(desk: Desk) -> None:
    for command in ("grep x *", "grep x -*", "wc --files0*", "cat ./*/b.py"):
        expected = ASK if "/" not in command else ALLOW
        (desk.cwd / "--files0-from=link").write_text("x")
        assert bash(desk.engine(), command).behavior is expected, command


@pytest.mark.parametrize(
    "command",
    ["uniq a*", "uniq -c -- a*", "git symbolic-ref H*", "git symbolic-ref --short H*", "printf %* x", "printf * x"],
)
def test_a_wildcard_that_may_become_what_is_written_is_no_reading(command: str) -> None:
    assert not is_read_only_command(command)


@pytest.mark.parametrize(
    "command",
    cases("a denied command is found behind every runner"),
)
@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_denied_command_is_found_behind_every_runner(desk: Desk, mode: str, command: str) -> None:
    assert bash(desk.engine(mode, allowed="Bash", disallowed="Bash(rm *)"), command).behavior is DENY


@pytest.mark.parametrize(
    "command",
    [
        *("source <(echo rm x)", "bash <(echo rm x)", "sh /dev/fd/0 < a.txt", '. /dev/stdin <<< "$x"'),
        *("x='rm y'; sudo $x", "sudo -u bob /bin/r[m] x", "x='rm y'; watch \"$x\"", "watch 'if true; then rm x; fi'"),
        *("x='rm y'; tmux new -d \"$x\"", "x=rm; setpriv $x y", 'script -qc "$x" f', "x=rm; uv run $x y", "exec $x y"),
    ],
)
def test_a_runner_of_what_is_not_written_out_asks_where_commands_are_denied(desk: Desk, command: str) -> None:
    for mode in ("default", "bypassPermissions"):
        assert bash(desk.engine(mode, allowed="Bash", disallowed="Bash(rm *)"), command).behavior is ASK


def test_runners_of_other_commands_are_as_before(desk: Desk) -> None:
    engine = desk.engine("bypassPermissions", disallowed="Bash(rm *)")
    for command in (
        *("sudo make install", "watch -n 1 ls", "tmux new -d 'make watch'", "uv run ruff check src/*.py", "npx tsc $x"),
        *("git rm x", "git log --grep 'rm x'", "npm run rm", "git commit -m 'rm x'"),
        *("timeout 60 pytest $x", "source $VENV/bin/activate", "ssh host 'ls -l'", "flock f make", "xvfb-run -a make"),
    ):
        assert bash(engine, command).behavior is ALLOW, command


@pytest.mark.parametrize("mode", ["default", "bypassPermissions"])
def test_a_denied_file_is_found_in_a_cluster_of_options(desk: Desk, mode: str) -> None:
    (desk.cwd / "secrets").mkdir()
    (desk.cwd / "secrets/key").write_text("x")
    engine = desk.engine(mode, disallowed="Read(secrets/**)")
    for command in (
        "grep -Ffsecrets/key a.txt",
        "rg -.nfsecrets/key",
        "curl -sFf=@secrets/key x",
        "grep -nnnnfsecrets/key a",
    ):
        assert bash(engine, command).behavior is DENY, command
    assert bash(engine, "diff . src").behavior is not ALLOW, "it compares what is in them"
    assert bash(engine, "diff a.txt c").behavior is ALLOW
