"""Slash commands and skills that are written as Markdown files."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import DEFAULT_AGENT, split_rules

from ..settings.front_matter import Value, read_markdown
from ..settings.settings_files import digest_of, read_text

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
        """Return the text of the file below its front matter as it is now, and whether the file is unchanged. Raise
        ValueError if it cannot be read."""
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
        paths=tuple(_listed(fields.get("paths"))) if kind == SKILL else (),
        within=within,
    )


def _text(fields: Mapping[str, Value], name: str) -> str:
    value = fields.get(name, "")
    return value if isinstance(value, str) else f"[{', '.join(value)}]"


def _listed(value: Value | None) -> list[str]:
    listed = value.split(",") if isinstance(value, str) else value or []
    return [each.strip() for each in listed if each.strip()]


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
