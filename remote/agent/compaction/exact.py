"""The exact size of a conversation, counted by the provider."""

from __future__ import annotations

import asyncio
import json
import logging

from ccb.tunnel.wire.models import ESTIMATED, sent_name
from ccb.tunnel.wire.ndjson import dump, to_bytes
from ccb.tunnel.wire.requests import new_uuid

from ...model import request
from ...model.models import betas_of
from ...ports import ModelLinkError
from ...system.deadline import within
from ..deps import AgentDeps
from ..state import AgentState

_log = logging.getLogger(__name__)

_PATH = request.PATH + "/count_tokens"
_SECONDS = 5.0
_MAX_BYTES = 1 << 16


async def count_tokens(deps: AgentDeps, agent: AgentState) -> int | None:
    """Return how many tokens the next request would have. None if it cannot be known now: there was no turn yet, a
    tool is running, nobody is connected, or the provider does not count: an estimate of the laptop's is none."""
    conversation = agent.conversation
    if agent.prefix is None or not conversation.messages or conversation.open_tool_uses or deps.link_up_since() is None:
        return None
    pieces = [agent.prefix.encoded]
    pieces += [(b"," if place else b"") + each.encoded() for place, each in enumerate(conversation.messages)]
    pieces.append(to_bytes("]," + dump({"model": sent_name(agent.model)})[1:]))
    headers = {**request.headers(deps.version, betas_of(agent.model)), "accept": "application/json"}

    async def ask() -> object:
        async with deps.transport.request(new_uuid(), "POST", _PATH, headers, pieces) as response:
            body = b""
            async for data in response.body():
                body += data[: _MAX_BYTES - len(body)]
            answer = json.loads(body) if response.status == 200 else {}
            return None if answer.get(ESTIMATED) else answer.get("input_tokens")

    try:
        counted = await within(_SECONDS, ask())
    except (ModelLinkError, asyncio.TimeoutError, ValueError, RecursionError, AttributeError) as error:
        _log.info("the provider did not count the tokens: %r", error)
        return None
    return counted if isinstance(counted, int) and not isinstance(counted, bool) and counted > 0 else None
