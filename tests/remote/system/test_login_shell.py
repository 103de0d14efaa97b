"""The environment of the person's own shell: found once, whatever its start-up files do, and kept without secrets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.remote.tools_kit import until

from ccb.remote.sandbox.cage_server import CageServer
from ccb.remote.system import login_shell
from ccb.remote.system.login_shell import CACHE, LoginEnvironment, ShellFailed, kept_variables
from ccb.remote.system.process import marked

FIRST = "/opt/first/bin"
POSIX_LINE = f"export PATH={FIRST}:$PATH NVM_DIR=/opt/nvm"
SHELLS = {
    "bash": (".bashrc", f"case $- in *i*) ;; *) return;; esac\n{POSIX_LINE}"),
    "zsh": (".zshrc", POSIX_LINE),
    "fish": (
        ".config/fish/config.fish",
        f"if status is-interactive; and status is-login\nset -gx PATH {FIRST} $PATH\nset -gx NVM_DIR /opt/nvm\nend",
    ),
    "tcsh": (".login", f"setenv PATH {FIRST}:$PATH\nsetenv NVM_DIR /opt/nvm"),
    "dash": (".profile", POSIX_LINE),
    "ash": (".profile", POSIX_LINE),
}


class Home:
    """A home with start-up files, what a connection to it sets, and the environments that its shells give."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.environ = {"HOME": str(path), "PATH": "/usr/bin:/bin", "USER": "ann", "SSH_CONNECTION": "::1 1 ::1 22"}
        self.write(".bash_profile", "test -f ~/.bashrc && . ~/.bashrc")

    def write(self, name: str, text: str = "") -> None:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n", encoding="utf-8")

    async def ask(self, shell: str = "/bin/bash", session: str = "", seconds: float = 10) -> dict[str, str]:
        with contextlib.closing(CageServer()) as cages:
            return await login_shell.ask(shell, self.environ, cages, session, seconds)

    @contextlib.asynccontextmanager
    async def begun(
        self, environ: dict[str, str], cache: object, shell: str = "/bin/bash", session: str = ""
    ) -> AsyncIterator[LoginEnvironment]:
        with contextlib.closing(CageServer()) as cages:
            login = LoginEnvironment(environ, session, cages)
            login.begin(str(cache), shell)
            try:
                yield login
            finally:
                await login.close()

    async def settled(self, shell: str = "/bin/bash", cache: Path | None = None) -> tuple[str, dict[str, str]]:
        """Return what a start says, and the environment after it."""
        own = dict(self.environ)
        async with self.begun(own, cache or self.path, shell) as login:
            return await login.settle(lambda text: None), own


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def shell_called(name: str, directory: Path) -> str:
    if name != "ash":
        return shutil.which(name) or pytest.skip(f"no {name} here")
    link = directory / "ash"
    link.symlink_to(shutil.which("busybox") or pytest.skip("no busybox here"))
    return str(link)


@pytest.mark.parametrize("shell", SHELLS)
async def test_every_login_shell_gives_what_its_start_up_files_set(home: Home, shell: str) -> None:
    home.write(*SHELLS[shell])
    found = await home.ask(shell_called(shell, home.path))
    assert found["PATH"].split(":")[0] == FIRST
    assert found["NVM_DIR"] == "/opt/nvm"


ODD = {
    "noise before and after": "printf 'Welcome'; head -c 300000 /dev/zero; trap 'head -c 300000 /dev/zero' EXIT",
    "the command is shown": "set -v; trap 'echo \"$BASH_COMMAND\"' DEBUG",
    "errors": "set -x; no-such-program; false",
    "a question": "read -p 'Which project? ' answer; read line </dev/tty",
    "an end that waits": "trap 'sleep 1000' EXIT",
    "a slow part in the background": "sleep 1000 &",
    "output closed by a program": "exec 3>&1; echo done >&3",
    "functions and odd values": "f() { :; }; export -f f; export ODD_HOME=$'a\\nb=c' EMPTY_HOME=",
    "another directory": "cd /",
    "a prompt that works": "PROMPT_COMMAND='sleep 1000'; PS1='$(sleep 1000)'",
}


@pytest.mark.parametrize("odd", ODD)
async def test_start_up_files_may_do_what_they_want(home: Home, odd: str) -> None:
    home.write(".bashrc", f"{ODD[odd]}\n{POSIX_LINE}")
    found = await home.ask()
    assert found["PATH"].startswith(f"{FIRST}:")
    assert odd != "functions and odd values" or (found["ODD_HOME"], found["EMPTY_HOME"]) == ("a\nb=c", "")


ENDS = {"exec": "exec zsh", "tmux": "exec tmux", "exit": "exit 0", "killed": "kill -9 $$"}


@pytest.mark.parametrize("how", ENDS)
async def test_a_shell_that_its_start_up_files_replace_is_said_to_be_one(home: Home, how: str) -> None:
    home.write(".bashrc", ENDS[how])
    with pytest.raises(ShellFailed, match="was ended by its start-up files"):
        await home.ask()


async def test_a_shell_that_hangs_is_ended_with_all_that_it_has_started(home: Home) -> None:
    home.write(".bashrc", "setsid sleep 1000 & sleep 1000")
    with pytest.raises(ShellFailed, match="was not ready within 1 s"):
        await home.ask(session="hangs", seconds=1)
    assert marked("hangs") == []


async def test_a_container_has_no_login_shell(home: Home) -> None:
    """It would set the PATH of the image aside."""
    home.environ["SSH_CONNECTION"] = ""
    home.write(".bash_profile", "export PATH=/wrong")
    home.write(".bashrc", POSIX_LINE)
    assert (await home.ask())["PATH"] == f"{FIRST}:/usr/bin:/bin"


def test_only_what_a_person_expects_is_kept() -> None:
    kept = {
        "PATH": "/a:/b", "MANPATH": "/m", "LD_LIBRARY_PATH": "/l", "NVM_DIR": "/n", "PYENV_ROOT": "/p", "GOPATH": "/g",
        "CONDA_PREFIX": "/c", "CONDA_DEFAULT_ENV": "base", "JAVA_HOME": "/j", "CARGO_HOME": "/r", "VIRTUAL_ENV": "/v",
        "LANG": "de_DE.UTF-8", "LC_TIME": "C", "https_proxy": "http://proxy:3128", "KUBECONFIG": "/k", "CC": "clang",
        "PROJECT_ROOT": "/x", "LOADEDMODULES": "gcc/13", "NODE_OPTIONS": "--max-old-space-size=8192",
    }  # fmt: skip
    dropped = {
        "PS1": "$ ", "PROMPT_COMMAND": "x", "HISTFILE": "/h", "EDITOR": "vim", "SHLVL": "2", "PWD": "/", "TERM": "x",
        "GITHUB_TOKEN": "t", "NPM_TOKEN": "t", "AWS_SECRET_ACCESS_KEY": "t", "PIP_PASSWORD": "t",
        "NPM_CONFIG__AUTH": "t",
        "CARGO_REGISTRY_TOKEN": "t", "POETRY_HTTP_BASIC_X_PASSWORD": "t", "PIP_INDEX_URL": "https://ann:pw@pypi/simple",
        "HTTPS_PROXY": "http://ann:pw@proxy:3128", "DATABASE_URL": "postgres://x", "ANTHROPIC_API_KEY": "k",
        "ANTHROPIC_HOME": "/a", "CLAUDE_CONFIG_DIR": "/c", "CCB_SESSION": "s", "CCB_HOME": "/c", "OPENAI_VERSION": "1",
        "SSH_AUTH_SOCK": "/s", "XDG_RUNTIME_DIR": "/r", "XDG_STATE_HOME": "/s", "BASH_ENV": "/b", "LD_PRELOAD": "/p",
        "CDPATH": "/c", "GIT_DIR": "/g", "GIT_EXEC_PATH": "/g", "BASH_FUNC_f%%": "() { :; }", "LC_ALL": "zh_CN.GBK",
        "HOME": "/h", "IS_SANDBOX": "1", "MODEL_API_KEY": "k", "SSH_KEY_PATH": "/k",
    }  # fmt: skip
    assert kept_variables({**kept, **dropped}) == kept
    assert kept_variables({"PATH": ".:/a::node_modules/.bin:/b:"}) == {"PATH": "/a:/b"}, "nothing in the directory"


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session's shell sets goes into the environment of the process."""
    monkeypatch.setattr(os, "environ", dict(os.environ))


async def test_a_warm_start_waits_for_no_shell(home: Home) -> None:
    home.write(".bashrc", f"test -e ~/slow && sleep 1000\n{POSIX_LINE}\nexport PS1=x API_TOKEN=secret")
    for _ in range(3):
        said, own = await home.settled()
        assert (said, own["PATH"].split(":")[0], own["NVM_DIR"]) == ("", FIRST, "/opt/nvm")
        assert "API_TOKEN" not in own
        home.write("slow")
    assert "secret" not in (home.path / CACHE).read_text()
    assert (home.path / CACHE).stat().st_mode & 0o777 == 0o600


async def test_a_change_of_a_start_up_file_counts_at_the_next_start(home: Home) -> None:
    for step in ("/opt/one", "/opt/two"):
        home.write(".bashrc", f"export PATH={step}")
        assert (await home.settled())[1]["PATH"] == step


async def test_what_no_start_up_file_tells_counts_from_the_next_turn_on(home: Home) -> None:
    """A version of a tool, or a file that the start-up files read."""
    home.write(".bashrc", 'for D in ~/v*; do PATH="$D:$PATH"; done; export PATH')
    (home.path / "v20").mkdir()
    await home.settled()
    (home.path / "v20").rename(home.path / "v22")
    environ = dict(home.environ)
    async with home.begun(environ, home.path) as login:
        await login.settle(lambda text: None)
        before = environ["PATH"]
        assert before.startswith(f"{home.path}/v20:"), "a start waits for nothing"
        deadline = time.monotonic() + 60
        while environ["PATH"] == before:
            assert time.monotonic() < deadline
            await login.settle(lambda text: None)
            await asyncio.sleep(0.005)
        assert environ["PATH"] == before.replace("v20", "v22")
    assert (await home.settled())[1]["PATH"].startswith(f"{home.path}/v22:")


@pytest.mark.parametrize("damage", ["{", "[]", '{"at": "x"}', "null", ""])
async def test_a_damaged_file_or_none_that_can_be_kept_costs_only_time(home: Home, damage: str) -> None:
    home.write(".bashrc", POSIX_LINE)
    (home.path / CACHE).write_text(damage, encoding="utf-8")
    said, own = await home.settled(cache=home.path if damage else home.path / "missing")
    assert (said, own["NVM_DIR"]) == ("", "/opt/nvm")


async def test_a_file_that_others_can_write_does_not_count(home: Home) -> None:
    home.write(".bashrc", POSIX_LINE)
    await home.settled()
    data = json.loads((home.path / CACHE).read_text())
    data["variables"]["PATH"] = "/evil"
    (home.path / CACHE).write_text(json.dumps(data), encoding="utf-8")
    (home.path / CACHE).chmod(0o666)
    assert (await home.settled())[1]["PATH"].startswith(FIRST)


async def test_a_failure_is_said_at_each_start_and_only_the_first_one_waits_for_it(home: Home) -> None:
    home.write(".bashrc", "test -e ~/slow && sleep 1000; exit")
    for _ in range(2):
        assert (await home.settled())[0] == (
            "Your shell /bin/bash was ended by its start-up files, so what they set is missing. "
            "Commands get the PATH of the connection, /usr/bin:/bin; `env` in the settings sets another one."
        )
        home.write("slow")


async def test_an_account_without_a_shell_is_left_as_it_is(home: Home) -> None:
    assert await home.settled("/usr/sbin/nologin") == ("", home.environ)


async def test_a_shell_that_is_missing_is_said(home: Home) -> None:
    said, _ = await home.settled("/no/shell")
    assert said.startswith("Your shell /no/shell cannot be started (No such file or directory). Commands get the PATH")


async def test_a_wait_for_the_shell_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_shell, "_SILENT_S", 0.01)
    said: list[str] = []
    home.write(".bashrc", f"while ! test -e ~/go; do sleep 0.01; done\n{POSIX_LINE}")

    def waits(text: str) -> None:
        said.append(text)
        home.write("go")

    async with home.begun(dict(home.environ), "") as login:
        assert await login.settle(waits) == ""
    assert said == ["Waiting for the start-up files of your shell on the host, for 10 s at most."]


async def test_the_end_of_a_session_ends_its_shell(home: Home) -> None:
    home.write(".bashrc", "sleep 1000")
    async with home.begun(dict(home.environ), home.path, session="ended") as login:
        await until(lambda: len(marked("ended")) > 1)
        started = time.monotonic()
        await login.close()
        assert marked("ended") == []
        assert time.monotonic() - started < 5
        assert await login.settle(lambda text: None) == ""
