"""/model, /mode, /effort, /thinking, /tasks, /queue: how the agent works, what runs beside it and waits for it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, UsageError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire import client_requests as requests
from ccb.tunnel.wire.control_protocol import SET_MODEL, SET_PERMISSION_MODE, Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.messages import as_dict, as_text
from ccb.tunnel.wire.model_facts import ALIASES, EFFORTS, may_be_model
from ccb.tunnel.wire.session_options import CAGES

from ..command_line.option_values import nearest
from ..session.session_client import SessionClient
from ..transcript.blocks import Level
from ..transcript.session_facts import CAGED, MODES, is_caged, mode_name, mode_named
from ..transcript.transcript_reducer import TranscriptReducer
from .registry import Choices, Reply, ReplyRow, Rows, Text, command, everywhere
from .session_api import Place, SessionApi

if TYPE_CHECKING:
    from ..providers.known_models import ModelOffer, OfferedModels

_MAX_COMPLETED = 200
_LEVELS = (*EFFORTS, "default")


@dataclass(frozen=True)
class Models(Rows):
    """The models that the session may use. `choice` brings the lists up to date."""

    offers: Sequence[ModelOffer] = ()
    choice: OfferedModels | None = None


def _model_names(api: SessionApi) -> Choices:
    known = api.laptop.models.names[:_MAX_COMPLETED] if api.laptop.models is not None else ()
    return dict.fromkeys(map(one_line, (*ALIASES, *known)), "")


@everywhere(
    "model [NAME [LEVEL]]",
    "choose model and effort from a list, or name a model: opus, sonnet, haiku, an id",
    choices=_model_names,
)
async def model(api: SessionApi, given: str) -> Reply:
    if api.transcript.facts.foreign_agent:
        return await _model_of_others(api, given)
    if given:
        return await _use_model(api, *given.split(maxsplit=1))
    models, current = api.laptop.models, await _model_in_use(api)
    if api.place is not Place.SCREEN or models is None:
        return Text(_in_force(api))
    offers = await models.kept(current)
    return Models([ReplyRow(each.name) for each in offers], offers=offers, choice=models)


async def models_of_others(api: SessionApi) -> tuple[str, list[str]]:
    """Return the model that an agent of others uses, and those that it offers."""
    applied = as_dict((await api.request(Request(requests.GET_SETTINGS, None))).get("applied"))
    offered = applied.get("offered_models")
    names = [one_line(as_text(each)) for each in offered[:_MAX_COMPLETED]] if isinstance(offered, list) else []
    return one_line(as_text(applied.get("model"))), names


async def _model_of_others(api: SessionApi, given: str) -> Text:
    if given:
        await api.request(Request(SET_MODEL, given))
        return Text(f"Model: {one_line(given)}, from the next prompt on, if the agent offers it")
    used, names = await models_of_others(api)
    offers = [f"The agent offers: {', '.join(names)}. /model NAME chooses one."] if names else []
    return Text([f"Model: {used}", *offers])


async def _model_in_use(api: SessionApi) -> str:
    if not api.transcript.facts.model:  # before the first turn, only the worker knows it
        with suppress(RequestFailed):
            applied = as_dict((await api.request(Request(requests.GET_SETTINGS, None))).get("applied"))
            api.transcript.facts.model = as_text(applied.get("model"))
    return api.transcript.facts.model


def _in_force(api: SessionApi) -> str:
    """Return the model in use, and the level of effort at which it works, as far as this laptop knows that."""
    models, used, wanted = api.laptop.models, api.transcript.facts.model, api.transcript.facts.effort
    shown = f"Model: {used or 'not known before the first turn'}"
    applied = models.offer(used).effort(wanted) if models is not None and used else wanted
    if wanted == applied:
        return f"{shown} · effort {wanted}" if wanted else shown
    return f"{shown} · effort {applied}: it has no {wanted}" if applied else f"{shown} · without levels of effort"


async def _use_model(api: SessionApi, given: str, level: str = "") -> Text:
    models = api.laptop.models
    name = models.without_alias(given) if models is not None else given
    same = bool(level) and name == api.transcript.facts.model
    if not same and not may_be_model(name):
        return _no_model(name)
    if level not in (*_LEVELS, ""):
        return _no_level(level)
    if same:
        await _set_effort(api, level)
        return Text(f"{_in_force(api)}, from the next turn on")
    said: list[str] = []
    if models is not None:
        try:
            said = await models.check(name)
        except CcbError as error:
            texts = (f"{error.what}: the model stays.", error.evidence, error.do)
            return Text([each for each in texts if each], Level.WARNING)
        with suppress(CcbError, RequestFailed):  # a worker of an older version does without
            await api.request(Request(requests.LEARN_MODELS, models.known(name)))
    await api.request(Request(SET_MODEL, name))
    api.transcript.facts.model = name
    if level:
        await _set_effort(api, level)
    known = name in ALIASES or (models is not None and name in models.names)
    judged = "" if known else ", where the provider refuses it if it does not exist"
    return Text([f"{_in_force(api)}, from the next model call on{judged}", *said])


def _no_model(name: str) -> Text:
    near = nearest(name.lower(), ALIASES)
    meant = f" Did you mean /model {near[0]}?" if near else ""
    takes = f"/model takes {', '.join(ALIASES)}, or the full id of a model as its provider writes it."
    return Text([f"{name} is no model: the model stays.{meant}", takes], Level.WARNING)


def _no_level(level: str) -> Text:
    text = f"{level} is no level: the effort stays. It is {', '.join(EFFORTS)} or default."
    return Text(text, Level.WARNING)


async def _set_effort(api: SessionApi, level: str) -> str:
    """Let the agent use a level from the next turn on. Return at which one its model works, "" for its own."""
    wanted = level if level in EFFORTS else None
    answer = await api.request(Request(requests.SET_EFFORT, wanted))
    api.transcript.facts.effort = wanted or ""
    return str(answer.get("applied") or "")


# Not in headless runs: the text of a prompt must not loosen the permissions of the run.
@command(
    "mode [MODE]", f"show or change the mode: {', '.join(MODES.values())}", choices=dict.fromkeys(MODES.values(), "")
)
async def mode(api: SessionApi, wanted: str) -> Reply:
    if wanted:
        await change_mode(api.client, api.transcript, mode_named(wanted))
    facts = api.transcript.facts
    return Text(f"Permission mode: {mode_name(facts.mode, facts.sandbox)}", brief=bool(wanted))


async def change_mode(client: SessionClient, transcript: TranscriptReducer, wanted: str) -> None:
    """Raise CcbError, or RequestFailed where the host cannot make the cage of the mode; then nothing has changed."""
    if wanted == CAGED:
        await change_sandbox(client, transcript, "workspace")
    elif wanted in ("default", "acceptEdits") and is_caged(transcript.facts.sandbox) and can_change_sandbox(client):
        await change_sandbox(client, transcript, "read-only")
    on_wire = "default" if wanted == CAGED else wanted
    await client.request(Request(SET_PERMISSION_MODE, on_wire))
    transcript.facts.mode = on_wire


def can_change_sandbox(client: SessionClient) -> bool:
    return requests.SET_SANDBOX.name in client.hello.capabilities


async def change_sandbox(client: SessionClient, transcript: TranscriptReducer, wanted: str) -> None:
    if not can_change_sandbox(client):
        what = "the worker of this session is too old to change the cage"
        raise UsageError(what, do="/stop, then start again.")
    answer = await client.request(Request(requests.SET_SANDBOX, wanted))
    transcript.facts.sandbox = one_line(str(answer.get("sandbox") or CAGES[wanted]))


@command(
    "sandbox [MODE]",
    f"show or change the cage of commands that run without a question: {', '.join(CAGES)}",
    choices=dict.fromkeys(CAGES, ""),
)
async def sandbox(api: SessionApi, wanted: str) -> Reply:
    if wanted and wanted not in CAGES:
        return Text(f"{wanted} is no cage: it stays. /sandbox takes {', '.join(CAGES)}.", Level.WARNING)
    if wanted:
        await change_sandbox(api.client, api.transcript, wanted)
    in_force = HostText(api.transcript.facts.sandbox).cell or "no cage: the worker is of an older version"
    return Text(f"Sandbox: {in_force}", brief=bool(wanted))


@command(
    "effort [LEVEL]",
    "choose model and effort from a list, or set the effort: low, medium, high, xhigh, max, or default",
    choices=dict.fromkeys(_LEVELS, ""),
)
async def effort(api: SessionApi, level: str) -> Reply:
    if not level:
        return await model.run(api, "")
    if level not in _LEVELS:
        return _no_level(level)
    applied, used = await _set_effort(api, level), api.transcript.facts.model or "the model"
    if level == "default":
        return Text("Effort: the model's own, from the next turn on")
    if not applied:
        return Text(f"Effort: {level}, for models that have levels; {used} has none", Level.WARNING)
    if applied != level:
        return Text(f"Effort: {level}; {used} knows {one_line(applied)} at most")
    return Text(f"Effort: {level}, from the next turn on")


@command("thinking [on, off, N]", "let the model think, with at most N tokens", choices={"on": "", "off": ""})
async def thinking(api: SessionApi, argument: str) -> Reply:
    tokens = {"on": requests.DEFAULT_THINKING_TOKENS, "off": 0}.get(argument)
    if tokens is None and argument.isascii() and argument.isdigit() and len(argument) < 8:
        tokens = int(argument)
    if tokens is None:
        return Text("/thinking takes on, off, or a number of tokens.", Level.WARNING if argument else Level.INFO)
    answer = await api.request(Request(requests.SET_MAX_THINKING_TOKENS, tokens))
    if tokens and answer.get("can_think") is not True:
        used = api.transcript.facts.model or "the model"
        return Text(f"Thinking: on, for models that can; {used} is not known to think", Level.WARNING)
    how = f"on, with at most {tokens:,} tokens" if tokens else "off"
    return Text(f"Thinking: {how}, from the next turn on")


# What runs beside the agent, and what waits for it.

_MAX_SHOWN = 20
_MAX_PROMPT = 200


def _task_ids(api: SessionApi) -> Choices:
    tasks = {one_line(task.id): one_line(task.description) for task in api.transcript.tasks.running}
    return {**tasks, **{f"stop {task_id}": f"ends {task_id}" for task_id in tasks}}


@dataclass(frozen=True)
class TaskRows(Rows):
    """What runs in the background."""


@everywhere("tasks [ID, stop ID]", "list what runs in the background, show its output, end it", choices=_task_ids)
async def tasks(api: SessionApi, argument: str) -> Reply:
    word, _, rest = argument.partition(" ")
    task_id = rest.strip()
    if not word:
        now, running = time.monotonic(), api.transcript.tasks.running
        rows = [
            ReplyRow(each.id, f"{now - each.since:.0f} s  {one_line(each.description)}", f"/tasks {each.id}")
            for each in running[:_MAX_SHOWN]
        ]
        more = f"and {len(running) - _MAX_SHOWN} more; " if len(running) > _MAX_SHOWN else ""
        after = f"{more}/tasks ID shows the output of one, /tasks stop ID ends it."
        return TaskRows(rows, none="Nothing runs in the background.", after=after)
    if word == "stop" and task_id:
        await api.request(Request(requests.STOP_TASK, task_id))
        return Text(f"{task_id} is being stopped", brief=True)
    answer = await api.request(Request(requests.READ_TASK, word))
    output = str(answer.get("output") or "").rstrip() or "(no output yet)"
    return Text([f"{word}, {HostText(str(answer.get('status'))).cell}:", *output.split("\n")])


@dataclass(frozen=True)
class WaitingPrompts(Rows):
    """The prompts that wait for the agent."""


@command("queue [drop N]", "list the prompts that wait for the agent: edit, reorder, drop")
async def queue(api: SessionApi, argument: str) -> Reply:
    waiting = api.transcript.prompts.waiting
    word, _, rest = argument.partition(" ")
    number = rest.strip()
    if word != "drop" or not number.isdigit():
        rows = [ReplyRow(one_line(each.text)[:_MAX_PROMPT] or "(no text)") for each in waiting]
        return WaitingPrompts(rows, none="no prompt waits for the agent", after="/queue drop N takes one out.")
    if not 0 < int(number) <= len(waiting):
        return Text(f"No prompt {number} waits: /queue lists them.", Level.WARNING)
    prompt = waiting[int(number) - 1]
    answer = await api.request(Request(requests.CANCEL_ASYNC_MESSAGE, prompt.id))
    if answer.get("cancelled") is not True:
        return Text("The agent has taken this prompt already.", Level.WARNING)
    api.transcript.prompts.taken_back(prompt.id)
    return Text("The prompt was dropped.", brief=True)
