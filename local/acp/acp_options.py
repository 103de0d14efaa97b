"""Mode, model and effort of a session, as modes and as config options, and the commands that a prompt can be."""

from __future__ import annotations

from contextlib import suppress

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
from ..transcript.session_facts import CAGED, MODES, mode_in_force

MODE, MODEL, EFFORT = "mode", "model", "effort"
_OWN_EFFORT = "default"
_MAX_MODELS = 200
_MAX_TEXT = 500
_ABOUT_MODES = {
    "default": ("Ask", "Ask before what changes something"),
    "acceptEdits": ("Accept edits", "Change files without a question"),
    "plan": ("Plan", "Look around, change nothing, propose a plan"),
    CAGED: ("Caged", "Run commands in the workspace cage without a question"),
    "bypassPermissions": ("Bypass permissions", "Run everything without a question"),
    "dontAsk": ("Don't ask", "Deny what would need a question"),
}


class SessionOptionsDesk:
    """Shows and changes what the person can choose. `bypasses`: the mode that allows all may be chosen."""

    def __init__(self, api: SessionApi, *, bypasses: bool) -> None:
        self._api = api
        self._bypasses = bypasses

    @property
    def window(self) -> int:
        """The room of the model in tokens, as far as this machine knows it."""
        models, used = self._api.laptop.models, self._api.transcript.facts.model
        return models.offer(used).window if models is not None and used else 0

    def modes(self) -> Json:
        current = mode_in_force(self._api.transcript.facts.mode, self._api.transcript.facts.sandbox)
        offered = [each for each in MODES if self._is_offered(each)]
        offered += [current] if current not in offered else []
        listed = [(each, *_ABOUT_MODES.get(each, (one_line(each), ""))) for each in offered]
        return {
            "currentModeId": current,
            "availableModes": [{"id": each, "name": name, "description": text} for each, name, text in listed],
        }

    async def config(self) -> list[Json]:
        modes = self.modes()
        values = [{"value": each["id"], **_named(each)} for each in modes["availableModes"]]
        options = [_select(MODE, "Mode", "mode", modes["currentModeId"], values), await self._models()]
        levels = self._levels()
        if levels:
            current = self._api.transcript.facts.effort or _OWN_EFFORT
            values = [{"value": each, "name": each.capitalize()} for each in dict.fromkeys([*levels, current])]
            options.append(_select(EFFORT, "Effort", "thought_level", current, values))
        return options

    async def set_mode(self, mode: object) -> None:
        """Raise RpcError for a mode that is not offered, and CcbError or RequestFailed."""
        if not isinstance(mode, str) or not (mode == "dontAsk" or self._is_offered(mode)):
            raise RpcError(INVALID_PARAMS, f"there is no mode {str(mode)[:100]!r} in this session")
        await change_mode(self._api.client, self._api.transcript, mode)

    async def set_option(self, name: object, value: object) -> None:
        if not isinstance(value, str):
            raise RpcError(INVALID_PARAMS, "the value of an option is a text")
        if name == MODE:
            await self.set_mode(value)
        elif name == MODEL:
            await self._run(model, value)
        elif name == EFFORT:
            await self._run(effort, value)
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

    def _is_offered(self, mode: str) -> bool:
        if mode == CAGED:
            return can_change_sandbox(self._api.client)
        return mode in MODES and (mode != "bypassPermissions" or self._bypasses)

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

    def _levels(self) -> list[str]:
        models, used = self._api.laptop.models, self._api.transcript.facts.model
        known = models.offer(used).efforts if models is not None and used else []
        return [_OWN_EFFORT, *known] if known else []

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


def _named(mode: Json) -> Json:
    return {name: mode[name] for name in ("name", "description")}


def _command(name: str, does: str, hint: str) -> Json:
    command: Json = {"name": one_line(name), "description": one_line(does)[:_MAX_TEXT]}
    return {**command, "input": {"hint": one_line(hint)[:_MAX_TEXT]}} if hint else command
