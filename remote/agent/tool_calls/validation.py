"""The step of the pipeline that checks the input of a tool call."""

from __future__ import annotations

import logging
from dataclasses import replace

from ...tools.schema import issues, whole_numbers
from .call import CallRefused, ParsedCall, PipelineContext, lent, tool_use_error
from .executor import ToolCall

_log = logging.getLogger(__name__)


def parse(call: ToolCall) -> ParsedCall:
    """Refuse a call of an unknown tool, and an input that is not a JSON object."""
    if call.tool is None:
        raise CallRefused(tool_use_error(f"Error: No such tool available: {call.name}"))
    if call.broken:
        raise CallRefused(tool_use_error(f"InputValidationError: {call.name}: {call.broken}"))
    return ParsedCall(call.id, call.tool, call.input)


async def validate(context: PipelineContext, call: ParsedCall) -> ParsedCall:
    """Refuse an input that does not fit the tool's schema, or that the tool itself rejects."""
    schema = call.tool.checked_schema
    call = replace(call, input=whole_numbers(call.input, schema))
    wrong = issues(call.input, schema)
    if wrong:
        plural = "issue" if len(wrong) == 1 else "issues"
        text = f"{call.name} was called with a wrong input ({plural}):\n" + "\n".join(wrong)
        raise CallRefused(tool_use_error(f"InputValidationError: {text}"))
    try:
        reason = call.tool.validate(call.input, lent(context))
    except Exception as error:  # noqa: BLE001 - a failed check refuses
        _log.exception("validate of %s failed", call.name)
        reason = f"the input could not be checked: {type(error).__name__}: {error}"
    if reason is not None:
        raise CallRefused(tool_use_error(reason))
    return call
