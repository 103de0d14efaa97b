"""Which ssh options apply to a host, and where they come from: for `ccb doctor`."""

from __future__ import annotations

import asyncio
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from .ssh_config import SshTarget, config_command

_DEADLINE_S = 10.0
_READ = re.compile(r"debug1: Reading configuration data (.+)$")
_APPLIED = re.compile(r"debug1: (.+) line (\d+): Applying options for ")
_MOST_LINES = 20_000


@dataclass(frozen=True)
class AppliedOption:
    """An option that is not ssh's default. `where` is `file:line`, `command line`, or "" when it was not found."""

    name: str
    value: str
    where: str


async def applied_options(target: SshTarget) -> list[AppliedOption]:
    """What the configuration and the command line change for `target`; nothing without OpenSSH, or when it refuses."""
    ssh = shutil.which("ssh")
    if ssh is None:
        return []
    (_, given, said), (_, default, _) = await asyncio.gather(
        _run([*config_command(ssh, target), "-v", "--", target.host]),
        _run([ssh, "-G", "-F", "/dev/null", "-v", "--", target.host]),
    )
    defaults = set(default.splitlines())
    files, blocks = await asyncio.to_thread(_lines_of, said)
    found = []
    for line in given.splitlines():
        name, _, value = line.partition(" ")
        if line not in defaults and name != "host":
            found.append(AppliedOption(name, value, _origin(name, value, target, files, blocks)))
    return found


async def _run(argv: list[str]) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        *argv, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), _DEADLINE_S)
    except TimeoutError:
        process.kill()
        await process.wait()
        return -1, "", ""
    return process.returncode or 0, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _lines_of(said: str) -> tuple[dict[str, list[str]], set[tuple[str, int]]]:
    """The lines of every file that ssh has read, in that order, and the `Host` lines that applied."""
    files: dict[str, list[str]] = {}
    blocks: set[tuple[str, int]] = set()
    for line in map(str.rstrip, said.splitlines()):
        if read := _READ.match(line):
            try:
                files[read[1]] = Path(read[1]).read_text(encoding="utf-8", errors="replace").splitlines()[:_MOST_LINES]
            except OSError:
                files[read[1]] = []
        elif applied := _APPLIED.match(line):
            blocks.add((applied[1], int(applied[2])))
    return files, blocks


def _origin(name: str, value: str, target: SshTarget, files: dict[str, list[str]], blocks: set[tuple[str, int]]) -> str:
    for option in target.options:
        if option.replace("=", " ", 1).split()[:1] and option.replace("=", " ", 1).split()[0].lower() == name:
            return "command line"
    flags = {"port": target.port is not None, "user": target.user is not None, "identityfile": target.identities}
    if flags.get(name) and (name != "identityfile" or value in target.identities):
        return "command line"
    for path, lines in files.items():
        applies = True
        for number, line in enumerate(lines, 1):
            keyword, _, rest = line.strip().replace("=", " ", 1).partition(" ")
            keyword = keyword.lower()
            if keyword == "host":
                applies = (path, number) in blocks
            elif keyword == "match":
                applies = True  # ssh does not say which ones did
            elif applies and keyword == name and _same(rest, value):
                return f"{path}:{number}"
    return ""


def _same(written: str, resolved: str) -> bool:
    """Whether a value in a file may be the resolved one: not for sure, as `ssh -G` expands and rewrites some."""
    text = written.strip().strip('"').lower()
    return (
        text == resolved.lower()
        or "%" in text
        or "~" in text
        or text.split() == resolved.lower().split()
        or (resolved.lower() in ("true", "false", "yes", "no") and text in ("yes", "no", "true", "false"))
        or text.split()[:1] == resolved.lower().split()[:1]
        or bool(re.fullmatch(r"\d+[smhdw]", text))
    )
