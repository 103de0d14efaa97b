"""How prompts enter a turn: slash commands are carried out, and hooks may refuse a prompt or add to it.

A prompt that hooks see, or that is a command, is noted as taken before anything happens to it. So it is not taken
again after a crash, and no hook or command runs twice."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.queue import TakenRecord
from ccb.tunnel.wire.messages import BLOCKED_PROMPT
from ccb.tunnel.wire.requests import new_uuid

from ...commands.registry import CommandCall, CommandRefused, Expanded, Printed, SlashCommand
from ...hooks.table import SESSION_START, SETUP, USER_PROMPT_SUBMIT, sources_of
from ...model.errors import ModelError
from ...ports import NotKept
from .. import messages
from ..agent_hooks import agent_starts, before_expansion
from ..deps import AgentConfig, AgentDeps, Prompt
from ..recorder import Recorder
from ..state import Ending, Terminal
from ..tool_calls.command_tools import CommandTools

Json = dict[str, Any]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Opened:
    """`prompts` enter the conversation, followed by `expanded`, the blocks of a command. `ending` is set if the turn
    ends here, without the model. `allowed` and `model` hold during the turn (see `Expanded`)."""

    prompts: Sequence[Prompt] = ()
    expanded: Sequence[Json] = ()
    ending: Ending | None = None
    allowed: Sequence[str] = ()
    model: str | None = None


class PromptOpening:
    """Opens the turns of one agent."""

    def __init__(self, config: AgentConfig, deps: AgentDeps, recorder: Recorder, tools: CommandTools) -> None:
        self._config = config
        self._deps = deps
        self._recorder = recorder
        self._tools = tools
        self._main = not recorder.agent_id

    async def open(self, prompts: Sequence[Prompt]) -> Opened:
        """Return what of the prompts of a new turn enters the conversation. Raise NotKept."""
        hooks, commands = self._deps.hooks, self._deps.commands
        if not self._main:
            await agent_starts(self._deps, self._recorder, self._config.agent_type)
            return Opened(prompts)
        if hooks is not None:
            hooks.prompt_id = new_uuid()
            for problem in hooks.configure(sources_of(self._config.settings)):
                self._recorder.message(messages.informational(f"This hook is not used: {problem}", "warning"))
        if commands is not None:
            commands.refresh()
        if len(prompts) == 1 and prompts[0].shell:
            return await self._run_shell(prompts[0])
        first = prompts[0].blocks if len(prompts) == 1 and not prompts[0].verbatim else ()
        found = commands.find(first) if commands is not None else None
        if self._config.refusal and (found is None or not found[0].local):
            await self._take(prompts)
            return Opened(ending=Ending(Terminal.SETUP_FAILED, errors=(self._config.refusal,)))
        if hooks is not None and hooks.start_due:
            hooks.initial = await self._session_starts()
        opened = await self.admit(prompts) if found is None else await self._command(*found, prompts[0])
        if hooks is not None and hooks.initial and opened.ending is None:
            said, hooks.initial = hooks.initial, ""
            opened = replace(opened, prompts=[self._initial(said), *opened.prompts])
        return opened

    async def _command(self, command: SlashCommand, call: CommandCall, prompt: Prompt) -> Opened:
        """Carry out a slash command, unless a hook refuses it. Raise NotKept."""
        await self._take([prompt])
        refused = None if command.local else await self._refused(prompt)
        if refused is None and not command.local:
            refused = await self._unexpanded(command, call, prompt)
        if refused:
            return Opened(ending=Ending(Terminal.COMPLETED, text=refused))
        return await self._run(command, call, prompt)

    async def _unexpanded(self, command: SlashCommand, call: CommandCall, prompt: Prompt) -> str:
        """Run the hooks of a command whose text would go to the model. Return what the person is told if they refuse
        it, "" if they do not."""
        outcome = await before_expansion(self._deps, command, call.arguments, _text(prompt))
        if outcome.blocked or outcome.stops:
            told = f"A hook refused /{command.name}: {outcome.reason or outcome.stop_reason or 'no reason given'}"
            self._recorder.message(messages.informational(told, "warning"))
            return told
        if outcome.context:
            said = f"UserPromptExpansion hook additional context: {_joined(outcome.context)}"
            self._deps.reminders.add(f"expansion:{prompt.input_id}", said)
        return ""

    async def admit(self, prompts: Sequence[Prompt]) -> Opened:
        """Let the hooks see prompts that are not commands. Raise NotKept."""
        hooks = self._deps.hooks
        said = [prompt for prompt in prompts if prompt.origin is None]  # the others are notices of the worker
        if hooks is None or not self._main or not said or not hooks.matching(USER_PROMPT_SUBMIT):
            return Opened(prompts)
        await self._take(said)
        admitted, text = [prompt for prompt in prompts if prompt.origin is not None], ""
        for prompt in said:
            refused = await self._refused(prompt)
            if refused is None:
                admitted.append(prompt)
            else:
                text = refused
        return Opened(admitted, ending=None if admitted else Ending(Terminal.COMPLETED, text=text))

    def _initial(self, text: str) -> Prompt:
        self._recorder.message(messages.informational(f"First, a SessionStart hook tells the agent: {text}"))
        return Prompt([{"type": "text", "text": text}], verbatim=True)

    def _name(self, title: str) -> None:
        """Give the session the name that a hook wants."""
        if title:
            self._recorder.message(messages.session_title(title))

    async def _session_starts(self) -> str:
        """Run the SessionStart hooks. Return what they want to come before the first prompt."""
        hooks = self._deps.hooks
        assert hooks is not None
        trigger, hooks.setup = hooks.setup, ""
        if trigger:
            outcome = await hooks.run(SETUP, {"trigger": trigger}, trigger)
            if outcome.context:
                self._deps.reminders.add(SETUP, f"Setup hook additional context: {_joined(outcome.context)}")
        source = hooks.start_source
        hooks.started()
        outcome = await hooks.run(SESSION_START, {"source": source, "model": self._config.model or ""}, source)
        if outcome.context:
            self._deps.reminders.add(SESSION_START, f"SessionStart hook additional context: {_joined(outcome.context)}")
        self._name(outcome.title)
        return outcome.initial

    async def _take(self, prompts: Sequence[Prompt]) -> None:
        for prompt in prompts:
            if prompt.input_id:
                self._recorder.record(TakenRecord(prompt.input_id))
        await self._recorder.commit()

    async def _refused(self, prompt: Prompt) -> str | None:
        """Run the hooks of a prompt. Return what the person is told if they refuse it, None if they do not."""
        hooks = self._deps.hooks
        if hooks is None:
            return None
        text = _text(prompt)
        outcome = await hooks.run(USER_PROMPT_SUBMIT, {"prompt": text}, about=prompt.input_id)
        self._name(outcome.title)
        if outcome.blocked or outcome.stops:
            reason = outcome.reason or outcome.stop_reason or "no reason given"
            told = f"{BLOCKED_PROMPT}\n{reason}\n\nOriginal prompt: {text}"
            self._recorder.message(messages.informational(told, "warning"))
            return told
        if outcome.context:
            said = f"UserPromptSubmit hook additional context: {_joined(outcome.context)}"
            self._deps.reminders.add(f"prompt:{prompt.input_id}", said)
        return None

    async def _run_shell(self, prompt: Prompt) -> Opened:
        """Run the command line of the person. The model reads it and what it printed with the next prompt."""
        await self._take([prompt])
        line = str(prompt.blocks[0].get("text")) if prompt.blocks else ""
        command = line.removeprefix("!").strip()
        try:
            printed = await self._tools.of_person(command)
        except CommandRefused as refused:
            printed = f"It was not run: {refused}."
        self._recorder.message(messages.command_output(printed))
        text = f"<bash-input>{command}</bash-input>\n<bash-stdout>{printed}</bash-stdout>"
        return Opened([Prompt([{"type": "text", "text": text}], verbatim=True, silent=True)])

    async def _run(self, command: SlashCommand, call: CommandCall, prompt: Prompt) -> Opened:
        try:
            done = await command.run(
                replace(call, shell=self._tools.shell, read=self._tools.read, delegate=self._tools.delegate)
            )
        except (NotKept, ModelError):
            raise
        except CommandRefused as refused:
            done = Printed(f"/{command.name} was not run. {refused}")
        except Exception as error:  # noqa: BLE001 - a command's failure is told to the person
            _log.exception("the command /%s failed", command.name)
            done = Printed(f"/{command.name} failed: {error or type(error).__name__}")
        if isinstance(done, Expanded):
            return Opened([prompt], done.blocks, allowed=done.allowed, model=done.model)
        self._recorder.message(messages.command_output(done.text))
        return Opened(ending=Ending(Terminal.COMPLETED, text=done.text))


def _text(prompt: Prompt) -> str:
    return "\n".join(str(block.get("text")) for block in prompt.blocks if block.get("type") == "text")


def _joined(texts: Sequence[str]) -> str:
    return "\n\n".join(texts)
