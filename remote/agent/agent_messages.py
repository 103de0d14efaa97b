"""The public messages of a turn. The session adds `session_id` and `uuid`, and for a sub-agent `parent_tool_use_id`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone

from ccb.tunnel.wire.control_protocol import AskedBecause, ToolApproval, new_uuid
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import CompactStartRecord
from ccb.tunnel.wire.session_options import CLAUDE_CODE_VERSION
from ccb.tunnel.wire.tool_traits import RunsOn, ToolTraits

from ..context.git_state import current_branch
from ..context.system_prompt import style_name
from ..model.answer_stream import MessageHead
from ..model.retry import OF_THE_LAPTOP, ModelError
from ..permissions.engine import PermissionEngine
from ..permissions.modes import cage_text
from ..permissions.rules import Decision
from .agent_config import AgentConfig
from .agent_histories import Ledger, zero_usage
from .turn_state import TurnEnding

INTERRUPTED = "[Request interrupted by user]"
INTERRUPTED_FOR_TOOL = "[Request interrupted by user for tool use]"
CONTINUE = (
    "Output token limit hit. Go on exactly where the text stopped, without an apology or a summary; "
    "split what is left into smaller pieces."
)


_DESCRIBING = ("description", "file_path", "notebook_path", "path", "command", "pattern", "url")
_SOURCES = {RunsOn.CLIENT: "sdk", RunsOn.LAPTOP: "user", RunsOn.HOST: "project"}
CAPABILITIES = ("interrupt_receipt_v1", "interrupt_cancel_queued_v1")


def _system(subtype: str, **fields: object) -> Json:
    return {"type": "system", "subtype": subtype, **fields}


def init_message(config: AgentConfig, tools: Sequence[str], model: str, version: str) -> Json:
    return _system(
        "init",
        cwd=config.context.cwd,
        git_branch=current_branch(config.context.cwd),
        tools=list(tools),
        model=model,
        permissionMode=config.permissions.mode,
        sandbox=config.permissions.cage_in_force,
        apiKeySource=config.options.api_key_source,
        claude_code_version=CLAUDE_CODE_VERSION,
        ccb_version=version,
        additional_directories=list(config.context.add_dirs),
        capabilities=list(CAPABILITIES),
        betas=list(config.options.betas),
        output_style=style_name(config.settings),
        **config.announced.init_fields(),
    )


def task_message(subtype: str, task_id: str, **fields: object) -> Json:
    """Return the news of a task; a field that is None is left out."""
    return _system(subtype, task_id=task_id, **{name: value for name, value in fields.items() if value is not None})


def status_message(value: str | None = None, **more: object) -> Json:
    return _system("status", status=value, **more)


def mode_message(permissions: PermissionEngine) -> Json:
    return status_message(permissionMode=permissions.mode, sandbox=permissions.cage_in_force)


def compact_boundary(asked: CompactStartRecord, pre_tokens: int, post_tokens: int, prefix_tokens: int) -> Json:
    sizes = {"pre_tokens": pre_tokens, "post_tokens": post_tokens, "prefix_tokens": prefix_tokens}
    part = {"part": asked.part, "at": asked.at, "prompt": asked.text} if asked.part else {}
    return _system("compact_boundary", compact_metadata={"trigger": asked.trigger, **sizes, **part})


def microcompact_boundary(pre_tokens: int, saved: int, tool_use_ids: Sequence[str]) -> Json:
    metadata = {"trigger": "auto", "pre_tokens": pre_tokens, "tokens_saved": saved, "cleared": list(tool_use_ids)}
    return _system("microcompact_boundary", microcompact_metadata=metadata)


def compact_summary(text: str) -> Json:
    return user_text(text, isSynthetic=True, isCompactSummary=True)


def session_title(title: str, *, generated: bool = False) -> Json:
    """`generated`: nobody has chosen it, so any other name outranks it."""
    made = {"generated": True} if generated else {}
    return _system("session_title_changed", title=" ".join(title.split())[:200], **made)


def conversation_reset(session_id: str) -> Json:
    return {"type": "conversation_reset", "new_conversation_id": session_id, "trigger": "clear"}


def assistant(head: MessageHead, block: Json, request_id: str, wall: float, asked: str = "") -> Json:
    """Return one block of an answer. Thinking names the model that was `asked`: only that one may see it again."""
    moment = datetime.fromtimestamp(wall, timezone.utc)
    body: Json = {
        "type": "assistant",
        "message": {
            "id": head.id,
            "type": "message",
            "role": "assistant",
            "model": head.model,
            "content": [block],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": head.usage,
            "context_management": None,
        },
        "parent_tool_use_id": None,
        "timestamp": moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z",
    }
    if request_id:
        body["request_id"] = request_id
    if asked and "thinking" in str(block.get("type")):
        body["requested_model"] = asked
    return body


def api_error(text: str, failure: ModelError | None, kind: str, wall: float) -> Json:
    head = MessageHead(new_uuid(), "<synthetic>", zero_usage())
    body = assistant(head, {"type": "text", "text": text}, failure.request_id if failure else "", wall)
    body["message"]["stop_reason"] = "stop_sequence"
    body.update(error=kind, is_api_error_message=True)
    if failure is not None and failure.status is not None:
        body["api_error_status"] = failure.status
    if failure is not None and failure.error_type:
        body["api_error_type"] = failure.error_type
    return body


def user_text(text: str, **more: object) -> Json:
    content = [{"type": "text", "text": text}]
    return {"type": "user", "message": {"role": "user", "content": content}, "parent_tool_use_id": None, **more}


def synthetic(blocks: Sequence[Json]) -> Json:
    return {**user_text("", isSynthetic=True), "message": {"role": "user", "content": list(blocks)}}


def informational(text: str, level: str = "info") -> Json:
    return _system("informational", content=text, level=level)


def command_output(text: str) -> Json:
    return user_text(f"<local-command-stdout>{text}</local-command-stdout>", isReplay=True)


def api_retry(failure: ModelError, attempt: int, most: int, delay: float) -> Json:
    times = {"attempt": attempt, "max_retries": most, "retry_delay_ms": round(delay * 1000)}
    body = _system("api_retry", **times, error_status=failure.status, error=failure.kind)
    if failure.error_type.startswith(OF_THE_LAPTOP):
        body.update(api_error_type=failure.error_type, message=failure.message)
    elif failure.silent:
        body.update(message=failure.message)
    return body


def model_silent(silent: float | None, left: float) -> Json:
    """Return the message about a silent model that is asked again in `left` seconds; with None, it has gone on."""
    times = (None, None) if silent is None else (round(silent * 1000), round(left * 1000))
    return _system("model_silent", silent_ms=times[0], retry_in_ms=times[1])


def permission_denied(name: str, tool_use_id: str, message: str, decision: Decision) -> Json:
    return _system(
        "permission_denied",
        tool_name=name,
        tool_use_id=tool_use_id,
        message=message,
        decision_behavior=decision.behavior.value,  # "ask": denied only because nobody could be asked
        decision_reason_type=decision.reason_type,
        decision_reason=decision.reason,
    )


def tool_approval(
    traits: ToolTraits, tool_input: Json, tool_use_id: str, decision: Decision, file_change: Json | None = None
) -> ToolApproval:
    described = (tool_input.get(name) for name in _DESCRIBING)
    description = next((each for each in described if isinstance(each, str) and each), "")
    parts = traits.name.split("__")
    of_server = parts[0] == "mcp" and len(parts) > 2
    return ToolApproval(
        tool_name=traits.name,
        display_name=traits.name,
        input=tool_input,
        tool_use_id=tool_use_id,
        permission_suggestions=list(decision.suggestions),
        why=AskedBecause(decision.reason, decision.reason_type, decision.blocked_path or None),
        description=description[:200] or None,
        sandbox=None if traits.asks else cage_text(decision.cage),
        file_change=file_change,
        can_be_caged=decision.can_be_caged or None,
        reads_services=decision.reads_services or None,
        requires_user_interaction=True if traits.asks else None,
        mcp_server={"name": parts[1], "source": _SOURCES[traits.runs_on]} if of_server else None,
    )


def tool_progress(name: str, tool_use_id: str, elapsed: object, **more: object) -> Json:
    body = {"type": "tool_progress", "tool_use_id": tool_use_id, "tool_name": name, "elapsed_time_seconds": elapsed}
    return {**body, **more, "parent_tool_use_id": None}


def result_message(ending: TurnEnding, ledger: Ledger, **figures: object) -> Json:
    """Return the result of a turn; `figures` are fields of it, left out if None but for `stop_reason`."""
    body: Json = {
        "type": "result",
        "subtype": ending.subtype,
        "is_error": ending.is_error,
        "total_cost_usd": ledger.total_cost_usd,
        "usage": dict(ledger.turn),
        "modelUsage": ledger.snapshot(),
        "terminal_reason": ending.terminal.value,
        **{name: value for name, value in figures.items() if value is not None or name == "stop_reason"},
    }
    if ending.subtype == "success":
        body["result"] = ending.text
        body["api_error_status"] = ending.api_error_status
        if ending.structured is not None:
            body["structured_output"] = ending.structured
    else:
        body["errors"] = list(ending.errors)
    return body
