"""What an agent says in the Agent Client Protocol, in the words of ccb's public messages, and the other way round.
Only values: nothing here waits, or keeps anything."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from ccb.tunnel.wire.control_protocol import AGENT_OPTION, AskedBecause, ToolApproval, ToolPermission
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_number, as_text
from ccb.tunnel.wire.ndjson import dump
from ccb.tunnel.wire.todo_list import MAX_TODOS
from ccb.tunnel.wire.tool_traits import BASH, EDIT, EXIT_PLAN_MODE, MULTI_EDIT, READ, WEB_FETCH, WRITE

from ..permissions.modes import ACCEPT_EDITS, BYPASS, DONT_ASK, PLAN
from ..slash_commands.command_registry import MAX_COMMANDS
from ..system.host import is_under

EDITING, CHANGING = ("edit",), ("edit", "delete", "move", "execute")
"""The kinds of calls that the permission mode acceptEdits allows, and those that plan mode refuses."""
_MAX_TITLE = 1_000  # characters
_MAX_DIFF = 1 << 20  # characters of each side of a change; what is longer is not shown
_MAX_TEXT = 1 << 20
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_STATUS = ("pending", "in_progress", "completed")
_ALLOWS, _ALLOWS_ALWAYS, _REJECTS = "allow_once", "allow_always", "reject_once"
_CALL_FIELDS = ("title", "kind", "status", "content", "locations", "name", "rawInput", "rawOutput")
NOBODY_ANSWERS: Json = {"outcome": {"outcome": "cancelled"}}
_SUBJECTS = ("command", "file_path", "pattern", "path", "url", "query")  # what cards and rows show of any call


@dataclass(frozen=True)
class ToolUse:
    """A call as a `tool_use` block has it."""

    name: str
    input: Json


def merged_call(known: Json, update: Mapping[str, Any]) -> Json:
    """Return a call after an update: fields that the update lacks, or has as null, stay."""
    return {**known, **{name: update[name] for name in _CALL_FIELDS if update.get(name) is not None}}


def is_ready(call: Json) -> bool:
    """Return whether enough is known of a call to show it: agents name one before they know its input."""
    if call.get("kind") in EDITING:
        return bool(diffs_in(call)) or has_ended(call)
    known = call.get("rawInput") or call.get("content") or call.get("locations")
    return bool(known) or call.get("status") in ("in_progress", "completed", "failed")


def has_ended(call: Json) -> bool:
    return call.get("status") in ("completed", "failed")


def tool_use(call: Json) -> ToolUse:
    """Return the call as one of the tool that it is like; of any other, the title or a subject is shown."""
    kind, title, raw = as_text(call.get("kind")), title_of(call), as_dict(call.get("rawInput"))
    if kind == "execute":
        return ToolUse(BASH.name, {"command": _command(raw, title), "description": title})
    changes, like = diffs_in(call), _LIKE.get(kind)
    found = _edit(changes) if changes else like(call, raw) if like is not None else None
    if found is not None:
        return found
    words = (as_text(call.get("name")), kind.title().replace("_", ""), "Tool")
    name = next(each for each in words if _NAME.fullmatch(each))
    has_subject = any(isinstance(raw.get(each), str) for each in _SUBJECTS)
    return ToolUse(name, raw if has_subject else {"query": title, **raw})


def _place(call: Json, raw: Json) -> tuple[str, object]:
    place = next((each for each in as_blocks(call.get("locations")) if each.get("path")), {})
    return as_text(place.get("path") or raw.get("file_path") or raw.get("path")), place.get("line")


def _read(call: Json, raw: Json) -> ToolUse | None:
    path, line = _place(call, raw)
    more = {"offset": line} if isinstance(line, int) and line else {}
    return ToolUse(READ.name, {"file_path": path, **more}) if path else None


def _edit_of_file(call: Json, raw: Json) -> ToolUse | None:
    path, _ = _place(call, raw)
    return ToolUse(EDIT.name, {"file_path": path, "old_string": "", "new_string": ""}) if path else None


def _fetch(_: Json, raw: Json) -> ToolUse | None:
    url = raw.get("url")
    return ToolUse(WEB_FETCH.name, {"url": url, "prompt": as_text(raw.get("prompt"))}) if isinstance(url, str) else None


def _plan_ready(_: Json, raw: Json) -> ToolUse | None:
    return ToolUse(EXIT_PLAN_MODE.name, {"plan": raw["plan"]}) if isinstance(raw.get("plan"), str) else None


_LIKE = {"read": _read, "edit": _edit_of_file, "fetch": _fetch, "switch_mode": _plan_ready}


def title_of(call: Json) -> str:
    return " ".join(as_text(call.get("title")).split()).strip("`")[:_MAX_TITLE]


def _command(raw: Json, title: str) -> str:
    command = raw.get("command") or raw.get("cmd")
    if isinstance(command, list):
        return " ".join(shlex.quote(str(each)) for each in command)
    return command if isinstance(command, str) and command else title


def diffs_in(call: Json) -> list[Json]:
    found = [each for each in as_blocks(call.get("content")) if each.get("type") == "diff"]
    return [each for each in found if isinstance(each.get("path"), str) and isinstance(each.get("newText"), str)]


def _edit(changes: Sequence[Json]) -> ToolUse:
    """Return the edit of the first file that is changed."""
    path = changes[0]["path"]
    own = [each for each in changes if each["path"] == path]
    sides = [(as_text(each.get("oldText"))[:_MAX_DIFF], each["newText"][:_MAX_DIFF]) for each in own]
    if len(own) == 1 and own[0].get("oldText") is None:
        return ToolUse(WRITE.name, {"file_path": path, "content": sides[0][1]})
    edits = [{"old_string": old, "new_string": new} for old, new in sides]
    if len(edits) > 1:
        return ToolUse(MULTI_EDIT.name, {"file_path": path, "edits": edits})
    return ToolUse(EDIT.name, {"file_path": path, **edits[0]})


def result_content(call: Json, printed: str, exit_code: object) -> str | list[Json]:
    """Return what a call brought: what it `printed` on a terminal, and its texts and pictures."""
    blocks = [as_dict(each.get("content")) for each in as_blocks(call.get("content")) if each.get("type") == "content"]
    pictures = [_picture(each) for each in blocks if each.get("type") == "image" and isinstance(each.get("data"), str)]
    paths = list(dict.fromkeys(each["path"] for each in diffs_in(call)))
    texts = [
        f"Exit code {exit_code}" if isinstance(exit_code, int) and exit_code else "",
        printed.rstrip("\n") if printed.strip() else "",
        *map(text_in, blocks),
        *(f"Also changed: {path}" for path in paths[1:]),
    ]
    text = "\n".join(filter(None, texts))[:_MAX_TEXT] or _raw_output(call)
    return [*([{"type": "text", "text": text}] if text else []), *pictures] if pictures else text


def _raw_output(call: Json) -> str:
    raw = call.get("rawOutput")
    text = raw if isinstance(raw, str) else dump({"": raw})[4:-1] if raw is not None else ""
    return text[:_MAX_TEXT]


def _picture(block: Json) -> Json:
    source = {"type": "base64", "media_type": as_text(block.get("mimeType")), "data": block["data"]}
    return {"type": "image", "source": source}


def text_in(block: Mapping[str, Any]) -> str:
    """Return the text of a content block, or what stands for it."""
    kind = block.get("type")
    if kind == "text":
        return as_text(block.get("text"))
    if kind == "resource":
        inner = as_dict(block.get("resource"))
        return as_text(inner.get("text") or inner.get("uri"))
    return as_text(block.get("uri")) if kind == "resource_link" else ""


def todos(entries: object) -> list[Json]:
    """Return the todo list of a plan."""
    listed = [each for each in as_blocks(entries)[:MAX_TODOS] if as_text(each.get("content")).strip()]
    made = []
    for each in listed:
        status = each.get("status")
        subject = as_text(each["content"])[:_MAX_TITLE]
        made.append({"content": subject, "status": status if status in _STATUS else "pending", "activeForm": subject})
    return made


# Permissions.


def unasked_answer(mode: str, call: Json, roots: Sequence[str]) -> bool | None:
    """Return whether a permission mode of ccb allows or refuses a call, None if the person is to be asked."""
    kind = call.get("kind")
    if mode == BYPASS:
        return True
    if mode == DONT_ASK or (mode == PLAN and kind in CHANGING):
        return False
    paths = [as_text(each.get("path")) for each in [*as_blocks(call.get("locations")), *diffs_in(call)]]
    inside = bool(paths) and all(_is_inside(path, roots) for path in paths)
    return True if mode == ACCEPT_EDITS and kind in EDITING and inside else None


def _is_inside(path: str, roots: Sequence[str]) -> bool:
    return os.path.isabs(path) and any(is_under(os.path.realpath(path), os.path.realpath(root)) for root in roots)


def approval(agent: str, tool_use_id: str, call: Json, options: Sequence[Json]) -> ToolApproval:
    use = tool_use(call)
    always = [each for each in options if each.get("kind") == _ALLOWS_ALWAYS and each.get("optionId")]
    suggested = [
        {"type": AGENT_OPTION, "option": as_text(each["optionId"]), "name": as_text(each.get("name"))[:_MAX_TITLE]}
        for each in always
    ]
    title = title_of(call)
    why = AskedBecause(f"{agent} asks: {title}" if title else f"{agent} asks", "other")
    return ToolApproval(use.name, use.name, use.input, tool_use_id, suggested, why, description=title[:200] or None)


def chosen_option(options: Sequence[Json], answer: ToolPermission) -> Json:
    """Return the outcome of a question for the agent."""
    offered = {as_text(each.get("optionId")): as_text(each.get("kind")) for each in options if each.get("optionId")}
    if answer.allow:
        granted = [as_text(each.get("option")) for each in answer.updates if each.get("type") == AGENT_OPTION]
        kept = [each for each in granted if offered.get(each) == _ALLOWS_ALWAYS]
        chosen = kept or [each for each, kind in offered.items() if kind == _ALLOWS]
    else:
        chosen = [each for each, kind in offered.items() if kind == _REJECTS]
    return {"outcome": "selected", "optionId": chosen[0]} if chosen else {"outcome": "cancelled"}


# Prompts.


def prompt_blocks(blocks: Sequence[Json], takes: Mapping[str, Any]) -> tuple[list[Json], list[str]]:
    """Return the blocks of a prompt for an agent that takes these kinds (`promptCapabilities`), and what it cannot be
    given, in words."""
    sent: list[Json] = []
    left: list[str] = []
    for block in blocks:
        kind, source = block.get("type"), as_dict(block.get("source"))
        if kind == "text":
            sent.append({"type": "text", "text": as_text(block.get("text"))})
        elif kind == "image" and source.get("type") == "base64" and takes.get("image"):
            sent.append({"type": "image", "mimeType": source.get("media_type"), "data": source.get("data")})
        elif kind == "document" and source.get("type") == "base64" and takes.get("embeddedContext"):
            name = as_text(block.get("title")) or "document"
            resource = {"uri": f"file:///{name}", "mimeType": source.get("media_type"), "blob": source.get("data")}
            sent.append({"type": "resource", "resource": resource})
        else:
            left.append("pictures" if kind == "image" else "documents")
    return sent, list(dict.fromkeys(left))


_MENTION = re.compile(r'(?:^|(?<=[\s(\[]))@(?:"([^"\n]+)"|([^\s"]+))')
_MAX_LINKS = 20


def links(blocks: Sequence[Json], cwd: str) -> list[Json]:
    """Return links to the files of the host that a prompt names with `@`."""
    text = "\n".join(as_text(block.get("text")) for block in blocks if block.get("type") == "text")
    named = (quoted or plain.rstrip(".,;:!?)]'") for quoted, plain in _MENTION.findall(text))
    paths = (os.path.normpath(os.path.join(cwd, os.path.expanduser(each))) for each in named)
    found = [path for path in dict.fromkeys(paths) if os.path.exists(path)]
    as_uri = [(os.path.basename(path), PurePosixPath(path).as_uri()) for path in found[:_MAX_LINKS]]
    return [{"type": "resource_link", "name": name, "uri": uri} for name, uri in as_uri]


# What an agent offers.


def commands(listed: object) -> list[tuple[str, str, str]]:
    """Return name, description and hint of each command."""
    found = [each for each in as_blocks(listed)[:MAX_COMMANDS] if as_text(each.get("name")).strip("/")]
    return [
        (
            as_text(each["name"]).lstrip("/")[:100],
            as_text(each.get("description"))[:500],
            as_text(as_dict(each.get("input")).get("hint"))[:200],
        )
        for each in found
    ]


@dataclass(frozen=True)
class AgentChoice:
    """What an agent lets somebody choose from: models, modes. `option` is the id of the config option, "" where the
    agent has a method of its own for it. `values` are names by the value that is sent, perhaps among others."""

    current: str
    values: Mapping[str, str]
    option: str = ""
    takes_any: bool = False

    def find(self, wanted: str) -> str:
        """Return the value that a word of the person or of ccb means, "" for none."""
        plain = _plain(wanted)
        for matches in (str.__eq__, str.startswith, str.__contains__):
            for value, name in self.values.items():
                if plain and any(matches(_plain(each), plain) for each in (value, name)):
                    return value
        return wanted if self.takes_any else ""


NO_CHOICE = AgentChoice("", {})
_MODE_TEXT = "[MODE_UPDATE] "
_USAGE = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_input_tokens": "cachedReadTokens",
    "cache_creation_input_tokens": "cachedWriteTokens",
}
_MODE_NAMES = {
    "default": ("default", "ask", "agent", "code", "build", "normal", "auto"),
    ACCEPT_EDITS: ("acceptEdits", "autoEdit"),
    PLAN: ("plan", "architect", "read-only"),
    BYPASS: ("bypassPermissions", "yolo", "full-access"),
    DONT_ASK: ("dontAsk",),
}


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", text.lower())


def agent_mode(mode: str, offered: AgentChoice) -> str:
    """Return the mode of the agent that is like a permission mode of ccb, "" for none."""
    values = {_plain(value): value for value in offered.values}
    return next((values[_plain(each)] for each in _MODE_NAMES.get(mode, ()) if _plain(each) in values), "")


def offered(answer: Json, category: str) -> AgentChoice:
    """Return the choice of `model` or `mode` in the answer to session/new and its like."""
    for option in as_blocks(answer.get("configOptions")):
        if option.get("category") == category or option.get("id") == category:
            listed = as_blocks(option.get("options"))
            flat = [each for group in listed for each in (as_blocks(group.get("options")) or [group])]
            values = {as_text(each.get("value")): as_text(each.get("name")) for each in flat if each.get("value")}
            return AgentChoice(as_text(option.get("currentValue")), values, as_text(option.get("id")))
    told = as_dict(answer.get(f"{category}s"))
    key = "modelId" if category == "model" else "id"
    listed = as_blocks(told.get("availableModels" if category == "model" else "availableModes"))
    values = {as_text(each.get(key)): as_text(each.get("name")) for each in listed if each.get(key)}
    current = as_text(told.get("currentModelId" if category == "model" else "currentModeId"))
    return AgentChoice(current, values) if told else NO_CHOICE


def told_mode(update: Mapping[str, Any]) -> str:
    """Return the mode that an update tells, "" for another update. Gemini CLI tells it in a text of its own."""
    if update.get("sessionUpdate") == "current_mode_update":
        return as_text(update.get("currentModeId"))
    if update.get("sessionUpdate") != "agent_message_chunk":
        return ""
    text = text_in(as_dict(update.get("content")))
    return text[len(_MODE_TEXT) :].strip() if text.startswith(_MODE_TEXT) else ""


def usage_in(answer: Mapping[str, Any]) -> Json:
    """Return what a prompt took, in the names of the Messages API. Gemini CLI has a field of its own."""
    told = as_dict(answer.get("usage"))
    if told:
        return {name: int(as_number(told.get(key))) for name, key in _USAGE.items()}
    counted = as_dict(as_dict(as_dict(answer.get("_meta")).get("quota")).get("token_count"))
    return {name: int(as_number(counted[name])) for name in ("input_tokens", "output_tokens") if name in counted}
