"""Completion in the shells themselves: what Tab offers for a line."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import shlex
import shutil
import sqlite3
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.hosts.control_master import control_master, socket_directory
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.machine.programs import shell_script

from ccb.local.command_line.arguments import BY_NAME
from ccb.local.command_line.subcommands import NAMES
from ccb.local.commands.completion_scripts import ASK, script

pytestmark = pytest.mark.programs

BASH = """
PS1='ready> '
bind 'set bell-style none'
bind 'set enable-bracketed-paste off'
bind '"\\C-t": insert-completions'
bind -x '"\\C-g": printf "<<%s>>" "$READLINE_LINE"'
"""
ZSH = """
PS1='ready> '
autoload -Uz compinit && compinit -u
every() { _main_complete; compstate[insert]=all }
zle -C every complete-word every
bindkey '^T' every
shown() { print -rn -- "<<$BUFFER>>" }
zle -N shown
bindkey '^G' shown
"""
DEADLINE_S = 20


class Shell:
    """A shell with the completion of ccb, of a person whose files are in `home`."""

    def __init__(self, name: str, home: Path, env: dict[str, str]) -> None:
        self.name, self.home, self.env = name, home, env

    def words(self, line: str) -> list[str]:
        """Return the words that Tab offers at the end of a line."""
        if self.name == "fish":
            said = self.run("fish", "--no-config", "-c", f"source {self.home}/script; complete -C {shlex.quote(line)}")
            return [each.partition("\t")[0] for each in said.splitlines()]
        before, after = shlex.split(line), shlex.split(self.edited(line))
        return after[len(before) - (not line.endswith(" ")) :] if after != before else []

    def edited(self, line: str) -> str:
        """Return the line after a key that takes every word that is offered. bash and zsh only."""
        ours, theirs = os.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 200, 0, 0))
        argv = ["bash", "--rcfile", f"{self.home}/.zshrc", "-i"] if self.name == "bash" else ["zsh", "-i"]
        with (
            subprocess.Popen(
                argv, stdin=theirs, stdout=theirs, stderr=theirs, env=self.env, cwd=self.home, start_new_session=True
            ) as process,
            os.fdopen(ours, "r+b", buffering=0) as terminal,
        ):
            os.close(theirs)
            seen = _until(terminal.read, b"ready> ")
            terminal.write(line.encode() + b"\x14\x07")
            seen = _until(terminal.read, b">>")
            process.kill()
        return seen.rpartition(b"<<")[2].partition(b">>")[0].decode()

    def run(self, *argv: str) -> str:
        return subprocess.run(
            argv, env=self.env, cwd=self.home, capture_output=True, text=True, check=True, timeout=DEADLINE_S
        ).stdout


def _until(read: Callable[[int], bytes | None], end: bytes) -> bytes:
    seen = b""
    while end not in seen:
        seen += read(65536) or b""
    return seen


@pytest.fixture(params=["bash", "zsh", "fish"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    name = request.param
    if shutil.which(name) is None:
        pytest.skip(f"no {name}")
    (tmp_path / "script").write_text(script(name))
    (tmp_path / ".zshrc").write_text(f"{ {'bash': BASH, 'zsh': ZSH}.get(name, '') }\nsource {tmp_path}/script\n")
    with socket_directory() as runtime:
        env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        yield Shell(name, tmp_path, {**env, "XDG_RUNTIME_DIR": str(runtime)})


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def know_hosts(home: Path) -> None:
    write(
        home / ".ssh/config", 'Include conf.d/*.conf\nInclude "none"\nHost devbox web-* !not\n  User ann\nMatch all\n'
    )
    write(home / ".ssh/conf.d/of-work.conf", "host=deep\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ccb tru", ["trust"]),
        ("ccb auth ", ["login", "status", "logout"]),
        ("ccb --debug auth log", ["login", "logout"]),
        ("ccb completion ", ["bash", "zsh", "fish"]),
        ("ccb ssh devbox --sandb", ["--sandbox"]),
        ("ccb ssh devbox --sandbox ", ["read-only", "workspace", "off"]),
        ("ccb --effort=h", ["--effort=high"]),
        ("ccb --permission-mode d", ["default", "dontAsk"]),
        ("ccb gc devbox --dr", ["--dry-run"]),
        ("ccb gc devbox --sandb", []),
        ("ccb ssh ", ["deep", "devbox"]),
        ("ccb ssh -P 22 de", ["deep", "devbox"]),
        ("ccb stop ann@dev", ["ann@devbox"]),
        ("ccb --model open", ["openrouter/openai/gpt-5"]),
        ("ccb auth login o", ["openai", "openrouter", "ollama"]),
        ("ccb attach devbox ", ["11111111-aaaa", "22222222-aaaa"]),
        ("ccb attach devbox 2", ["22222222-aaaa"]),
        ("ccb --resume ", ["33333333-aaaa"]),
        ("ccb resume . ", ["33333333-aaaa"]),
        ("ccb audit ", ["11111111-aaaa", "22222222-aaaa", "33333333-aaaa", "44444444-aaaa"]),
        ("ccb -i key-o", ["key-of-ann"]),
        ("ccb cp key-o", ["key-of-ann"]),
        ("ccb cp devbox:key-o", []),
        ("ccb help sandb", ["sandbox"]),
        ("ccb config get graceH", ["graceHours"]),
        ("ccb config get devbox", []),
        ("ccb config show dee", ["deep"]),
    ],
)
def test_tab_offers_what_may_stand_there(shell: Shell, line: str, offered: list[str]) -> None:
    know_hosts(shell.home)
    write(shell.home / "key-of-ann", "")
    write(shell.home / ".cache/ccb/models/openrouter.json", json.dumps({"models": [{"id": "openai/gpt-5"}, 7]}))
    write(shell.home / ".cache/ccb/models/damaged.json", "{")
    here = shell.home / ".local/state/ccb/sessions/33333333-aaaa"
    write(here / "journal.jsonl", "{}\n")
    write(here / "summary.json", json.dumps({"cwd": "/srv", "prompt": "fix\x1b]0;it\x07 it"}))
    ledger = sqlite3.connect(shell.home / ".local/state/ccb/ledger.sqlite3")
    ledger.execute("CREATE TABLE calls (session TEXT, host TEXT, directory TEXT, began REAL)")
    ledger.execute("CREATE TABLE events (id INTEGER, session TEXT, kind TEXT, text TEXT)")
    rows = [("1" * 8, "ann@devbox", 3), ("2" * 8, "devbox", 2), ("4" * 8, "other", 1), ("5" * 8, "local", 4)]
    ledger.executemany("INSERT INTO calls VALUES (? || '-aaaa', ?, '/srv', ?)", rows)
    ledger.commit()
    assert sorted(shell.words(line)) == sorted(offered)


def test_every_command_and_every_option_is_offered(shell: Shell) -> None:
    assert set(NAMES) <= set(shell.words("ccb "))
    long = {name for name in shell.words("ccb ssh devbox --") if name.startswith("--")}
    assert long >= {name for name in BY_NAME if name.startswith("--") and not BY_NAME[name].commands} - {"--version"}


HOSTILE = (
    "$(touch x)",
    "`touch x`",
    ";touch x",
    "'$(x)",
    '"$(x)',
    "\\$(x)",
    "*?",
    "a b",
    "\n",
    "\x1b]0;x\x07",
    "\u202ex",
    "\udcff",
)


@pytest.mark.quick_rows(1)
async def test_names_of_a_host_that_a_shell_would_read_are_left_out(
    shell: Shell, sshd: Sshd, host_user: HostUser
) -> None:
    for name in (*HOSTILE, "plain-é"):
        Path(f"{host_user.home}/project/8{name}").mkdir(parents=True)
    write(Path(f"{host_user.home}/project/9file"), "")
    shutil.chown(host_user.home / "project", host_user.name)
    kept = Path(shell.env["XDG_RUNTIME_DIR"], "ccb-kept")
    kept.mkdir(mode=0o700)
    write(kept / "key.json", json.dumps({"host": "devbox", "user": "ann"}))
    async with control_master(sshd, host_user, kept / "key"):
        assert await asyncio.to_thread(shell.words, "ccb ssh ann@devbox:pro") == ["ann@devbox:project/"]
        assert await asyncio.to_thread(shell.words, "ccb ssh devbox:~/project/8") == ["devbox:~/project/8plain-é/"]
        assert await asyncio.to_thread(shell.words, "ccb ssh devbox:project/9") == []
        assert await asyncio.to_thread(shell.words, "ccb cp devbox:project/9") == ["devbox:project/9file"]


def asked(home: Path, *words: str, path: str = "") -> str:
    env = {"PATH": f"{path}:{os.environ['PATH']}", "HOME": str(home), "XDG_RUNTIME_DIR": str(home)}
    done = subprocess.run([*ASK, *words], env=env, capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert not done.stderr
    return done.stdout


def test_what_describes_a_session_is_one_short_line_without_control_characters(tmp_path: Path) -> None:
    session = tmp_path / ".local/state/ccb/sessions/0123"
    write(session / "journal.jsonl", "{}\n")
    write(session / "summary.json", json.dumps({"cwd": "/srv", "prompt": "\x1b]0;it\x07\n\u202eit" + 80 * "x"}))
    assert asked(tmp_path, "ids", "") == f"0123\t/srv  ]0;it   it{43 * 'x'}…\n"


async def test_paths_come_over_a_control_master_and_never_over_a_login_of_completion(
    tmp_path: Path, sshd: Sshd, host_user: HostUser
) -> None:
    (host_user.home / "app").mkdir()
    options = f"User {host_user.name}\n HostName 127.0.0.1\n Port {sshd.port}\n IdentityFile {sshd.identity}"
    shell_script(tmp_path / "bin/ssh", f'exec {shutil.which("ssh")} -F "$HOME/.ssh/config" "$@"')
    with socket_directory() as sockets:
        master = f"ControlPath {sockets}/master\n UserKnownHostsFile {sshd.trust(sshd.port)}"
        write(tmp_path / ".ssh/config", f"Host devbox\n {options}\n {master}\n")
        async with control_master(sshd, host_user, sockets / "master"):
            place = f"devbox:{host_user.home}/a"
            listed = await asyncio.to_thread(asked, tmp_path, "directories", place, path=f"{tmp_path}/bin")
            assert listed == f"devbox:{host_user.home}/app/\t\n"
        logins = sshd.logins
        assert not await asyncio.to_thread(asked, tmp_path, "directories", "devbox:/", path=f"{tmp_path}/bin")
        assert sshd.logins == logins


def test_a_host_that_does_not_answer_ends_the_wait(tmp_path: Path) -> None:
    shell_script(tmp_path / "bin/ssh", f'echo $$ > {tmp_path}/pid; printf "half a name"; exec sleep 600')
    assert not asked(tmp_path, "directories", "devbox:/", path=f"{tmp_path}/bin")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def test_what_is_asked_at_each_tab_loads_nothing_that_it_does_not_need(tmp_path: Path) -> None:
    know_hosts(tmp_path)
    program = (
        ASK[4] + "; sys.stdout.write(repr({'json', 're', 'ccb', 'subprocess', 'sqlite3', 'site'} & {*sys.modules}))"
    )
    loaded = subprocess.run(
        [*ASK[:4], program, ASK[5], "hosts", "de"],
        env={"HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert sorted(loaded.stdout.splitlines()) == ["deep\t", "devbox\t", "set()"]
