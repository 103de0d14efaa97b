"""Commands and skills in Markdown files. What arguments bring in is never read as a command."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shlex
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.session_options import SessionOptions, unpack
from ccb.tunnel.wire.tool_traits import DEFAULT_AGENT, split_rules

from ..settings.front_matter import Value, names_in, read_markdown
from ..settings.worker_settings import PROJECT, USER, WorkerSettings, digest_of, markdown_below, read_text, skills_in

COMMAND, SKILL = "command", "skill"
_NAME = re.compile(r"[\w:.@-]{1,100}")
_MAX_DESCRIPTION = 1000  # characters


@dataclass(frozen=True)
class CommandFile:
    """One file. `kind` is `command` or `skill`, `source` is `user` or `project`. `digest` identifies the text that was
    read when the project was trusted: only that text may run commands or bring permission rules. `for_person` and
    `for_model` say who may call it. `agent` is the sub-agent that works by it ("": the agent that calls it). It is
    offered to the model when that has worked with a file that one of `paths` covers, if there are any."""

    name: str
    kind: str
    path: str
    source: str
    digest: str
    description: str = ""
    hint: str = ""
    allowed: tuple[str, ...] = ()
    model: str | None = None
    for_person: bool = True
    for_model: bool = False
    agent: str = ""
    paths: tuple[str, ...] = ()
    within: str = ""

    @property
    def directory(self) -> str:
        return os.path.dirname(self.path)

    def body(self) -> tuple[str, bool]:
        """Return the text below the front matter now, and whether the file is unchanged. Raise ValueError."""
        text = read_text(self.path, self.within)
        if text is None:
            raise ValueError(f"{self.path} is gone")
        return read_markdown(text).body.strip(), digest_of(text) == self.digest


def read_definition(name: str, kind: str, path: str, source: str, within: str = "") -> CommandFile:
    """Read a file. No link may lead out of the directory `within`. Raise ValueError if it cannot be used."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:100]!r} cannot be the name of a command")
    text = read_text(path, within)
    if text is None:
        raise ValueError("it is gone")
    parsed = read_markdown(text)
    fields = parsed.fields or {}
    if kind == SKILL and not _text(fields, "description"):
        raise ValueError("a skill needs a description in its front matter")
    first = next((line.strip("# ").strip() for line in parsed.body.split("\n") if line.strip()), "")
    more = _text(fields, "when_to_use")
    described = _text(fields, "description") or first[:100]
    model = _text(fields, "model")
    return CommandFile(
        name=name,
        kind=kind,
        path=path,
        source=source,
        digest=digest_of(text),
        description=f"{described} {more}".strip()[:_MAX_DESCRIPTION],
        hint=_text(fields, "argument-hint")[:200],
        allowed=tuple(_rules(fields.get("allowed-tools"))),
        model=model if model not in ("", "inherit") else None,
        for_person=_text(fields, "user-invocable").lower() != "false",
        for_model=kind == SKILL and _text(fields, "disable-model-invocation").lower() != "true",
        agent=(_text(fields, "agent") or DEFAULT_AGENT) if _text(fields, "context") == "fork" else "",
        paths=names_in(fields.get("paths")) if kind == SKILL else (),
        within=within,
    )


def _text(fields: Mapping[str, Value], name: str) -> str:
    value = fields.get(name, "")
    return value if isinstance(value, str) else f"[{', '.join(value)}]"


def _rules(value: Value | None) -> list[str]:
    if isinstance(value, list):
        return value
    return split_rules(value)[0] if value else []


def places(file: CommandFile, session_id: str) -> dict[str, str]:
    """Return the values of the `${NAME}` places of a file."""
    return {"CLAUDE_SKILL_DIR": file.directory, "CLAUDE_SESSION_ID": session_id}


def skill_text(file: CommandFile, text: str) -> str:
    """Return what the model reads of a command or a skill. It can read the files beside a skill."""
    if file.kind != SKILL:
        return text
    return f"Base directory for this skill: {os.path.abspath(file.directory)}\n\n{text}"


def task_of(file: CommandFile, text: str) -> dict[str, str]:
    """Return the input of the call that starts the agent of a file. `text` is its task."""
    task = {"description": f"Skill {file.name}", "prompt": text, "subagent_type": file.agent}
    return {**task, "model": file.model} if file.model else task


_MAX_FILES = 500


def discover(settings: WorkerSettings, homes: Sequence[str], report: Callable[[str], None]) -> list[CommandFile]:
    """Return commands and skills. Of one name the nearest of the project counts; those below `homes` come last."""
    places = [(each.path, USER, f"{each.name}:") for each in settings.plugins]
    if settings.trusted and PROJECT in settings.sources:
        places += [(os.path.join(each, ".claude"), PROJECT, "") for each in settings.trusted_directories]
    if USER in settings.sources:
        places += [(os.path.join(each, ".claude"), USER, "") for each in homes]
    found: dict[str, CommandFile] = {}
    seen: set[str] = set()
    for top, source, prefix in places:
        for kind, name, path in _listed_below(top):
            name = prefix + name
            real = os.path.realpath(path)
            if real in seen or name in found:
                continue
            seen.add(real)
            if len(found) >= _MAX_FILES:
                report(f"{path}: more than {_MAX_FILES} commands and skills; the others do not count")
                return list(found.values())
            within = settings.project_top if source == PROJECT else ""
            try:
                found[name] = read_definition(name, kind, path, source, within)
            except ValueError as error:
                report(f"{path}: {error}")
    return list(found.values())


def _listed_below(top: str) -> Iterator[tuple[str, str, str]]:
    """Yield the kind, the name and the path of each file below a `.claude` directory."""
    commands = os.path.join(top, "commands")
    for path in markdown_below(commands):
        yield COMMAND, os.path.relpath(path, commands)[: -len(".md")].replace(os.sep, ":"), path
    for name, path in skills_in(os.path.join(top, "skills")):
        yield SKILL, name, path


_SHELL = re.compile(r"(?:(?<=\s)|^)!`([^`\n]+)`", re.MULTILINE)
_PLACE = re.compile(r"\$(?:ARGUMENTS\[(\d{1,2})\]|(ARGUMENTS)\b|(\d{1,2})\b|\{(\w+)\})")
_FILE = re.compile(r"(?:(?<=\s)|(?<=\()|^)@([^\s`)]+)", re.MULTILINE)
_EXPANSION_MAX_FILES = 20


async def expand(
    text: str, arguments: str, names: Mapping[str, str], shell: Callable[[str], Awaitable[str]] | None
) -> str:
    """Return `text` with its arguments, and the output of each !`command` in its place. Without `shell` these stay as
    they are. `names` are the values of `${NAME}`. Arguments without a place are added at the end."""
    pieces = _SHELL.split(text) if shell is not None else [text]  # text and commands take turns
    pieces = [_filled(piece, arguments, names) for piece in pieces]
    for at in range(1, len(pieces), 2):
        assert shell is not None
        pieces[at] = (await shell(pieces[at])).rstrip("\n")
    return "".join(pieces) + _rest(text, arguments)


def filled(text: str, arguments: str, names: Mapping[str, str]) -> str:
    """Return `text` with its arguments. Its commands stay as they are."""
    return _filled(text, arguments, names) + _rest(text, arguments)


def _rest(text: str, arguments: str) -> str:
    placed = not arguments or any(found[4] is None for found in _PLACE.finditer(text))
    return "" if placed else f"\n\nARGUMENTS: {arguments}"


def named_files(text: str) -> list[str]:
    """Return the paths that a text names as `@path`, each once."""
    found = (each[1].rstrip(".,;:") for each in _FILE.finditer(text))
    return list(dict.fromkeys(path for path in found if path))[:_EXPANSION_MAX_FILES]


def _filled(text: str, arguments: str, names: Mapping[str, str]) -> str:
    try:
        words = shlex.split(arguments)
    except ValueError:  # a quote that is not closed
        words = arguments.split()

    def value(found: re.Match[str]) -> str:
        index, whole, number, name = found.groups()
        if whole:
            return arguments
        if name:
            return names.get(name, found[0])
        place = int(index) if index else int(number) - 1
        return words[place] if 0 <= place < len(words) else "" if place >= 0 else found[0]

    return _PLACE.sub(value, text)


log = logging.getLogger(__name__)

_WRITTEN = re.compile(r"own/[0-9a-f]{16}")


def written(options: SessionOptions, directory: str) -> SessionOptions:
    """Return options whose `own_files` name the directory with the files, below the session's `directory`. Without one
    ("") there are no own files."""
    packed = options.own_files
    if not packed or (directory and _WRITTEN.fullmatch(packed)):
        return options
    name = f"own/{hashlib.sha256(packed.encode()).hexdigest()[:16]}"
    try:
        if not directory:
            raise OSError("this session is in memory only")
        _write(packed, os.path.join(directory, name))
    except (OSError, ValueError) as error:
        log.warning("the person's own commands and skills are not there: %s", error)
        name = ""
    return replace(options, own_files=name)


def _write(packed: str, top: str) -> None:
    if os.path.isdir(top):
        return
    new = f"{top}.{os.getpid()}.new"
    import shutil  # takes 4 ms, and few sessions need it

    shutil.rmtree(new, ignore_errors=True)
    for each in unpack(packed):
        path = os.path.join(new, ".claude", each.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 | each.executable * 0o100), "w") as file:
            file.write(each.text)
    os.rename(new, top)
