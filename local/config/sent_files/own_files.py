"""The person's own commands and skills on the laptop: text files in `~/.claude` that go to the host with a session."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from ccb.tunnel.wire.kinds.own_files import OwnFile, pack

_MAX_FILES = 300
_MAX_FILE = 128 * 1024
_MAX_ALL = 768 * 1024
_SECRET_NAME = re.compile(r"\..*|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|key|p12|pfx|kdbx)|credentials(\..*)?", re.I)
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bsk-[A-Za-z0-9_-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}"
)


def own_files(home: Path | None = None) -> tuple[str, list[str]]:
    """Return the commands and skills in `~/.claude`, packed for the worker, and sentences about the files that stay
    here: those that are no text, too large, or look like a secret, and what a link inside a directory brings in from
    elsewhere: whoever has written a skill must not choose files of this laptop."""
    top = (home or Path.home()) / ".claude"
    found: list[OwnFile] = []
    left: list[str] = []
    size = 0
    for path in _paths(top):
        read = _read(path, path.relative_to(top), top)
        if isinstance(read, str):
            left.append(f"{path} stays on the laptop: {read}")
        elif len(found) >= _MAX_FILES or size + len(read.text) > _MAX_ALL:
            left.append(f"{path} and what follows stays on the laptop: {_MAX_FILES} files and {_MAX_ALL >> 10} KB go")
            break
        else:
            size += len(read.text)
            found.append(read)
    return pack(found), left


def _paths(top: Path) -> Iterator[Path]:
    """Yield the files of commands, and all files of the directories of skills, in order."""
    for place in ("commands", "skills"):
        skills = place == "skills"
        for here, directories, names in os.walk(top / place, followlinks=True):
            directories[:] = sorted(each for each in directories if not each.startswith(".") and each != "node_modules")
            if len(Path(here).relative_to(top).parts) > 10:
                directories.clear()  # a link may lead back
            if skills and Path(here).parent == top / place and "SKILL.md" not in names:
                directories.clear()
                continue
            if not (skills and Path(here) == top / place):
                yield from (Path(here, name) for name in sorted(names) if skills or name.endswith(".md"))


def _read(path: Path, name: Path, top: Path) -> OwnFile | str:
    """Return a file, or why it does not go to the host."""
    why = why_kept(path, top.joinpath(*name.parts[:2]))
    if why:
        return why
    try:
        if not path.is_file() or path.stat().st_size > _MAX_FILE:
            return f"it has more than {_MAX_FILE >> 10} KB" if path.is_file() else "it is no file"
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return "it is no text" if isinstance(error, UnicodeDecodeError) else str(error.strerror)
    if "\0" in text or _SECRET.search(text):
        return "it is no text" if "\0" in text else "it seems to hold a key"
    return OwnFile(str(name), text, os.access(path, os.X_OK))


def why_kept(path: Path, entry: Path) -> str:
    """Return why the place of a file keeps it on the laptop, "" if it does not. `entry` is what the person has put into
    a directory of `~/.claude`: the file, a directory with it, or a link to one of them."""
    real, own = (Path(os.path.realpath(each)) for each in (path, entry))
    if any(_SECRET_NAME.fullmatch(each.name) for each in (path, real)):
        return "its name is that of a secret"
    return "" if real.is_relative_to(own) else f"a link leads out of {own}"
