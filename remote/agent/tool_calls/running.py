"""The step of the pipeline in which the tool runs."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from ccb.tunnel.wire.kinds.rewind import FileChangeRecord
from ccb.tunnel.wire.requests import Request
from ccb.tunnel.wire.spelling import spelled, unspelled

from ...model.models import SMALL, small_model
from ...tools.contract import UpcomingChange
from ...tools.web.access import WebAccess
from .. import messages
from .call import (
    CallOutcome,
    ParsedCall,
    PipelineContext,
    error_result,
    lent,
)

if TYPE_CHECKING:
    from ccb.tunnel.wire.kinds.web import FetchedText

    from ...model.question import ModelQuestion, ModelReply
_log = logging.getLogger(__name__)


async def run(context: PipelineContext, call: ParsedCall) -> CallOutcome:
    """Run the tool. Meanwhile, send its live output and regular signs of life as progress."""
    recorder = context.recorder
    mine = dataclasses.replace(
        lent(context).call,
        tool_use_id=call.id,
        agent_id=recorder.agent_id,
        cage=call.cage,
        pinned=call.pinned,
        approved=call.approved,
        left_out=tuple(context.config.permissions.left_out(call.name)),
        progress=lambda update: recorder.progress(call.id, messages.tool_progress(call.name, call.id, update)),
        remind=context.deps.reminders.add,
        stopped=lambda printed: context.started.stopped(call.id, printed),
        before_change=lambda change: _keep_version(context, call.id, change),
        web_access=WebAccess(
            lambda question: _ask_beside(context, question), lambda url: _fetch_on_laptop(context, url)
        ),
    )
    heartbeat = asyncio.ensure_future(_beat(context, call))
    try:
        result = await call.tool.run(call.input, context.config.context.for_call(mine))
        await _touched(context, call)
        return CallOutcome(result)
    except Exception as error:  # noqa: BLE001 - a tool's bug is a result, the model goes on
        _log.exception("tool %s failed", call.name)
        return CallOutcome(error_result(f"{call.name} failed: {type(error).__name__}: {error}"))
    finally:
        heartbeat.cancel()


async def _touched(context: PipelineContext, call: ParsedCall) -> None:
    """Let the instruction files above a file that a call is about reach the model."""
    nested, path = context.deps.nested, call.tool.traits.file_in(call.input)
    if nested is not None and path:
        await nested.work_on(unspelled(path))


async def _ask_beside(context: PipelineContext, question: ModelQuestion) -> ModelReply:
    """Put a question of a tool to a model, and count what it used. Raise ModelError."""
    from ...model.question import ask

    deps, agent = context.deps, context.agent
    small = small_model(agent.model, context.config.small_model, context.config.names)
    question = replace(question, model=small if question.model == SMALL else question.model or agent.model)
    reply = await ask(deps.call_settings, deps.limits.max_retries, question)
    agent.count(reply.model, reply.usage, question.model)
    return reply


async def _fetch_on_laptop(context: PipelineContext, url: str) -> FetchedText:
    """Let the laptop of the driver fetch a page. Raise RequestFailed."""
    from ccb.tunnel.wire.kinds.web import WEB_FETCH, LaptopFetch

    request = Request(WEB_FETCH, LaptopFetch(url), about=url[:100], agent_id=context.recorder.agent_id)
    return await context.deps.broker.request(request)


async def _keep_version(context: PipelineContext, tool_use_id: str, change: UpcomingChange) -> str:
    """Put the present version of a file into the file history, durably. A version that cannot be kept does not stop
    the tool: return why. Raise NotKept."""
    lost = ""
    if change.data is not None:
        history = context.config.context.history
        lost = await asyncio.get_running_loop().run_in_executor(None, history.keep, change.data)
    record = FileChangeRecord(tool_use_id, spelled(change.path), change.before, change.after, change.mode, lost)
    context.recorder.record(record)
    await context.recorder.commit()
    return lost


async def _beat(context: PipelineContext, call: ParsedCall) -> None:
    """Send regular signs of life of the running tool, so that a silent tool does not look hung."""
    elapsed = 0.0
    while True:
        await asyncio.sleep(context.deps.heartbeat_s)
        elapsed += context.deps.heartbeat_s
        context.recorder.progress(call.id + ":heartbeat", messages.heartbeat(call.name, call.id, elapsed))
