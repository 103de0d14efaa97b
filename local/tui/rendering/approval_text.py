"""What a card shows of the call that is approved, exactly."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import server_name
from ccb.tunnel.wire.messages import ControlRequest
from ccb.tunnel.wire.tool_traits import BASH, BUILT_IN, View, traits_of

from .card_rows import GOES_ON, CardLine, RowStyle, exact_lines, own_words
from .diffs import content_lines, diff_card_lines, is_patch, patch_lines, replacement_lines
from .markdown import MAX_MARKDOWN
from .tool_output import counted
from .untrusted_text import escaped, escaped_name, hidden_count, warnings


class EditPreview(BaseModel):
    """`file_change` of a `can_use_tool` request. `path` is the real path if it is another than that of the call.
    Without `complete`, `patch` holds the first places; without `decoded`, some bytes are not UTF-8."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    path: str = ""
    created: bool
    lines: int
    added: int
    removed: int
    patch: list[Any]
    complete: bool
    decoded: bool


MODEL_SAYS = "The model says"
IF_ALLOWED = "If you allow it, it runs "
WHOLE_INPUT = "input"
MAX_LINES = 20_000
MAX_CHARS = 1_000_000  # the most lines and characters of a call that can be allowed on a card
_WITH_THE_PLAN = "With the plan you allow these commands, for this session:"
_MAX_UNREADABLE = 100_000  # characters of a longer call that are shown
_MAX_WARNINGS = 4
_MAX_REASON = 500
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,23}")


def subject_lines(asked: ControlRequest, *, rendered: bool = False) -> list[CardLine]:
    """Return what the call would do. Different calls never give the same lines, but for a plan that is `rendered`."""
    values = dict(asked.input)
    lines = [] if asked.tool_name in BUILT_IN else _table({"tool": asked.tool_name})
    traits = traits_of(asked.tool_name)
    if traits.view is View.PLAN and isinstance(values.get("plan"), str):
        return [*doubts(*_texts(asked.input)), *_plan(values, rendered=rendered)]
    if traits.view.is_diff and traits.path is not None and _is_change(asked.tool_name, values, traits.path.key):
        path = values.pop(traits.path.key)
        lines += _table({"file": path}, names=True)
        lines += _change(asked.tool_name, values, asked.request.get("file_change"))
        return [*doubts(asked.tool_name, path, *_texts(values)), *lines, *_table(_others(asked.tool_name, values))]
    says: list[CardLine] = []
    if traits.view is View.COMMAND and isinstance(values.get("command"), str):
        lines += _command(values.pop("command"))
        if isinstance(values.get("description"), str):
            says = _table({MODEL_SAYS: values.pop("description")}, RowStyle.MODEL)
    return [*doubts(asked.tool_name, *_texts(asked.input)), *lines, *_table(values), *says]


def _plan(values: dict[str, Any], *, rendered: bool) -> list[CardLine]:
    plan = values.pop("plan")
    if isinstance(values.get("planFilePath"), str):
        del values["planFilePath"]  # the worker says where it keeps the plan; the answer decides nothing about it
    commands = commands_of_plan(values)
    allowed: list[CardLine] = []
    if commands:
        del values["allowedPrompts"]
        allowed = [own_words(_WITH_THE_PLAN), *(line for each in commands for line in _command(each))]
    shown = exact_lines(escaped(plan))
    if rendered and len(plan) <= MAX_MARKDOWN:
        shown = [CardLine("│ ", escaped(plan), RowStyle.MARKDOWN, "│ ")]
    return [*shown, *_table(values, names=True), *allowed]


def path_outside(asked: ControlRequest) -> str:
    """Return the path for which the worker asks because it is outside of the session's directories, "" for none."""
    return asked.text("blocked_path") if asked.text("decision_reason_type") == "workingDir" else ""


def circumstances(asked: ControlRequest) -> list[tuple[str, str]]:
    """Return which sub-agent asks, why the worker asks, and in which cage a command would run, as names and texts. A
    reason that only repeats what the card shows is left out."""
    reason, agent = asked.text("decision_reason"), asked.text("agent")
    said = [("Sub-agent: ", _shortened(agent))] if agent else []
    name, traits = asked.tool_name, traits_of(asked.tool_name)
    path = asked.input.get(traits.path.key) if traits.path is not None else None
    unruled = (f"No rule allows {name}.", f"No rule allows `{asked.input.get('command')}`.")
    shown = (*unruled, f"{name} changes {path}.", f"{path_outside(asked)} is outside the working directories.")
    if reason and reason not in shown:
        said.append(("Asked because: ", _shortened(reason)))
    if traits.view is View.COMMAND:
        said.append(_cage_line(asked.text("sandbox")))
    return said


def _cage_line(cage: str) -> tuple[str, str]:
    if cage in ("", "no cage"):
        return "", f"{IF_ALLOWED}without a sandbox."
    kind, _, network = cage.partition(" cage")
    if kind in ("read-only", "workspace") and network in ("", " with network"):
        return "", f"{IF_ALLOWED}in the {cage}."
    return "Sandbox: ", _shortened(cage)


def _shortened(text: str) -> str:
    name = escaped_name(text)
    return name if len(name) <= _MAX_REASON else name[: _MAX_REASON - 1] + "…"


def place_of_call(asked: ControlRequest, place: str, laptop_servers: Collection[str]) -> str:
    """Return where a call would run: on the host `place`, or on this laptop if one of `laptop_servers` does it."""
    named = asked.input.get("server") if asked.tool_name in BUILT_IN else None  # ReadMcpResource
    if any(named == each or asked.tool_name.startswith(f"mcp__{server_name(each)}__") for each in laptop_servers):
        return f"this laptop, for {place}"
    return place


def commands_of_plan(values: Mapping[str, Any]) -> list[str]:
    """Return the commands that run without a question once a plan is approved; none of an unknown form."""
    wanted = values.get("allowedPrompts")
    if not isinstance(wanted, list):
        return []
    commands = [each.get("prompt") for each in wanted if isinstance(each, dict)]
    said = [{"tool": BASH.name, "prompt": command} for command in commands]
    return [str(each) for each in commands] if wanted == said and all(isinstance(c, str) for c in commands) else []


def doubts(*texts: str) -> list[CardLine]:
    """Return warnings about characters that hide, reorder or imitate others."""
    lines = []
    hidden, right_to_left = map(sum, zip(*(hidden_count(text) for text in texts), strict=True))
    if hidden:
        lines.append(f"{counted(hidden, 'hidden character')}, shown as ⟨…⟩")
    if right_to_left:
        letters = counted(right_to_left, "right-to-left letter")
        lines.append(f"{letters}, shown as ⟨…⟩: a terminal may reorder them")
    found = list(dict.fromkeys(warning for text in texts for warning in warnings(text)))
    lines += found[:_MAX_WARNINGS]
    if len(found) > _MAX_WARNINGS:
        lines.append(f"and {len(found) - _MAX_WARNINGS} more words like these")
    return [CardLine("! ", line, RowStyle.WARNING, "  ") for line in lines]


def _command(command: str) -> list[CardLine]:
    return [
        CardLine("> " if number else "$ ", line, RowStyle.EXACT, f"{GOES_ON} ")
        for number, line in enumerate(escaped(command).split("\n"))
    ]


def _table(values: Mapping[str, Any], voice: RowStyle = RowStyle.EXACT, *, names: bool = False) -> list[CardLine]:
    """Return lines for each value: its key, then `│` for text and `=` for JSON. `names`: each value is one line."""
    ours = voice is RowStyle.MODEL  # then the key is ccb's own
    if not ours and (WHOLE_INPUT in values or not all(map(_PLAIN_KEY.fullmatch, values))):
        values = {WHOLE_INPUT: [dict(values)]}
    width = max(map(len, values), default=0)
    lines = []
    for key, value in values.items():
        mark = "│" if isinstance(value, str) else "="
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        gutter, goes_on = f"{key:>{width}} {mark} ", f"{'':{width}} {GOES_ON} "
        for picture in [escaped_name(text)] if names else escaped(text).split("\n"):
            lines.append(CardLine(gutter, picture, voice, goes_on))
            gutter = f"{'':{width}} {mark} "
    return lines


def _texts(values: Any) -> list[str]:
    if isinstance(values, str):
        return [values]
    if isinstance(values, dict):
        return [text for key, value in values.items() for text in (key, *_texts(value))]
    if isinstance(values, list):
        return [text for value in values for text in _texts(value)]
    return []


# Changes of files.

_EDIT_KEYS = frozenset(("old_string", "new_string", "replace_all"))


def _is_change(name: str, values: Json, path_key: str) -> bool:
    """Return whether all that the call says about the change has the types of its tool."""
    if traits_of(name).view is View.NEW_CONTENT:
        return isinstance(values.get(path_key), str) and isinstance(values.get("content"), str)
    edits = _edits(name, values)
    return isinstance(values.get(path_key), str) and bool(edits) and all(map(_is_edit, edits))


def _edits(name: str, values: Json) -> list[Any]:
    if traits_of(name).view is View.REPLACEMENTS:
        edits = values.get("edits")
        return edits if isinstance(edits, list) else []
    return [{key: value for key, value in values.items() if key in _EDIT_KEYS}]


def _is_edit(edit: Any) -> bool:
    return (
        isinstance(edit, dict)
        and edit.keys() <= _EDIT_KEYS
        and isinstance(edit.get("old_string"), str)
        and isinstance(edit.get("new_string"), str)
        and isinstance(edit.get("replace_all", False), bool)
    )


def _others(name: str, values: Json) -> Json:
    shown = {View.NEW_CONTENT: {"content"}, View.REPLACEMENTS: {"edits"}}.get(traits_of(name).view, _EDIT_KEYS)
    return {key: value for key, value in values.items() if key not in shown}


def _change(name: str, values: Json, compared: object) -> list[CardLine]:
    try:
        change = EditPreview.model_validate(compared)
    except ValidationError:
        change = None
    if change is None or not is_patch(change.patch):
        why = "The host did not compare it with the file"
        if compared is not None:
            why = "The host's comparison with the file cannot be read"
        return [own_words(f"{why}. The call says:", RowStyle.WARNING), *_said(name, values)]
    lines = []
    if change.path:
        lines += _table({"is": change.path}, names=True)
    if not change.decoded:
        lines.append(own_words("The file is not all UTF-8: bytes that are not are shown as �.", RowStyle.WARNING))
    is_new = change.created and traits_of(name).view is View.NEW_CONTENT
    diff = list(content_lines(values["content"]) if is_new else patch_lines(change.patch))
    if is_new or change.complete:
        added, removed = (sum(line.sign == sign for line in diff) for sign in "+-")
        return [*lines, own_words(_summary(change, added, removed)), *diff_card_lines(diff)]
    summary = _summary(change, change.added, change.removed)
    lines.append(own_words(f"{summary} That is too much to show. The call says:"))
    lines += _said(name, values)
    if diff:
        lines += [own_words("In the file this begins with:"), *diff_card_lines(diff)]
    return lines


def _said(name: str, values: Json) -> list[CardLine]:
    if traits_of(name).view is View.NEW_CONTENT:
        return [own_words("Write this as the whole file:"), *diff_card_lines(list(content_lines(values["content"])))]
    lines = []
    for edit in _edits(name, values):
        where = {None: "once", False: "only once", True: "everywhere"}[edit.get("replace_all")]
        lines.append(own_words(f"Replace {where}:" if edit["old_string"] else f"New file ({where}):"))
        lines += diff_card_lines(list(replacement_lines(edit["old_string"], edit["new_string"])))
    return lines


def _summary(change: EditPreview, added: int, removed: int) -> str:
    if change.created:
        return f"A new file: {counted(added, 'line')}."
    if removed > 1 and removed == change.lines:
        return f"Replaces all {counted(change.lines, 'line')} of the file by {added:,}."
    return f"Changes the file of {counted(change.lines, 'line')}: +{added:,} −{removed:,}."


def bounded(lines: list[CardLine]) -> tuple[list[CardLine], bool]:
    """Return the lines and True; or if they are too much to read, the first ones with a warning, and False."""
    chars = sum(len(line.picture) for line in lines)
    if len(lines) <= MAX_LINES and chars <= MAX_CHARS:
        return lines, True
    kept: list[CardLine] = []
    room = _MAX_UNREADABLE
    for line in lines:
        if room <= 0:
            break
        kept.append(replace(line, picture=line.picture[:room]))
        room -= len(line.picture) + 1
    shown = sum(len(line.picture) for line in kept)
    warning = f"Too long to read: these are the first {shown:,} of {chars:,} characters. It can only be denied."
    return [CardLine("! ", warning, RowStyle.WARNING, "  "), *kept], False


_KINDS = {
    "hook": "hook",
    "mcp": "MCP server",
    "allow": "allow rule",
    "ask": "ask rule",
    "deny": "deny rule",
    "setting": "setting",
    "unknown": "no effect",
    "agent": "agent",
    "command": "command",
    "skill": "skill",
    "memory": "memory",
}
_WIDTH = max(map(len, _KINDS.values()))
_HEAD = "Files in this directory switch on the following. Hooks and MCP servers run on the host, without a question."


def trust_lines(asked: Json) -> list[CardLine]:
    """Return the lines for a question about trust (`ccb.tunnel.wire.control_protocol.ProjectTrust`)."""
    switches = [each for each in asked.get("switches", []) if isinstance(each, dict)]
    texts = [str(text) for each in switches for text in each.values()]
    lines = [own_words(_HEAD), *doubts(str(asked.get("directory", "")), *texts)]
    path = ""
    for each in switches:
        kind, name, detail, found_in = (str(each.get(key, "")) for key in ("kind", "name", "detail", "path"))
        if found_in != path:
            path = found_in
            lines.append(CardLine("in ", escaped_name(path), RowStyle.CONTEXT, f" {GOES_ON} "))
            if each.get("owner"):
                lines.append(CardLine("   of ", escaped_name(str(each["owner"])), RowStyle.CONTEXT, f"    {GOES_ON} "))
        kind = _KINDS.get(kind, escaped_name(kind)[:_WIDTH])
        goes_on = f"{'':>{_WIDTH}} {GOES_ON} "
        lines.append(CardLine(f"{kind:>{_WIDTH}} │ ", escaped_name(name), RowStyle.EXACT, goes_on))
        below = escaped(detail).split("\n") if detail else ()
        lines += [CardLine(f"{'':>{_WIDTH}} │   ", line, RowStyle.EXACT, f"{goes_on}  ") for line in below]
    return lines
