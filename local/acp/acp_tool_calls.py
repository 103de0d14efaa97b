"""Tool calls as ACP shows them: title, kind, status, places, changes, output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ccb.tunnel.plain_text import neutralise, one_line
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import as_blocks, as_dict, as_text
from ccb.tunnel.wire.prompt_content import image_type
from ccb.tunnel.wire.tool_traits import Effect, View, is_tool, traits_of

from ..transcript.blocks import AgentRun, PicturedBlock, ToolBlock, ToolState
from ..tui.rendering.tool_output import headline
from .acp_paths import PathMap

_MAX_TITLE = 400
_MAX_OVERLAP = 8_192  # characters
_STATUS = {
    ToolState.WAITING: "pending",
    ToolState.ASKS: "pending",
    ToolState.RUNNING: "in_progress",
    ToolState.DONE: "completed",
    ToolState.FAILED: "failed",
    ToolState.UNKNOWN: "completed",
}
_KINDS = {Effect.READ: "search", Effect.WRITE: "edit", Effect.EXECUTE: "execute", Effect.NETWORK: "fetch"}
_VIEW_KINDS = {View.FILE_LINES: "read", View.AGENT: "think", View.CHECKLIST: "think"}


def described(name: str, tool_input: Json, paths: PathMap, cwd: str) -> Json:
    """Return what is known of a call before it runs."""
    traits = traits_of(name)
    kind = _VIEW_KINDS.get(traits.view) or _KINDS.get(traits.effect, "other")
    if traits.asks and traits.view is not View.QUESTIONS:
        kind = "switch_mode"
    if not is_tool(name):
        kind = "other"
    places = _locations(name, tool_input, paths)
    about = one_line(headline(name, tool_input, cwd))
    title = about if traits.view is View.COMMAND and about else one_line(f"{name} {about}")
    if places and paths.on_host(places[0]["path"]) is None:
        title = f"{title[:_MAX_TITLE]} on {paths.host}"
    found: Json = {"title": title[:_MAX_TITLE], "name": name, "kind": kind, "rawInput": tool_input, "locations": places}
    found["content"] = [*_changes(name, tool_input, paths)]
    if traits.view is View.PLAN and (plan := as_text(tool_input.get("plan"))):
        found["content"].append(_text(plan))
    return found


def shown(block: ToolBlock, paths: PathMap, cwd: str, *, terminal: bool) -> Json:
    """Return a call with all that has come of it. `terminal`: its output goes to a terminal of the client."""
    call = described(block.name, block.tool_input, paths, cwd)
    call["status"] = _STATUS[block.state]
    if is_command(block) and terminal:
        call["content"] = [{"type": "terminal", "terminalId": block.tool_id}]
        return call
    said = _agent_rows(block.agent) if block.agent is not None and not block.result else output_of(block)
    keeps = call["content"] and block.state is not ToolState.FAILED
    if said.strip() and not keeps:
        fenced = traits_of(block.name).view in (View.COMMAND, View.FILE_LINES)
        call["content"] = [*call["content"], _text(_fence(said) if fenced else said)]
    call["content"] += [{"type": "content", "content": each} for each in pictures(block)]
    return call


def is_command(block: ToolBlock) -> bool:
    return traits_of(block.name).view is View.COMMAND


def output_of(block: ToolBlock) -> str:
    return neutralise(block.unmarked(block.result) or block.output)


def more_output(before: str, now: str) -> str:
    """Return what has been added to an output. Each may be only its end: `before` while a command runs, `now` too; a
    result has no line end at its end."""
    known = before.rstrip("\n")
    at = 0 if now.startswith(known) else now.rfind(known)
    if at >= 0:
        return now[at + len(before) :]
    for size in range(min(len(before), len(now), _MAX_OVERLAP), 0, -1):
        if before.endswith(now[:size]):
            return now[size:]
    return f"\n{now}"


def _text(text: str) -> Json:
    return {"type": "content", "content": {"type": "text", "text": text}}


def _fence(text: str) -> str:
    marks = "```"
    while marks in text:
        marks += "`"
    return f"{marks}\n{text.rstrip()}\n{marks}"


def _locations(name: str, tool_input: Json, paths: PathMap) -> list[Json]:
    traits = traits_of(name)
    path = tool_input.get(traits.path.key) if traits.path is not None else None
    if not isinstance(path, str) or not path.startswith("/"):
        return []
    line = tool_input.get("offset")
    place: Json = {"path": paths.shown(path)}
    if traits.view is View.FILE_LINES and type(line) is int and 0 < line < 2**31:
        place["line"] = line
    return [place]


def _changes(name: str, tool_input: Json, paths: PathMap) -> Iterator[Json]:
    traits = traits_of(name)
    path = traits.file_in(tool_input)
    if not traits.view.is_diff or not path:
        return
    if traits.view is View.NEW_CONTENT:
        edits = [{"new_string": tool_input.get("content")}]
    else:
        edits = as_blocks(tool_input.get("edits")) if traits.view is View.REPLACEMENTS else [tool_input]
    for each in edits:
        old, new = each.get("old_string"), each.get("new_string")
        if isinstance(new, str):
            yield {"type": "diff", "path": paths.shown(path), "oldText": as_text(old) or None, "newText": new}


def _agent_rows(agent: AgentRun) -> str:
    return "\n".join(f"{each.name} {one_line(headline(each.name, each.tool_input))}" for each in agent.rows)


def pictures(block: PicturedBlock) -> Iterator[Json]:
    for each in block.pictures:
        if (kind := image_type(each.head[:16])) is not None:
            yield {"type": "image", "data": each.data, "mimeType": kind}


def subject_of(question: Json, paths: PathMap, cwd: str, said: Sequence[str] = ()) -> Json:
    """Return the call that a question of the worker is about, whole: a title is one line. `said` are more lines."""
    name, tool_input = as_text(question.get("tool_name")), as_dict(question.get("input"))
    call = described(name, tool_input, paths, cwd)
    if traits_of(name).view is View.COMMAND:
        call["content"].append(_text(_fence(neutralise(as_text(tool_input.get("command"))))))
    call["content"] += map(_text, said)
    return {"toolCallId": as_text(question.get("tool_use_id")), "status": "pending", **call}
