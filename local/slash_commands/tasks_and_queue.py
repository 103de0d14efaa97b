"""/tasks, /queue: what runs beside the agent, and what waits for it."""

from __future__ import annotations

import time

from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.client_requests import CANCEL_ASYNC_MESSAGE, READ_TASK, STOP_TASK
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.dataclass import dataclass

from ..transcript.blocks import Level
from .registry import EVERYWHERE, Choices, Reply, ReplyRow, Rows, Text, command
from .session_api import SessionApi

_MAX_SHOWN = 20
_MAX_PROMPT = 200


def _task_ids(api: SessionApi) -> Choices:
    tasks = {one_line(task.id): one_line(task.description) for task in api.transcript.tasks.running}
    return {**tasks, **{f"stop {task_id}": f"ends {task_id}" for task_id in tasks}}


@command(
    "tasks",
    "[ID, stop ID]",
    "list what runs in the background, show its output, end it",
    places=EVERYWHERE,
    choices=_task_ids,
)
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
        return Rows(rows, none="Nothing runs in the background.", after=after)
    if word == "stop" and task_id:
        await api.request(Request(STOP_TASK, task_id))
        return Text(f"{task_id} is being stopped", brief=True)
    answer = await api.request(Request(READ_TASK, word))
    output = str(answer.get("output") or "").rstrip() or "(no output yet)"
    return Text([f"{word}, {HostText(str(answer.get('status'))).cell}:", *output.split("\n")])


@dataclass(frozen=True)
class Waiting(Rows):
    """The prompts that wait for the agent."""


@command("queue", "[drop N]", "list the prompts that wait for the agent: edit, reorder, drop")
async def queue(api: SessionApi, argument: str) -> Reply:
    waiting = api.transcript.prompts.waiting
    word, _, rest = argument.partition(" ")
    number = rest.strip()
    if word != "drop" or not number.isdigit():
        rows = [ReplyRow(one_line(each.text)[:_MAX_PROMPT] or "(no text)") for each in waiting]
        return Waiting(rows, none="no prompt waits for the agent", after="/queue drop N takes one out.")
    if not 0 < int(number) <= len(waiting):
        return Text(f"No prompt {number} waits: /queue lists them.", Level.WARNING)
    prompt = waiting[int(number) - 1]
    answer = await api.request(Request(CANCEL_ASYNC_MESSAGE, prompt.id))
    if answer.get("cancelled") is not True:
        return Text("The agent has taken this prompt already.", Level.WARNING)
    api.transcript.prompts.taken_back(prompt.id)
    return Text("The prompt was dropped.", brief=True)
