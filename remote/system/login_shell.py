"""The environment of the person's terminal here, as an interactive shell tells it, kept for the next session."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pwd
import re
import secrets
import shlex
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Callable

from ccb.tunnel.wire.frames import Json

from ..sandbox.cage_server import CageServer
from .deadline import first_of, in_thread, within
from .process import child_environment, is_of_ccb, new_mark, started
from .regular_files import NotAFile, open_regular

_log = logging.getLogger(__name__)

CACHE = "login.json"  # the name of the file in the directory of the worker's program

_SECONDS, _SILENT_S = 10.0, 1.0
_MAX_BYTES = 1 << 22
_MAX_VALUE = 32_768
_NO_SHELLS = ("nologin", "false", "true", "git-shell", "")

# Prints the environment between two markers, which are backwards in the command: a shell may print what it runs.
_PRINT = (
    "import os,sys;m=sys.argv[1][::-1].encode();os.write(1,m+bytes(1).join(k+b'='+v for k,v in os.environb.items())+m)"
)

_KEPT = (
    r"[A-Z0-9_]*PATH|\w+_(?:HOME|ROOT|DIR|DIRS|PREFIX|VERSION|PROXY|proxy|OPTS|BIN|STORE|MIRROR)|[A-Z]*FLAGS"
    r"|LANG|LANGUAGE|LC_[A-Z]+|TZ|CC|CXX|FC|F77|VIRTUAL_ENV\w*|PYTHON[A-Z]+|PERL[A-Z0-9_]*|KUBECONFIG|MODULESHOME"
    r"|GO(?:ROOT|BIN|PROXY|PRIVATE|NOPROXY|SUMDB|NOSUMDB|CACHE|MODCACHE|TOOLCHAIN|ENV|WORK|OS|ARCH)|LOADEDMODULES"
    r"|(?:NVM|FNM|VOLTA|NODE|NPM|npm|YARN|PNPM|BUN|DENO|PYENV|PIP|UV|PIPX|POETRY|CONDA|MAMBA|RBENV|RVM|GEM|RUBY|CARGO"
    r"|RUSTUP|RUST|JAVA|JDK|MAVEN|GRADLE|SDKMAN|ANDROID|DOTNET|JULIA|OPAM|ASDF|MISE|NIX|HOMEBREW|CUDA|ROCM|LMOD|SPACK"
    r"|PKG|CMAKE|R|LUA)_\w+|_CE_\w+|_LMFILES_|AWS_(?:PROFILE|REGION|DEFAULT_REGION)|DOCKER_(?:HOST|CONTEXT|CONFIG)"
    r"|SSL_CERT_FILE|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE|GIT_SSH|GIT_SSH_COMMAND|GIT_(?:AUTHOR|COMMITTER)_(?:NAME|EMAIL)"
)
_NOT_KEPT = (
    r"CDPATH|XDG_(?!(?:DATA|CONFIG)_DIRS)\w*|GIT_(?!SSH|AUTHOR|COMMITTER)\w*"
    r"|(?i:\w*(?:TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE)\w*|(?:\w+_)?(?:PASS|PWD|KEY|KEYS|APIKEY|AUTH)(?:_\w+)?)"
)  # variables that say where ccb and git keep their files, by which commands are judged, and names of secrets
_OF_LOADERS = ("LD_", "DYLD_", "PYTHON")  # variables for the children that would change the worker's own programs
_USER_IN_URL = r"://[^/@\s]*@"
_UTF8 = r"(?i)(?:|C|POSIX|.*\.utf-?8(?:@.*)?)"

_FILES = (
    *("/etc/profile", "/etc/profile.d", "/etc/environment", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zshenv"),
    *("/etc/zprofile", "/etc/zshrc", "/etc/zlogin", "/etc/zsh/zshenv", "/etc/zsh/zprofile", "/etc/zsh/zshrc"),
    *("/etc/zsh/zlogin", "/etc/csh.cshrc", "/etc/csh.login", "/etc/fish/config.fish", "/etc/fish/conf.d", "/etc/paths"),
    *("/etc/paths.d", "~/.profile", "~/.bash_profile", "~/.bash_login", "~/.bashrc", "~/.bash_aliases", "~/.bashrc.d"),
    *("~/.zshenv", "~/.zprofile", "~/.zshrc", "~/.zlogin", "~/.kshrc", "~/.mkshrc", "~/.shrc", "~/.shinit"),
    *("~/.cshrc", "~/.tcshrc", "~/.login", "~/.config/fish/config.fish", "~/.config/fish/conf.d"),
    *("~/.config/fish/fish_variables", "~/.config/environment.d", "~/.pam_environment", "~/.cargo/env"),
    *("~/.nvm/alias", "~/.nvm/alias/default", "~/.nvm/nvm.sh", "~/.pyenv/version", "~/.rbenv/version", "~/.condarc"),
    *("~/.tool-versions", "~/.config/mise/config.toml", "~/.local/share/mise/installs", "~/.nodenv/version"),
    *("~/.sdkman/candidates", "~/.volta/tools", "~/.asdf/shims", "~/.local/bin/env"),
)  # what the start-up files of shells are, and what they commonly read. Of a directory, each entry counts
_MAX_ENTRIES = 200

_Found = tuple[dict[str, str], str]  # the variables that a shell gives, or why it gives none


class LoginEnvironment:
    """Adds what the person's shell sets to `environ`, and most of it to the environment of this process. `variables`
    are those of the settings (`env`), for commands alone."""

    def __init__(self, environ: MutableMapping[str, str], session: str, cages: CageServer) -> None:
        self.variables: dict[str, str] = {}
        self._environ = environ
        self._cages = cages
        self._given: dict[str, str] = {}  # what the connection gave
        self._session = session
        self._first: asyncio.Task[str] | None = None
        self._again: asyncio.Task[_Found] | None = None

    def begin(self, directory: str, shell: str = "") -> None:
        """Find the environment of `shell`, by default that of this user, kept in `directory` if any."""
        self._given = dict(self._environ)
        self._first = asyncio.ensure_future(self._find(os.path.join(directory, CACHE) if directory else "", shell))

    async def settle(self, waits: Callable[[str], None]) -> str:
        """Return when `environ` is complete, with what to tell the person. `waits` is told if it takes long."""
        again, said = self._again, ""
        if again is not None and again.done():
            self._again = None
            self._take(again.result()[0])
        if self._first is not None:
            done, _ = await asyncio.wait({self._first}, timeout=_SILENT_S)
            if not done:
                waits(f"Waiting for the start-up files of your shell on the host, for {_SECONDS:g} s at most.")
            said = await asyncio.shield(self._first)
            self._first = None
        return said

    async def close(self) -> None:
        tasks = {each for each in (self._first, self._again) if each is not None}
        self._first = self._again = None
        for each in tasks:
            each.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _find(self, cache: str, shell: str) -> str:
        try:
            shell, key, kept = await in_thread(_kept, cache, shell, self._given)
            if os.path.basename(shell) in _NO_SHELLS:
                return ""
            if kept is None:
                kept = await self._asked(cache, shell, key)
            else:  # it may read files that no key names: the next turn gets it
                self._again = asyncio.ensure_future(self._asked(cache, shell, key, again=True))
        except Exception:  # noqa: BLE001 - the top of a task: the session goes on with the environment that it has
            _log.exception("the environment of the login shell cannot be found")
            return ""
        variables, why = kept
        self._take(variables)
        path = self._given.get("PATH", os.defpath)
        return why and (
            f"Your shell {shell} {why}. Commands get the PATH of the connection, {path}; `env` in the settings "
            "sets another one."
        )

    def _take(self, variables: Mapping[str, str]) -> None:
        self._environ.update(variables)
        own = {name: value for name, value in variables.items() if not name.startswith(_OF_LOADERS)}
        os.environ.update(own)

    async def _asked(self, cache: str, shell: str, key: Json, *, again: bool = False) -> _Found:
        """Ask the shell, and keep what it says; when it is asked `again`, not that it failed."""
        variables: dict[str, str] = {}
        why = ""
        try:
            variables = kept_variables(await ask(shell, self._given, self._cages, self._session))
        except (ShellFailed, OSError) as error:
            why = f"cannot be started ({error.strerror})" if isinstance(error, OSError) else str(error)
        if not (again and why):
            await in_thread(_keep, cache, key, variables, why)
        return variables, why


class ShellFailed(Exception):
    """The shell did not give its environment. The text goes on after the name of the shell."""


async def ask(
    shell: str, environ: Mapping[str, str], cages: CageServer, session: str = "", seconds: float = _SECONDS
) -> dict[str, str]:
    """Return the PATH of an interactive `shell`, and what else its start-up files set. Raise ShellFailed, OSError."""
    # by the last two variables start-up files know an editor that reads their environment, and start no tmux
    given = {**child_environment(environ, new_mark(session)), "TERM": "xterm-256color"}
    given.update({"VSCODE_RESOLVING_ENVIRONMENT": "1", "INTELLIJ_ENVIRONMENT_READER": "1"})
    del given["SHLVL"]
    marker = secrets.token_hex(16)
    name = os.path.basename(shell)
    command = f'{shlex.quote(sys.executable or "python3")} -I -S -c "{_PRINT}" {marker}'
    printed = bytearray()
    whole = asyncio.Event()
    end = marker[::-1].encode()

    def take(data: bytes) -> None:
        printed.extend(data)
        if printed.count(end) > 1:
            whole.set()
        elif len(printed) > _MAX_BYTES:
            del printed[: -_MAX_BYTES // 2]

    argv = [f"-{name}" if _is_login(environ) else name, "-i", "-c", command]
    cwd = environ["HOME"] if os.path.isdir(environ.get("HOME", "")) else "/"
    with open(os.devnull, "r+b", 0) as null:
        redirect = null.fileno(), null.fileno()
        process = await started(cages, argv, cwd, given, take, redirect=redirect, program=shell)
    too_slow = False
    try:
        await within(seconds, first_of(process.wait(), whole.wait()))
    except asyncio.TimeoutError:
        too_slow = True
    finally:
        process.kill()
        await process.stop()
    if not whole.is_set():
        what = f"was not ready within {seconds:g} s" if too_slow else "was ended by its start-up files"
        raise ShellFailed(f"{what}, so what they set is missing")
    pairs = (os.fsdecode(each).partition("=") for each in bytes(printed).split(end)[1].split(b"\0"))
    return {name: value for name, _, value in pairs if name == "PATH" or given.get(name) != value}


def kept_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what the agent's commands get: no secrets, and no PATH to the directory, where programs may be put."""
    kept = {name: value for name, value in environ.items() if len(value) <= _MAX_VALUE and _is_kept(name, value)}
    if "PATH" in kept:
        kept["PATH"] = os.pathsep.join(filter(os.path.isabs, kept["PATH"].split(os.pathsep)))
    return kept


def _is_kept(name: str, value: str) -> bool:
    if not re.fullmatch(_KEPT, name) or re.fullmatch(_NOT_KEPT, name):
        return False
    if is_of_ccb(name) or re.search(_USER_IN_URL, value):
        return False
    is_locale = name == "LANG" or name.startswith("LC_")
    return not is_locale or re.fullmatch(_UTF8, value) is not None  # command lines are judged as UTF-8


def argv_of_shell(environ: Mapping[str, str], command: str = "") -> tuple[str, list[str]]:
    """Return the path of this user's shell and its words, as a terminal here would start it, or for one command."""
    shell = _shell_of_user(environ)
    if os.path.basename(shell) in _NO_SHELLS or not os.access(shell, os.X_OK):
        shell = "/bin/sh"
    name = os.path.basename(shell)
    return shell, [f"-{name}" if _is_login(environ) else name, "-i", *(["-c", command] if command else [])]


def _shell_of_user(environ: Mapping[str, str]) -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"  # may ask a server
    except KeyError:
        return environ.get("SHELL") or ""


def _is_login(environ: Mapping[str, str]) -> bool:
    """Return whether a terminal would have a login shell here: in a container it would replace the image's PATH."""
    return bool(environ.get("SSH_CONNECTION") or environ.get("SSH_CLIENT"))


def _key(shell: str, environ: Mapping[str, str]) -> Json:
    home = environ.get("HOME") or "/"
    places = [home + each[1:] if each.startswith("~") else each for each in _FILES]
    dotted = environ.get("ZDOTDIR", "")
    places += [os.path.join(dotted, name) for name in (".zshenv", ".zprofile", ".zshrc", ".zlogin") if dotted]
    files = {path: [info.st_size, info.st_mtime_ns, info.st_ino] for path, info in _states(places)}
    started = [os.getuid(), _is_login(environ), environ.get("PATH", ""), sys.executable]
    return {"shell": shell, "started": started, "files": files}


def _states(places: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    for path in places:
        with contextlib.suppress(OSError):
            yield path, os.stat(path)
            if path.endswith((".d", "/alias", "/candidates")):
                for name in sorted(os.listdir(path))[:_MAX_ENTRIES]:
                    with contextlib.suppress(OSError):
                        yield os.path.join(path, name), os.stat(os.path.join(path, name))


def _kept(cache: str, shell: str, environ: Mapping[str, str]) -> tuple[str, Json, _Found | None]:
    shell = shell or _shell_of_user(environ)
    key = _key(shell, environ)
    try:
        with open_regular(cache) as file:
            info = os.fstat(file)
            data = json.loads(os.read(file, _MAX_BYTES))
        private = info.st_uid == os.getuid() and not info.st_mode & 0o077
        if private and data["key"] == key:
            return shell, key, (kept_variables(data["variables"]), str(data["why"]))
    except (OSError, NotAFile, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        pass
    return shell, key, None


def _keep(cache: str, key: Json, variables: dict[str, str], why: str) -> None:
    if not cache:
        return
    data = {"key": key, "variables": variables, "why": why}
    new = f"{cache}.{os.getpid()}"
    try:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(new)
        file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8", errors="surrogateescape") as text:
            json.dump(data, text)
        os.replace(new, cache)
    except (OSError, ValueError) as error:
        _log.warning("the environment of the login shell cannot be kept: %s", error)
