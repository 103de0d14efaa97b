"""What a command reads when its arguments are read as its own program reads them: each line here read a file outside
once, or ran what a rule denies, and nobody was asked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
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
    [
        *(
            "find . -maxdepth 1 -name link ! -type f -exec cat {} +",
            "find . -maxdepth 1 -name link -not -type f -exec cat {} +",
            "find . -maxdepth 1 \\( -type f -o -type l \\) -name link -exec cat {} +",
            "find . -maxdepth 1 -type f -name x -o -type l -name link -exec cat {} +",
            "find . -maxdepth 1 -type f -prune -o -name link -exec cat {} +",
            "find . -maxdepth 1 -type f , -name link -exec cat {} +",
            "find . -maxdepth 1 -name link \\( ! -type f \\) -exec cat {} +",
            "find . -maxdepth 1 -name link -exec cat {} + -type f",
            "find -L . -maxdepth 1 -type f -name link -exec cat {} +",
            "find . -maxdepth 1 -follow -type f -name link -exec cat {} +",
            "find . -maxdepth 1 -xtype f -name link -exec cat {} +",
            "find c -type f -exec cat ../other/{} \\;",
            "find all -type f -exec grep -f {} ../other/c \\;",
            "find c -type f -exec grep -e t -e {} ../other/c \\;",
            "find e -type f -exec grep {} ../other/c \\;",
        ),
        *(
            "jq -rR --run-tests ../other/c",
            'jq -n \'import "c" as $c {search:"../other/deep"}; $c\'',
            "jq -n -L ../other/deep 'import \"c\" as $c; $c'",
            "jq -n --rawfile a ../other/c '$a'",
            "jq -n --rawfile a link '$a'",
            "jq -n --slurpfile a ../other/deep/c.json '$a'",
            "jq -n --argfile a ../other/deep/c.json '$a'",
            "jq -R . ../other/c",
            "jq -R --arg a . . ../other/c",
            "jq -R --indent 1 . ../other/c",
            "jq -nf prog",
        ),
        *(
            "grep -- -e ../other/c",
            "grep -i -- -S\\\\\\|secret ../other/c",
            "grep l* lin*",
            "grep [st]* lin?",
            "cat -- -link",
            "diff src sub",
            "diff src/same sub",
            "head -n1 -- -link",
        ),
    ],
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
    [
        *(
            "find . -type f -name '*.py' -exec grep -n x {} +",
            "find . \\( -name a -o -name b \\) -print",
            "find . -name '*.py' -not -path './venv/*'",
            "find . -type f ! -path './.git/*' -exec wc -l {} +",
            "find . -path ./node_modules -prune -o -type f -name '*.js' -exec grep -ln x {} +",
            "find . \\( -name '*.ts' -o -name '*.tsx' \\) -type f -exec grep -n x {} \\;",
            "find . -type f \\( -name '*.c' -o -name '*.h' \\) -exec head -5 {} \\;",
            "find . \\( -type f -name a -o -type f -name b \\) -exec cat {} +",
            "find . -type d -exec echo {} \\;",
            "find src -type f -mtime -1 -size +1k -exec ls -l {} +",
            "find . -type f -name '*.json' -exec jq -r .name {} \\;",
            "find . -maxdepth 2 -type l -ls",
        ),
        *(
            "jq .name json",
            "jq -r '.[] | .x' json",
            "jq -cS . json",
            "cat json | jq -r '.a // empty'",
            "jq '.exports.import, .include' json",
            "jq '.[] | {name, import: .import}' json",
            "jq -n --arg a /etc/passwd '$a'",
            "jq --indent 2 . json",
            "jq --slurpfile a json '.x' json",
            "jq -e '.scripts[\"import\"]' json",
            "jq . *.jso",
        ),
        *(
            "grep -rn x src",
            "grep -rn --include=*.py x src",
            "grep -rn --include='*.[ch]' x src",
            "grep -rn --include=*.[ch] x src",
            "grep -rn --exclude-dir=node_modules -e x src",
            "grep -n foo.*bar a.txt",
            "grep -A5 -B 2 x a.txt",
            "grep -- -x a.txt",
            "rg -n -g '*.py' x src",
            "git log --since=2.weeks --format='%h %s' -- src",
            "git grep -n -e x -- src",
        ),
        *(
            "diff a.txt c",
            "ls -laR src",
            "ls -lL a.txt",
            "du -sh src",
            "wc -l a.txt src/b.py",
            "sha256sum a.txt",
            "tail -n 5 -- a.txt",
            "cut -d, -f1 a.txt",
            "ps aux",
            "ps -ef",
            "ps -o pid,etime,cmd -p 1",
            "ps axo pid,comm --sort=-rss",
            "ps -p $$ -o time",
            "uniq a.txt",
        ),
    ],
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
    [
        *("setpriv --reuid 5 rm x", "nsenter -t 1 -m rm x", "toybox rm x", "busybox rm x", "fakeroot rm x"),
        *("start-stop-daemon --start --exec /bin/rm -- x", "start-stop-daemon -S -x/bin/rm -- x"),
        *(
            "start-stop-daemon -S --exec=/bin/rm -- x",
            "csh -c 'rm x'",
            "tcsh -fc 'ls; rm x'",
            "toybox sh -c 'ls; rm x'",
        ),
        *("dbus-run-session -- rm x", "xvfb-run -a rm x", "tmux new -d 'rm x'", "tmux new -d 'ls; rm x'"),
        *("screen -dm rm x", "screen -dm sh -c 'ls; rm x'", "/lib64/ld-linux-x86-64.so.2 /bin/rm x"),
        *("/lib/ld-musl-x86_64.so.1 /bin/rm x", "setarch x86_64 rm x", "uv run rm x", "npx -c 'ls; rm x'"),
        *(
            "sudo timeout 5 sh -c 'ls; rm x'",
            "nohup sh -c 'ls; rm x'",
            "script -qc'ls; rm x' f",
            "watch -n 1 'ls; rm x'",
        ),
        *("flock f -c 'ls; rm x'", "systemd-run --user rm x", "parallel --jobs 2 rm ::: x"),
        *(
            "git bisect run rm x",
            "git submodule foreach 'ls; rm x'",
            "git rebase -i --exec='rm x' main",
            "npm exec -- rm x",
        ),
    ],
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
