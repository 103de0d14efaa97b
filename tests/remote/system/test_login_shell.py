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


def environment(home: Path, **more: str) -> dict[str, str]:
    given = {"HOME": str(home), "PATH": "/usr/bin:/bin", "USER": "ann", "SSH_CONNECTION": "::1 1 ::1 22", **more}
    (home / ".bash_profile").write_text("test -f ~/.bashrc && . ~/.bashrc\n", encoding="utf-8")
    return given


async def ask(shell: str, environ: dict[str, str], session: str = "", seconds: float = 10) -> dict[str, str]:
    with contextlib.closing(CageServer()) as cages:
        return await login_shell.ask(shell, environ, cages, session, seconds)


def shell_called(name: str, directory: Path) -> str:
    if name != "ash":
        return shutil.which(name) or pytest.skip(f"no {name} here")
    link = directory / "ash"
    link.symlink_to(shutil.which("busybox") or pytest.skip("no busybox here"))
    return str(link)


def write(home: Path, name: str, text: str) -> None:
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


@pytest.mark.parametrize("shell", SHELLS)
async def test_every_login_shell_gives_what_its_start_up_files_set(tmp_path: Path, shell: str) -> None:
    program = shell_called(shell, tmp_path)
    environ = environment(tmp_path)
    write(tmp_path, *SHELLS[shell])
    found = await ask(program, environ)
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
async def test_start_up_files_may_do_what_they_want(tmp_path: Path, odd: str) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", f"{ODD[odd]}\n{POSIX_LINE}")
    found = await ask("/bin/bash", environ)
    assert found["PATH"].startswith(f"{FIRST}:")
    assert odd != "functions and odd values" or (found["ODD_HOME"], found["EMPTY_HOME"]) == ("a\nb=c", "")


ENDS = {"exec": "exec zsh", "tmux": "exec tmux", "exit": "exit 0", "killed": "kill -9 $$"}


@pytest.mark.parametrize("how", ENDS)
async def test_a_shell_that_its_start_up_files_replace_is_said_to_be_one(tmp_path: Path, how: str) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", ENDS[how])
    with pytest.raises(ShellFailed, match="was ended by its start-up files"):
        await ask("/bin/bash", environ)


async def test_a_shell_that_hangs_is_ended_with_all_that_it_has_started(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", "setsid sleep 1000 & sleep 1000")
    with pytest.raises(ShellFailed, match="was not ready within 1 s"):
        await ask("/bin/bash", environ, session="hangs", seconds=1)
    assert marked("hangs") == []


async def test_a_container_has_no_login_shell(tmp_path: Path) -> None:
    """It would set the PATH of the image aside."""
    environ = environment(tmp_path, SSH_CONNECTION="")
    write(tmp_path, ".bash_profile", "export PATH=/wrong")
    write(tmp_path, ".bashrc", POSIX_LINE)
    assert (await ask("/bin/bash", environ))["PATH"] == f"{FIRST}:/usr/bin:/bin"


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


def test_path_finds_nothing_in_the_present_directory() -> None:
    assert kept_variables({"PATH": ".:/a::node_modules/.bin:/b:"}) == {"PATH": "/a:/b"}


@contextlib.asynccontextmanager
async def begun(
    environ: dict[str, str], cache: object, shell: str = "/bin/bash", session: str = ""
) -> AsyncIterator[LoginEnvironment]:
    with contextlib.closing(CageServer()) as cages:
        login = LoginEnvironment(environ, session, cages)
        login.begin(str(cache), shell)
        try:
            yield login
        finally:
            await login.close()


async def settled(environ: dict[str, str], cache: Path, shell: str = "/bin/bash") -> str:
    async with begun(environ, cache, shell) as login:
        return await login.settle(lambda text: None)


@pytest.fixture(autouse=True)
def _own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session's shell sets goes into the environment of the process."""
    monkeypatch.setattr(os, "environ", dict(os.environ))


async def test_a_warm_start_waits_for_no_shell(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", f"test -e ~/slow && sleep 1000\n{POSIX_LINE}\nexport PS1=x API_TOKEN=secret")
    for _ in range(3):
        own = dict(environ)
        assert await settled(own, tmp_path) == ""
        assert (own["PATH"].split(":")[0], own["NVM_DIR"]) == (FIRST, "/opt/nvm")
        assert "API_TOKEN" not in own
        write(tmp_path, "slow", "")
    assert "secret" not in (tmp_path / CACHE).read_text()
    assert (tmp_path / CACHE).stat().st_mode & 0o777 == 0o600


async def test_a_change_of_a_start_up_file_counts_at_the_next_start(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    for step in ("/opt/one", "/opt/two"):
        write(tmp_path, ".bashrc", f"export PATH={step}")
        own = dict(environ)
        await settled(own, tmp_path)
        assert own["PATH"] == step


async def test_what_no_start_up_file_tells_counts_from_the_next_turn_on(tmp_path: Path) -> None:
    """A version of a tool, or a file that the start-up files read."""
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", 'for D in ~/v*; do PATH="$D:$PATH"; done; export PATH')
    (tmp_path / "v20").mkdir()
    await settled(dict(environ), tmp_path)
    (tmp_path / "v20").rename(tmp_path / "v22")
    async with begun(environ, tmp_path) as login:
        await login.settle(lambda text: None)
        before = environ["PATH"]
        assert before.startswith(f"{tmp_path}/v20:"), "a start waits for nothing"
        deadline = time.monotonic() + 60
        while environ["PATH"] == before:
            assert time.monotonic() < deadline
            await login.settle(lambda text: None)
            await asyncio.sleep(0.005)
        assert environ["PATH"] == before.replace("v20", "v22")
    own = environment(tmp_path)
    await settled(own, tmp_path)
    assert own["PATH"].startswith(f"{tmp_path}/v22:")


@pytest.mark.parametrize("damage", ["{", "[]", '{"at": "x"}', "null", ""])
async def test_a_damaged_file_or_none_that_can_be_kept_costs_only_time(tmp_path: Path, damage: str) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", POSIX_LINE)
    (tmp_path / CACHE).write_text(damage, encoding="utf-8")
    assert await settled(environ, tmp_path if damage else tmp_path / "missing") == ""
    assert environ["NVM_DIR"] == "/opt/nvm"


async def test_a_file_that_others_can_write_does_not_count(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", POSIX_LINE)
    await settled(dict(environ), tmp_path)
    data = json.loads((tmp_path / CACHE).read_text())
    data["variables"]["PATH"] = "/evil"
    (tmp_path / CACHE).write_text(json.dumps(data), encoding="utf-8")
    (tmp_path / CACHE).chmod(0o666)
    own = dict(environ)
    await settled(own, tmp_path)
    assert own["PATH"].startswith(FIRST)


async def test_a_failure_is_said_at_each_start_and_only_the_first_one_waits_for_it(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", "test -e ~/slow && sleep 1000; exit")
    for _ in range(2):
        assert await settled(dict(environ), tmp_path) == (
            "Your shell /bin/bash was ended by its start-up files, so what they set is missing. "
            "Commands get the PATH of the connection, /usr/bin:/bin; `env` in the settings sets another one."
        )
        write(tmp_path, "slow", "")


async def test_an_account_without_a_shell_is_left_as_it_is(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    assert await settled(environ, tmp_path, "/usr/sbin/nologin") == ""
    assert environ["PATH"] == "/usr/bin:/bin"


async def test_a_shell_that_is_missing_is_said(tmp_path: Path) -> None:
    said = await settled(environment(tmp_path), tmp_path, "/no/shell")
    assert said.startswith("Your shell /no/shell cannot be started (No such file or directory). Commands get the PATH")


async def test_a_wait_for_the_shell_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_shell, "_SILENT_S", 0.01)
    environ, said = environment(tmp_path), list[str]()
    write(tmp_path, ".bashrc", f"while ! test -e ~/go; do sleep 0.01; done\n{POSIX_LINE}")

    def waits(text: str) -> None:
        said.append(text)
        (tmp_path / "go").touch()

    async with begun(environ, "") as login:
        assert await login.settle(waits) == ""
    assert said == ["Waiting for the start-up files of your shell on the host, for 10 s at most."]


async def test_the_end_of_a_session_ends_its_shell(tmp_path: Path) -> None:
    environ = environment(tmp_path)
    write(tmp_path, ".bashrc", "sleep 1000")
    async with begun(environ, tmp_path, session="ended") as login:
        await until(lambda: len(marked("ended")) > 1)
        started = time.monotonic()
        await login.close()
        assert marked("ended") == []
        assert time.monotonic() - started < 5
        assert await login.settle(lambda text: None) == ""
