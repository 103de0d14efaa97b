"""Mode, model and effort of a session, as modes and as config options, and the commands that a prompt can be."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.control_protocol import RequestFailed
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import INVALID_PARAMS, RpcError

from ..slash_commands.agent_commands import can_change_sandbox, change_mode, effort, model, models_of_others
from ..slash_commands.command_table import COMMANDS
from ..slash_commands.registry import LaptopCommand, Text
from ..slash_commands.session_api import Place, SessionApi
from ..transcript.blocks import Level
from ..transcript.session_facts import CAGED, MODES, mode_in_force, mode_name

if TYPE_CHECKING:
    from ..providers.known_models import ModelOffer

MODE, MODEL, EFFORT = "mode", "model", "effort"
_OWN_EFFORT = "default"
_MAX_MODELS = 200
_MAX_TEXT = 500


class SessionOptionsDesk:
    """Shows and changes what the person can choose. `bypasses`: the mode that allows all may be chosen."""

    def __init__(self, api: SessionApi, *, bypasses: bool) -> None:
        self._api = api
        self._bypasses = bypasses

    @property
    def model(self) -> ModelOffer | None:
        """The model in use, as far as this machine knows it."""
        models, used = self._api.laptop.models, self._api.transcript.facts.model
        return models.offer(used) if models is not None and used else None

    def modes(self) -> Json:
        current = mode_in_force(self._api.transcript.facts.mode, self._api.transcript.facts.sandbox)
        withheld = {CAGED: not can_change_sandbox(self._api.client), "bypassPermissions": not self._bypasses}
        offered = dict.fromkeys([*(each for each in MODES if not withheld.get(each)), current])
        return {"currentModeId": current, "availableModes": [{"id": each, "name": mode_name(each)} for each in offered]}

    async def config(self) -> list[Json]:
        modes = self.modes()
        values = [{"value": each["id"], "name": each["name"]} for each in modes["availableModes"]]
        options = [_select(MODE, "Mode", "mode", modes["currentModeId"], values), await self._models()]
        if self.model is not None and self.model.efforts:
            current = self._api.transcript.facts.effort or _OWN_EFFORT
            levels = dict.fromkeys([_OWN_EFFORT, *self.model.efforts, current])
            values = [{"value": each, "name": each.capitalize()} for each in levels]
            options.append(_select(EFFORT, "Effort", "thought_level", current, values))
        return options

    async def set_option(self, name: object, value: object) -> None:
        """Raise CcbError, RequestFailed or RpcError for what the session cannot have."""
        if not isinstance(value, str):
            raise RpcError(INVALID_PARAMS, "the value of an option is a text")
        if name == MODE:
            await change_mode(self._api.client, self._api.transcript, value)
        elif name in (MODEL, EFFORT):
            await self._run(model if name == MODEL else effort, value)
        else:
            raise RpcError(INVALID_PARAMS, f"there is no option {str(name)[:100]!r}")

    async def commands(self) -> list[Json]:
        """Return the commands that a prompt can be: those of the worker, and those that this machine answers."""
        listed = {}
        for each in COMMANDS:
            if Place.HEADLESS in each.places and each.name != "help":
                listed[each.name] = _command(each.name, each.does, each.hint)
        with suppress(CcbError, RequestFailed, ValidationError):  # those of this machine are better than none
            for known in await self._api.worker_commands():
                listed[known.name] = _command(known.name, known.description, known.argumentHint)
        return list(listed.values())

    async def _models(self) -> Json:
        if self._api.transcript.facts.foreign_agent:
            used, names = await models_of_others(self._api)
            listed = [{"value": each, "name": each} for each in dict.fromkeys([used, *names])]
            return _select(MODEL, "Model", "model", used, listed)
        current, models = self._api.transcript.facts.model, self._api.laptop.models
        offers = (await models.kept(current))[:_MAX_MODELS] if models is not None else []
        chosen = next((each.name for each in offers if current in (each.name, each.id)), current) or "default"
        values = {each.name: {"value": each.name, "name": one_line(each.title or each.name)} for each in offers}
        values.setdefault(chosen, {"value": chosen, "name": one_line(chosen)})
        return _select(MODEL, "Model", "model", chosen, list(values.values()))

    async def _run(self, command: LaptopCommand, value: str) -> None:
        """Let a slash command do it. What it refuses is an error."""
        reply = await command.run(self._api, value)
        if isinstance(reply, Text) and reply.level is not Level.INFO:
            raise RpcError(INVALID_PARAMS, " ".join(reply.lines))


def _select(number: str, name: str, category: str, current: str, values: list[Json]) -> Json:
    return {
        "id": number,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": current,
        "options": values,
    }


def _command(name: str, does: str, hint: str) -> Json:
    command: Json = {"name": one_line(name), "description": one_line(does)[:_MAX_TEXT]}
    return {**command, "input": {"hint": one_line(hint)[:_MAX_TEXT]}} if hint else command
