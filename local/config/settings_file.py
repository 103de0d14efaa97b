"""Read and check settings files by sshd's rules for authorized_keys: nobody else may write to them or their place."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.wire.model_facts import ALIASES, may_be_model
from ccb.tunnel.wire.ndjson import MAX_DEPTH, is_too_deep
from ccb.tunnel.wire.settings_text import line_of, load_settings
from ccb.tunnel.wire.tool_traits import no_such_tool, rule_parts, split_rules

_SECRET_NAME = re.compile(r"api_?-?key|auth_?-?token|secret|password", re.IGNORECASE)
_SECRET_VARIABLE = re.compile(r"token$|credentials?$", re.IGNORECASE)
_SECRET_VALUE = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}")
_INDENT = re.compile(r"\n([ \t]+)\S")
MAX_BYTES = 1024 * 1024
_MAX_LINKS = 40


def refuse_secrets(path: str, text: str, data: Mapping[str, Any]) -> None:
    """Raise ConfigError if a value looks like a key: files are backed up and copied, and `env` goes to the host."""
    variables = data.get("env")
    for name in variables if isinstance(variables, dict) else ():
        if _SECRET_NAME.search(name) or _SECRET_VARIABLE.search(name):
            raise ConfigError(
                f"{path}, line {line_of(text, ('env', name))}: env.{name}: settings must not hold a secret",
                do="Remove it: the environment of tools is on the host. Set it there if a tool needs it.",
            )
    for name, value in data.items():
        named = name != "apiKeyHelper" and _SECRET_NAME.search(name)
        if named or _SECRET_VALUE.search(json.dumps(value)):
            raise ConfigError(
                f"{path}, line {line_of(text, (name,))}: {name}: settings must not hold a secret",
                do="Remove it, and give the key to `ccb auth login` or to an environment variable.",
            )


def refuse_broken_rules(path: str, text: str, permissions: Mapping[str, Any]) -> None:
    """Raise ConfigError for a permission rule that no host could read."""
    for keys, given, rules, still_open in _rules(permissions):
        try:
            for rule in rules or [given]:
                rule_parts(rule)
            if still_open:
                raise ValueError(f"permission rule {given!r}: a parenthesis is not closed")
        except ValueError as error:
            do = f"Correct the rule in {path}, or remove it."
            raise ConfigError(f"{path}, line {line_of(text, keys)}: permissions.{keys[1]}: {error}", do=do) from None


def rules_without_tool(path: str, text: str, values: Mapping[str, Any]) -> list[str]:
    """Return a sentence for each permission rule about a tool that there is not."""
    return [
        f"{path}, line {line_of(text, keys)}: permissions.{keys[1]}: {wrong}"
        for keys, _, rules, _ in _rules(values.get("permissions") or {})
        for rule in rules
        if (wrong := no_such_tool(rule_parts(rule)[0]))
    ]


def _rules(permissions: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str, int], str, list[str], int]]:
    """Yield each entry of rules: its keys, its text, the rules in it, and how many parentheses it leaves open."""
    for kind in ("allow", "deny", "ask"):
        for at, given in enumerate(permissions.get(kind, ())):
            yield ("permissions", kind, at), given, *(split_rules(given) if kind != "ask" else ([given], 0))


def refuse_wrong_models(path: str, text: str, known: Mapping[str, Any]) -> None:
    """Raise ConfigError for a model that no provider can have, and that is no short name of the same file."""
    own: Mapping[str, str] = known.get("modelAliases") or {}
    chosen = {(name,): known[name] for name in ("model", "smallModel") if known.get(name) not in (None, *own)}
    meant = {("modelAliases", name): model for name, model in own.items()}
    for keys, model in (*chosen.items(), *meant.items()):
        if not may_be_model(model):
            raise ConfigError(
                f"{path}, line {line_of(text, keys)}: {'.'.join(keys)}: {model!r} is no model",
                do=f"Write {', '.join(ALIASES)}, or a full id as its provider has it.",
            )


def read_settings_text(
    path: Path, environ: Mapping[str, str], most: int = MAX_BYTES, owners: Sequence[int] = ()
) -> str | None:
    """Return the text of the file, or None without a file. `owners`: those who may own it and all directories above,
    instead of root and this user, who decides about what is above the home directory. Raises ConfigError."""
    try:
        raw = _content(path, environ, most, owners)
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not (owners and path.is_symlink()):  # a policy not mounted yet
            return None
        raise ConfigError(f"{path} cannot be read", evidence=str(error.strerror), do=f"Check {path}.") from None
    if len(raw) > most:
        raise ConfigError(f"{path} is larger than {most} bytes", do=f"Check {path}.")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not JSON: it is not UTF-8 text", do=f"Correct {path}.") from None


def parse_settings(path: str, text: str) -> dict[str, Any]:
    """Return the JSON object in the text of the file or option `path`. Raises ConfigError."""
    try:
        data = load_settings(text)
    except json.JSONDecodeError as error:
        do = f"Correct {path}."
        line, column = error.lineno, error.colno
        raise ConfigError(f"{path} is not JSON: {error.msg} (line {line}, column {column})", do=do) from None
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else "a number in it has too many digits"
        raise ConfigError(f"{path} is not JSON that ccb reads: {why}", do=f"Correct {path}.") from None
    if is_too_deep(data):
        raise ConfigError(f"{path} is nested in more than {MAX_DEPTH} levels", do=f"Correct {path}.")
    if not isinstance(data, dict):
        raise ConfigError(f"{path} is not a JSON object", do='Write something like {"model": "…"}.')
    return data


def changed(path: str, text: str, keys: Sequence[str], value: object) -> str:
    """Return the text of the file `path` with another value below `keys`, None for no value. Objects that are missing
    are added; the order of keys and the indentation stay. Raises ConfigError."""
    data = parse_settings(path, text) if text.strip() else {}
    place = data
    for key in keys[:-1]:
        if not isinstance(place.get(key), dict):
            place[key] = {}
        place = place[key]
    if value is not None:
        place[keys[-1]] = value
    elif keys[-1] not in place:
        return text
    else:
        del place[keys[-1]]
    indent = _INDENT.search(text)
    return json.dumps(data, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def write_text(path: Path, text: str) -> None:
    """Replace the settings file. Raises ConfigError."""
    try:
        replace_file(Path(os.path.realpath(path)), text)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written", evidence=str(error.strerror), do=f"Check {path}.") from None


def replace_file(path: Path, content: str | bytes) -> None:
    """Write a file that only this user can read, as a whole or not at all. Raise OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode("utf-8", "replace"))
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise


@contextmanager
def locked(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold a lock against other processes. Raise BlockingIOError if another one has it and `wait` is false."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = path.open("a", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written", evidence=str(error.strerror)) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def _content(path: Path, environ: Mapping[str, str], most: int, owners: Sequence[int]) -> bytes:
    """Return the first bytes of the file. Opening a pipe or a device could wait for ever, or have effects."""
    _require_file(path, path.stat())
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(fd)
        _require_file(path, found)
        above = () if owners else Path(environ.get("HOME") or Path.home()).resolve().parents
        owners = owners or (os.getuid(), 0)
        _require_ours(path, path, found, owners)
        for directory in _looked_up_in(path, above):
            _require_ours(path, directory, directory.lstat(), owners)
        return file.read(most + 1)


def _require_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError(f"{path} cannot be read: it is not a file", do=f"Remove {path}, or make it a file.")


def _require_ours(path: Path, found_at: Path, found: os.stat_result, owners: Sequence[int]) -> None:
    """Raise ConfigError if others can change `found_at`. In a sticky directory they cannot remove or replace ours."""
    way = "" if found_at == path else f" through {found_at}"
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid not in owners:
        whom = "yourself" if owners[0] == os.getuid() else "root"
        raise ConfigError(
            f"{path} can be changed by other users{way}: it belongs to user {found.st_uid}",
            do=f"Make {whom} the owner: `sudo chown {owners[0]} {found_at}`.",
        )
    sticky = stat.S_ISDIR(found.st_mode) and mode & stat.S_ISVTX
    if mode & (stat.S_IWGRP | stat.S_IWOTH) and not sticky:
        who = "other users" if mode & stat.S_IWOTH else f"everybody in group {found.st_gid}"
        do = f"Run `chmod go-w {found_at}`."
        raise ConfigError(f"{path} can be changed by other users{way}: {who} may write to it (mode {mode:04o})", do=do)


def _looked_up_in(path: Path, above: Collection[Path]) -> Iterator[Path]:
    """Yield each directory in which a part of `path` is looked up, also parts of links, without those of `above`."""
    rest = [*path.absolute().parts[:0:-1]]
    here, links = Path("/"), 0
    while rest:
        if here not in above:
            yield here
        name = rest.pop()
        if name == "..":
            here = here.parent
            continue
        if not (here / name).is_symlink():
            here /= name
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(0, "too many links")
        target = (here / name).readlink()
        here = Path("/") if target.is_absolute() else here
        rest += [each for each in target.parts[::-1] if each != "/"]
