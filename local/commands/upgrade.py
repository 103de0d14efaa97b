"""`ccb upgrade`: the command that upgrades this installation; with --check, also what the package index has."""

from __future__ import annotations

import json
import re
import shlex
import ssl
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import ccb
from ccb.tunnel.errors import Unreachable

from ..command_line.arguments import Arguments
from ..command_line.exit_codes import ExitCode
from ..terminal.console import print_line, say

INDEX = "https://pypi.org/simple"
DEADLINE_S = 10.0
_CORRECT = "Set PIP_INDEX_URL to the package index that you use."
_RELEASE = re.compile(r"\bccb-(\d+(?:\.\d+){0,5})(?:-py3-|\.tar\.gz\b)", re.ASCII)
"""A file of a release in a page of the index, in HTML and in JSON; previews are none."""


def run_upgrade(arguments: Arguments, environ: Mapping[str, str]) -> ExitCode:
    left = metadata.distribution("ccb").read_text
    installer = (left("INSTALLER") or "").strip()
    how, command = find_installation(Path(sys.prefix), installer, left("direct_url.json") or "{}")
    print_line(f"ccb {ccb.__version__}, {how} ({sys.prefix})")
    newest = ""
    if arguments.host_command.check:
        newest = newest_release(environ)
        if _numbers(newest) <= _numbers(ccb.__version__):
            print_line(f"The newest version there is {newest}: nothing to upgrade.")
            return ExitCode.OK
    print_line(f"Upgrade{f' to {newest}' if newest else ''} with: {command}")
    return ExitCode.OK


def find_installation(prefix: Path, installer: str, direct_url: str) -> tuple[str, str]:
    """Return how the ccb in the Python environment `prefix` was installed, and the command that upgrades it: from what
    its installer left there, two files of the package (PEP 376, PEP 610), and its own file."""
    origin: Any = json.loads(direct_url)
    url, vcs = origin.get("url", ""), origin.get("vcs_info", {}).get("vcs", "")
    python, from_file = shlex.quote(sys.executable), url and not vcs
    wanted = shlex.quote(f"ccb @ {vcs}+{url}") if vcs else "ccb"
    if origin.get("dir_info", {}).get("editable"):
        return "from its sources", shlex.join(["git", "-C", url.removeprefix("file://"), "pull"])
    if (prefix / "uv-receipt.toml").exists():
        again = "uv tool install --force ccb"  # `uv tool upgrade` takes the same file
        return "installed by uv tool", again if from_file else f"uv tool upgrade {prefix.name}"
    if (prefix / "pipx_metadata.json").exists():
        again = "pipx install --force ccb"
        return "installed by pipx", again if from_file else f"pipx upgrade {prefix.name}"
    if "archive-v0" in prefix.parts:
        return "run by uvx", "uvx ccb@latest"
    if installer == "uv":
        return "installed by uv", f"uv pip install --python {python} --upgrade {wanted}"
    return "installed by pip", f"{python} -m pip install --upgrade {wanted}"


def _numbers(version: str) -> list[int]:
    return [int(each) for each in re.findall(r"\d+", version)]


def newest_release(environ: Mapping[str, str]) -> str:
    """Return the newest release of ccb in the package index. Raise Unreachable."""
    import httpx2  # only --check asks anybody

    accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.2"
    shown = "the package index"
    try:
        page = httpx2.URL(f"{environ.get('PIP_INDEX_URL', INDEX).rstrip('/')}/ccb/")
        shown = str(page.copy_with(username=None, password=None))
        say(f"Asking {shown} …")
        trusted = ssl.create_default_context()
        answer = httpx2.get(page, headers={"Accept": accept}, follow_redirects=True, timeout=DEADLINE_S, verify=trusted)
    except (OSError, httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise Unreachable(f"{shown} cannot be asked", evidence=str(error), do=_CORRECT) from None
    if answer.status_code != 200:
        raise Unreachable(f"{shown} answers {answer.status_code}", do=_CORRECT)
    found = _RELEASE.findall(answer.text)
    if not found:
        raise Unreachable(f"{shown} names no release of ccb", do=_CORRECT)
    return str(max(found, key=_numbers))
