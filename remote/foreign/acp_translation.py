"""What an agent says in the Agent Client Protocol, in the words of ccb's public messages, and the other way round.
Only values: nothing here waits, or keeps anything."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ccb.tunnel.wire.control_protocol import AGENT_OPTION, AskedBecause, ToolApproval, ToolPermission
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_number, as_text
from ccb.tunnel.wire.ndjson import dump
from ccb.tunnel.wire.tool_traits import BASH, EDIT, EXIT_PLAN_MODE, MULTI_EDIT, READ, WEB_FETCH, WRITE

from ..agent.turn_state import NO_CHOICE, ProgramChoice, plain_word
from ..permissions.modes import ACCEPT_EDITS, BYPASS, DONT_ASK, PLAN
from ..slash_commands.command_registry import MAX_COMMANDS
from ..system.host import is_under

EDITING, CHANGING = ("edit",), ("edit", "delete", "move", "execute")
"""The kinds of calls that the permission mode acceptEdits allows, and those that plan mode refuses."""
_MAX_TITLE = 1_000  # characters
_MAX_DIFF = 1 << 20  # characters of each side of a change; what is longer is not shown
_MAX_TEXT = 1 << 20
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_ALLOWS, _ALLOWS_ALWAYS, _REJECTS = "allow_once", "allow_always", "reject_once"
_CALL_FIELDS = ("title", "kind", "status", "content", "locations", "name", "rawInput", "rawOutput")
NOBODY_ANSWERS: Json = {"outcome": {"outcome": "cancelled"}}
_SUBJECTS = ("command", "file_path", "pattern", "path", "url", "query")  # what cards and rows show of any call


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


def tool_use(call: Json) -> tuple[str, Json]:
    """Return name and input of the tool that the call is like; of any other, the title or a subject is shown."""
    kind, title, raw = as_text(call.get("kind")), title_of(call), as_dict(call.get("rawInput"))
    place = next((each for each in as_blocks(call.get("locations")) if each.get("path")), {})
    path, line = as_text(place.get("path") or raw.get("file_path") or raw.get("path")), place.get("line")
    changes = diffs_in(call)
    if kind == "execute":
        return BASH.name, {"command": _command(raw, title), "description": title}
    if changes:
        return _edit(changes)
    if kind == "read" and path:
        return READ.name, {"file_path": path, **({"offset": line} if isinstance(line, int) and line else {})}
    if kind == "edit" and path:
        return EDIT.name, {"file_path": path, "old_string": "", "new_string": ""}
    if kind == "fetch" and isinstance(raw.get("url"), str):
        return WEB_FETCH.name, {"url": raw["url"], "prompt": as_text(raw.get("prompt"))}
    if kind == "switch_mode" and isinstance(raw.get("plan"), str):
        return EXIT_PLAN_MODE.name, {"plan": raw["plan"]}
    words = (as_text(call.get("name")), kind.title().replace("_", ""), "Tool")
    name = next(each for each in words if _NAME.fullmatch(each))
    has_subject = any(isinstance(raw.get(each), str) for each in _SUBJECTS)
    return name, raw if has_subject else {"query": title, **raw}


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


def _edit(changes: Sequence[Json]) -> tuple[str, Json]:
    """Return the edit of the first file that is changed."""
    path = changes[0]["path"]
    own = [each for each in changes if each["path"] == path]
    sides = [(as_text(each.get("oldText"))[:_MAX_DIFF], each["newText"][:_MAX_DIFF]) for each in own]
    if len(own) == 1 and own[0].get("oldText") is None:
        return WRITE.name, {"file_path": path, "content": sides[0][1]}
    edits = [{"old_string": old, "new_string": new} for old, new in sides]
    if len(edits) > 1:
        return MULTI_EDIT.name, {"file_path": path, "edits": edits}
    return EDIT.name, {"file_path": path, **edits[0]}


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
    name, tool_input = tool_use(call)
    always = [each for each in options if each.get("kind") == _ALLOWS_ALWAYS and each.get("optionId")]
    suggested = [
        {"type": AGENT_OPTION, "option": as_text(each["optionId"]), "name": as_text(each.get("name"))[:_MAX_TITLE]}
        for each in always
    ]
    title = title_of(call)
    why = AskedBecause(f"{agent} asks: {title}" if title else f"{agent} asks", "other")
    return ToolApproval(name, name, tool_input, tool_use_id, suggested, why, description=title[:200] or None)


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


# What an agent offers.


def commands(listed: object) -> list[tuple[str, str, str]]:
    """Return name, description and hint of each command, of both dialects."""
    made = []
    for each in as_blocks(listed)[:MAX_COMMANDS]:
        name, hint = as_text(each.get("name")).lstrip("/")[:100], as_dict(each.get("input")).get("hint")
        hint = as_text(hint or each.get("argumentHint"))[:200]
        made += [(name, as_text(each.get("description"))[:500], hint)] if name else []
    return made


_USAGE = {
    "input_tokens": "inputTokens",
    "output_tokens": "outputTokens",
    "cache_read_input_tokens": "cachedReadTokens",
    "cache_creation_input_tokens": "cachedWriteTokens",
}
_MODE_NAMES = {  # to Codex, read-only is to ask for each change, and "agent" lets a model answer
    "default": ("default", "ask", "approve", "read-only", "agent", "code", "build", "normal", "auto"),
    ACCEPT_EDITS: ("acceptEdits", "autoEdit", "workspace-write"),
    PLAN: ("plan", "architect", "read-only"),
    BYPASS: ("bypassPermissions", "yolo", "full-access", "agent-full-access"),
    DONT_ASK: ("dontAsk",),
}


def agent_mode(mode: str, offered: ProgramChoice) -> str:
    """Return the mode of the agent that is like a permission mode of ccb, "" for none."""
    values = {plain_word(value): value for value in offered.values}
    return next((values[plain_word(each)] for each in _MODE_NAMES.get(mode, ()) if plain_word(each) in values), "")


def offered(answer: Json, category: str) -> ProgramChoice:
    """Return the choice of `model` or `mode` in the answer to session/new and its like."""
    for option in as_blocks(answer.get("configOptions")):
        if option.get("category") == category or option.get("id") == category:
            listed = as_blocks(option.get("options"))
            flat = [each for group in listed for each in (as_blocks(group.get("options")) or [group])]
            values = {as_text(each.get("value")): as_text(each.get("name")) for each in flat if each.get("value")}
            return ProgramChoice(as_text(option.get("currentValue")), values, as_text(option.get("id")))
    told = as_dict(answer.get(f"{category}s"))
    key = "modelId" if category == "model" else "id"
    listed = as_blocks(told.get("availableModels" if category == "model" else "availableModes"))
    values = {as_text(each.get(key)): as_text(each.get("name")) for each in listed if each.get(key)}
    current = as_text(told.get("currentModelId" if category == "model" else "currentModeId"))
    return ProgramChoice(current, values) if told else NO_CHOICE


def usage_in(answer: Mapping[str, Any]) -> Json:
    """Return what a prompt took, in the names of the Messages API. Gemini CLI has a field of its own."""
    told = as_dict(answer.get("usage"))
    if told:
        return {name: int(as_number(told.get(key))) for name, key in _USAGE.items()}
    counted = as_dict(as_dict(as_dict(answer.get("_meta")).get("quota")).get("token_count"))
    return {name: int(as_number(counted[name])) for name in ("input_tokens", "output_tokens") if name in counted}
