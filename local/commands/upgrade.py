"""`ccb upgrade`: the command that upgrades this installation; with --check, also what the package index has."""

from __future__ import annotations

import asyncio
import json
import platform
import re
import shlex
import ssl
import sys
import sysconfig
from collections.abc import Mapping
from configparser import Error as DamagedConfig
from configparser import RawConfigParser
from importlib import metadata
from pathlib import Path
from typing import Any

import ccb
from ccb.tunnel.errors import ConfigError, Unreachable
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..terminal.console import print_line, say

INDEX = "https://pypi.org/simple"
DEADLINE_S = 10.0
_CORRECT = "Correct index-url: `pip config list` shows it."
_MAX_PAGE = 16 * 1024 * 1024
_RELEASE = re.compile(r"\bccb-(\d+(?:\.\d+){0,5})(?:-py3-|\.tar\.gz\b)", re.ASCII)
"""A file of a release in a page of the index, in HTML and in JSON; previews are none."""


@dataclass(frozen=True)
class Installation:
    """How ccb was installed, and the command that upgrades it."""

    how: str
    command: str


async def run_upgrade(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    found = find_installation(Path(sys.prefix), _left("INSTALLER"), _left("direct_url.json"), _system())
    print_line(f"ccb {ccb.__version__}, {found.how} ({sys.prefix})")
    newest = ""
    if arguments.host_command.check:
        newest = await newest_release(environ)
        if _numbers(newest) <= _numbers(ccb.__version__):
            print_line(f"The newest version there is {newest}: nothing to upgrade.")
            return ExitCode.OK
    print_line(f"Upgrade{f' to {newest}' if newest else ''} with: {found.command}")
    return ExitCode.OK


def find_installation(prefix: Path, installer: str, direct_url: str, system: str) -> Installation:
    """Return how the ccb in the Python environment `prefix` was installed, from what its installer left there: two
    files of the package (PEP 376, PEP 610), and its own file. `system` is the name of one that manages its Python."""
    try:
        origin: Any = json.loads(direct_url or "{}")
        url, editable = str(origin.get("url", "")), bool(origin.get("dir_info", {}).get("editable"))
        vcs = str(origin.get("vcs_info", {}).get("vcs", ""))
    except (ValueError, AttributeError):
        url, editable, vcs = "", False, ""
    python, from_file = shlex.quote(sys.executable), url and not vcs
    wanted = shlex.quote(f"ccb @ {vcs}+{url}") if vcs else "ccb"
    if editable:
        return Installation("from its sources", shlex.join(["git", "-C", url.removeprefix("file://"), "pull"]))
    if (prefix / "uv-receipt.toml").exists():
        again = "uv tool install --force ccb"  # `uv tool upgrade` takes the same file
        return Installation("installed by uv tool", again if from_file else f"uv tool upgrade {prefix.name}")
    if (prefix / "pipx_metadata.json").exists():
        again = "pipx install --force ccb"
        return Installation("installed by pipx", again if from_file else f"pipx upgrade {prefix.name}")
    if "archive-v0" in prefix.parts:
        return Installation("run by uvx", "uvx ccb@latest")
    if system:
        return Installation("in the Python of this system", f"the package manager of {system}")
    if installer == "uv":
        return Installation("installed by uv", f"uv pip install --python {python} --upgrade {wanted}")
    how = "installed by pip" if installer == "pip" else "installed by hand"
    return Installation(how, f"{python} -m pip install --upgrade {wanted}")


def _left(name: str) -> str:
    try:
        return (metadata.distribution("ccb").read_text(name) or "").strip()
    except metadata.PackageNotFoundError:
        return ""


def _system() -> str:
    """Return the name of the system if its package manager owns this Python (PEP 668), else ""."""
    if sys.prefix != sys.base_prefix or not Path(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED").exists():
        return ""
    try:
        return platform.freedesktop_os_release()["NAME"]
    except OSError:
        return platform.system()


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


async def newest_release(environ: Mapping[str, str]) -> str:
    """Return the newest release of ccb in the index of pip's configuration. Raise ConfigError or Unreachable."""
    import httpx2  # only --check asks anybody

    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
    text, shown = b"", "the package index"
    try:
        page = httpx2.URL(f"{(_of_pip('index-url', environ) or INDEX).rstrip('/')}/ccb/")
        shown = str(page.copy_with(username=None, password=None))
        say(f"Asking {shown} …")
        trusted = ssl.create_default_context(cafile=_of_pip("cert", environ) or None)
        async with (
            asyncio.timeout(DEADLINE_S),
            httpx2.AsyncClient(verify=trusted, follow_redirects=True, timeout=None) as client,
            client.stream("GET", page, headers={"Accept": accept}) as answer,
        ):
            if answer.status_code != 200:
                raise Unreachable(f"{shown} answers {answer.status_code}", do=_CORRECT)
            async for part in answer.aiter_bytes():
                text += part[: _MAX_PAGE - len(text)]
    except TimeoutError:
        raise Unreachable(f"{shown} did not answer in {DEADLINE_S:g} s", do="Try it again.") from None
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unreachable(f"{shown} cannot be asked", evidence=str(error), do=_CORRECT) from None
    found = _RELEASE.findall(text.decode("utf-8", "replace"))
    if not found:
        raise Unreachable(f"{shown} names no release of ccb", do=_CORRECT)
    return str(max(found, key=_numbers))


def _of_pip(name: str, environ: Mapping[str, str]) -> str:
    """Return an option of pip, "" if it is not set: from its variable, else from its files, the last of which counts.
    Raise ConfigError."""
    given = environ.get(f"PIP_{name.upper().replace('-', '_')}")
    if given is not None:
        return given
    home = Path(environ.get("HOME") or Path.home())
    user = Path(environ.get("XDG_CONFIG_HOME") or home / ".config")
    if sys.platform == "darwin" and (home / "Library/Application Support/pip").is_dir():
        user = home / "Library/Application Support"
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", user / "pip/pip.conf", Path(sys.prefix, "pip.conf")]
    parser = RawConfigParser()
    try:
        parser.read([*files, *filter(None, [environ.get("PIP_CONFIG_FILE")])], encoding="utf-8")
    except (DamagedConfig, UnicodeDecodeError) as error:
        raise ConfigError("the configuration of pip cannot be read", evidence=str(error), do="Correct it.") from None
    return parser.get("install", name, fallback=parser.get("global", name, fallback="")).strip()
