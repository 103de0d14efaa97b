"""What a client is told around the turns, besides their messages: the state of the session, and how far each prompt
with a uuid has come. Only runs of messages on stdin have these reports."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from ccb.tunnel.wire.messages import TaskLine
from ccb.tunnel.wire.requests import new_uuid

from .output import HeadlessOutput

if TYPE_CHECKING:
    from ..session.client import Json


def state_flags(environ: Mapping[str, str]) -> Json | None:
    """Return what the messages about the session's state have in addition, None if the client has not asked for
    them."""
    if environ.get("CLAUDE_CODE_EMIT_SESSION_STATE_EVENTS") == "1":
        return {}
    return {"sdk_host_only": True} if environ.get("CLAUDE_CODE_SDK_READS_SESSION_STATE") == "1" else None


class TurnReports:
    """`flags` are those of `state_flags`. Every `running` is followed by an `idle`: a client may wait for it."""

    def __init__(self, output: HeadlessOutput, flags: Json | None, *, lifecycle: bool) -> None:
        self.session_id = ""
        self._output = output
        self._flags = flags
        self._lifecycle = lifecycle
        self._state = "idle"
        self._prompts: dict[str, str] = {}  # uuids of the prompts that wait, by input id
        self._in_turn = False
        self._started: list[str] = []  # uuids of the prompts of the running turn

    async def queued(self, input_id: str, identity: str) -> None:
        """A prompt was read. `identity` is the uuid that the client gave it, "" for none."""
        if identity and input_id not in self._prompts and self._lifecycle:
            self._prompts[input_id] = identity
            await self._command(identity, "queued")

    async def taken(self, input_ids: Iterable[str]) -> None:
        """The running turn has taken these inputs."""
        for input_id in input_ids:
            identity = self._prompts.pop(input_id, "")
            if identity:
                self._started.append(identity)
                await self._command(identity, "started")

    @property
    def prompts_of_turn(self) -> Json:
        """The fields of a result that name the prompts of its turn by their uuids."""
        return {"user_message_uuid": self._started[-1], "user_message_uuids": [*self._started]} if self._started else {}

    async def turn_began(self) -> None:
        self._in_turn = True
        await self._change("running")

    async def waits(self, *, waits: bool) -> None:
        """The running turn waits for an answer of the person, or goes on."""
        if self._state != "idle":
            await self._change("requires_action" if waits else "running")

    async def background(self, tasks: Iterable[TaskLine]) -> None:
        """Other tasks than before run in the background: these."""
        if self._lifecycle:
            fields = ("task_id", "task_type", "description", "tool_use_id")
            listed = [{name: getattr(each, name) for name in fields} for each in tasks]
            await self._print({"type": "system", "subtype": "background_tasks_changed", "tasks": listed})

    async def began_before(self, input_id: str) -> Json:
        """The result of a turn comes that was over before this run. Return the fields that name its prompt."""
        identity = self._prompts.pop(input_id, "")
        if not identity:
            return {}
        if not self._in_turn:
            await self._change("running")
        await self._command(identity, "started")
        return {"user_message_uuid": identity, "user_message_uuids": [identity]}

    async def ended_before(self, prompt: Json, *, more: bool) -> None:
        """That result was printed; `prompt` is what `began_before` has returned."""
        if prompt:
            await self._command(prompt["user_message_uuid"], "completed")
            if not (self._in_turn or more):
                await self._change("idle")

    async def turn_ended(self, *, more: bool = False) -> None:
        """A turn has ended, after its result. `more`: another one is due."""
        self._in_turn = False
        started, self._started = self._started, []
        for identity in started:
            await self._command(identity, "completed")
        if not more:
            await self._change("idle")

    async def _change(self, state: str) -> None:
        if state != self._state:
            self._state = state
            if self._flags is not None:
                body = {"type": "system", "subtype": "session_state_changed", "state": state, **self._flags}
                await self._print(body)

    async def _command(self, identity: str, state: str) -> None:
        await self._print({"type": "command_lifecycle", "command_uuid": identity, "state": state})

    async def _print(self, body: Json) -> None:
        await self._output.message({**body, "session_id": self.session_id, "uuid": new_uuid()})
