"""A model call beside the turns: one question, one text as the answer. Nothing of it joins the conversation."""

from __future__ import annotations

from collections.abc import Sequence

from ...model import request
from ...model.call import ModelCall
from ...model.models import betas_of
from ...model.question import ReplyListener
from ...model.reasoning import thinks
from ...model.retry import RetryPolicy
from ..deps import AgentDeps
from ..history.history_message import THINKING, HistoryMessage
from ..state import AgentState

_MAX_TOKENS = 4_096
_MAX_RETRIES = 2
_SIDE = """\
The user asks a question beside the work. Answer it from what you know of this conversation, in a few sentences. Call \
no tool. The work goes on afterwards, and you will not remember the question.

"""


async def side_answer(deps: AgentDeps, agent: AgentState, question: str) -> str | None:
    """Return the model's answer to a question about the conversation, or None before the first. Raise ModelError."""
    if agent.prefix is None or not agent.conversation.messages:
        return None
    history = closed_part(agent.conversation.messages, agent.conversation.open_tool_uses)
    sent = with_question(history, _SIDE + question)
    return await _answer(deps, agent, agent.prefix, sent, agent.model)


async def judged(deps: AgentDeps, agent: AgentState, system: str, text: str, model: str) -> str:
    """Return what a model says to a text alone. Raise ModelError."""
    prefix = request.RequestPrefix([{"type": "text", "text": system}], [])
    return await _answer(deps, agent, prefix, with_question([], text), model)


async def _answer(
    deps: AgentDeps, agent: AgentState, prefix: request.RequestPrefix, sent: list[HistoryMessage], model: str
) -> str:
    retries = min(_MAX_RETRIES, deps.limits.max_retries)
    return await text_answer(deps, agent, prefix, sent, model, _MAX_TOKENS, retries, ReplyListener())


async def text_answer(
    deps: AgentDeps,
    agent: AgentState,
    prefix: request.RequestPrefix,
    sent: list[HistoryMessage],
    model: str,
    max_tokens: int,
    retries: int,
    listener: ReplyListener,
) -> str:
    """Make one model call, count what it used, and return the text of the answer. Raise ModelError."""
    if model != agent.model:
        sent = [_without_thinking(message) for message in sent]
    body = request.body(prefix, sent, model=model, max_tokens=max_tokens, session_id=deps.session_id)
    settings = deps.call_settings(body, betas=betas_of(model), thinks=thinks(deps.models.facts(model), {}))
    end = await ModelCall(settings, listener, RetryPolicy(retries)).run()
    agent.count(end.head.model, end.usage, model)
    return listener.text.strip()


def with_question(history: Sequence[HistoryMessage], text: str) -> list[HistoryMessage]:
    """Return a history with a text of the user at its end. The history is not changed."""
    ask = HistoryMessage("user")
    for block in history[-1].blocks if history and history[-1].role == "user" else ():
        ask.put(block)
    ask.put({"type": "text", "text": text})
    return [*(history[:-1] if len(ask.blocks) > 1 else history), ask]


def closed_part(history: Sequence[HistoryMessage], open_uses: Sequence[str]) -> list[HistoryMessage]:
    """Return the history up to the message whose tool calls still run: a request must not hold them."""
    if not open_uses:
        return list(history)
    for place in range(len(history) - 1, -1, -1):
        if any(block.get("id") in open_uses for block in history[place].blocks):
            return list(history[:place])
    return list(history)


def _without_thinking(message: HistoryMessage) -> HistoryMessage:
    """Return the message for another model than the one whose thinking it shows."""
    if not any(block.get("type") in THINKING for block in message.blocks):
        return message
    made = HistoryMessage(message.role)
    for block in message.blocks:
        if block.get("type") not in THINKING:
            made.put(block)
    return made
