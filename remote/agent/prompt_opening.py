"""Slash commands and hooks before a turn. Their prompt is noted as taken first: nothing runs twice after a crash."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from ccb.tunnel.wire.client_requests import SHELL_CALL
from ccb.tunnel.wire.control_protocol import new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import TakenRecord
from ccb.tunnel.wire.messages import BLOCKED_PROMPT
from ccb.tunnel.wire.prompt_content import is_attached_file
from ccb.tunnel.wire.spelling import spelled, unspelled
from ccb.tunnel.wire.tool_traits import BASH, LS, READ, READ_MCP_RESOURCE, TASK

from ..context.reminders import reminder_block
from ..hooks.hook_outcome import HookOutcome
from ..hooks.hook_runner import HookTurn
from ..hooks.hook_table import USER_PROMPT_EXPANSION, USER_PROMPT_SUBMIT
from ..permissions.engine import PermissionEngine
from ..permissions.rules import Behavior, parse_rules
from ..slash_commands.command_registry import CommandCall, CommandRefused, Expanded, SlashCommand
from ..tools.tool_contract import ToolResult
from . import agent_messages
from .agent_hooks import agent_starts, remind
from .model_calls import judged
from .tool_call import CallRefused, ParsedCall, TurnContext
from .tool_pipeline import checked, decide, run_tool
from .turn_state import EndReason, Prompt, TurnEnding

_log = logging.getLogger(__name__)

_PERSON_TIMEOUT_MS = 600_000


@dataclass(frozen=True)
class Opened:
    """`prompts` and then `expanded`, the blocks of a command, enter the conversation. `ending`: the turn ends without
    the model. `allowed` and `model` hold during the turn."""

    prompts: Sequence[Prompt] = ()
    expanded: Sequence[Json] = ()
    ending: TurnEnding | None = None
    allowed: Sequence[str] = ()
    model: str | None = None

    @property
    def said(self) -> Sequence[Prompt]:
        """What an agent of others gets, which knows no commands of ccb."""
        return [Prompt(self.expanded)] if self.expanded else self.prompts


class PromptOpening:
    """Opens the turns of one agent. Every method may raise NotKept."""

    def __init__(self, context: TurnContext) -> None:
        self._context = context
        self._log = context.log
        self._hooks = context.deps.hooks
        self._main = not context.log.agent_id

    async def open(self, prompts: Sequence[Prompt]) -> Opened:
        config, commands = self._context.config, self._context.deps.commands
        if not self._main:
            await agent_starts(self._context)
            return Opened(prompts)
        judge = partial(judged, config, self._context.deps, self._context.agent)
        turn = HookTurn(config.names, judge, new_uuid(), config.options.effort or "")
        for problem in self._hooks.begin_turn(turn, config.settings.hooks):
            self._warn(f"This hook is not used: {problem}")
        if len(prompts) == 1 and prompts[0].shell:
            return await self._run_shell(prompts[0])
        found = commands.find(prompts[0].blocks if len(prompts) == 1 and not prompts[0].verbatim else ())
        if config.refusal and (found is None or not found[0].local):
            await self._take(prompts)
            return Opened(ending=TurnEnding(EndReason.SETUP_FAILED, errors=(config.refusal,)))
        self._name((await self._hooks.begin_session(config.options.model or "")).own.get("sessionTitle"))
        opened = await self.admit(prompts) if found is None else await self._command(*found, prompts[0])
        said = self._hooks.take_initial() if opened.ending is None else ""
        if said:
            self._log.message(agent_messages.informational(f"First, a SessionStart hook tells the agent: {said}"))
            first = Prompt([{"type": "text", "text": said}], verbatim=True)
            opened = replace(opened, prompts=[first, *opened.prompts])
        return opened

    async def admit(self, prompts: Sequence[Prompt]) -> Opened:
        said = [prompt for prompt in prompts if prompt.origin is None]  # the others are notices of the worker
        if not self._main or not said or not self._hooks.matching(USER_PROMPT_SUBMIT):
            return Opened(prompts)
        await self._take(said)
        admitted, text = [prompt for prompt in prompts if prompt.origin is not None], ""
        for prompt in said:
            refused = await self._refused(prompt)
            if refused:
                text = refused
            else:
                admitted.append(prompt)
        return Opened(admitted, ending=None if admitted else TurnEnding(EndReason.COMPLETED, text=text))

    async def _command(self, command: SlashCommand, call: CommandCall, prompt: Prompt) -> Opened:
        await self._take([prompt])
        if not command.local:
            refused = await self._refused(prompt) or await self._refused_command(command, call, prompt)
            if refused:
                return Opened(ending=TurnEnding(EndReason.COMPLETED, text=refused))
        try:
            done = await command.run(replace(call, shell=self._shell, read=self._read, delegate=self._delegate))
        except CommandRefused as refused:
            done = f"/{command.name} was not run. {refused}"
        if isinstance(done, Expanded):
            return Opened([prompt], done.blocks, allowed=done.allowed, model=done.model)
        self._log.message(agent_messages.command_output(done))
        return Opened(ending=TurnEnding(EndReason.COMPLETED, text=done))

    async def _refused(self, prompt: Prompt) -> str:
        """Run the hooks of a prompt. Return what the person is told if they refuse it."""
        text = _text(prompt)
        outcome = await self._hooks.run(USER_PROMPT_SUBMIT, {"prompt": text}, about=prompt.input_id)
        self._name(outcome.own.get("sessionTitle"))
        refusal = f"{BLOCKED_PROMPT}\n{outcome.why}\n\nOriginal prompt: {text}"
        return self._told(outcome, refusal, USER_PROMPT_SUBMIT, f"prompt:{prompt.input_id}")

    async def _refused_command(self, command: SlashCommand, call: CommandCall, prompt: Prompt) -> str:
        payload = {
            "expansion_type": "mcp_prompt" if command.source == "mcp" else "slash_command",
            "command_name": command.name,
            "command_args": call.arguments,
            "command_source": command.source,
            "prompt": _text(prompt),
        }
        outcome = await self._hooks.run(USER_PROMPT_EXPANSION, payload, command.name)
        refusal = f"A hook refused /{command.name}: {outcome.why}"
        return self._told(outcome, refusal, USER_PROMPT_EXPANSION, f"expansion:{prompt.input_id}")

    def _told(self, outcome: HookOutcome, refusal: str, event: str, key: str) -> str:
        """Return the refusal, of which the person is told, if hooks refuse; else tell the model what they say."""
        if outcome.refuses:
            return self._warn(refusal)
        remind(self._context, key, event, outcome)
        return ""

    def _warn(self, text: str) -> str:
        self._log.message(agent_messages.informational(text, "warning"))
        return text

    def _name(self, title: str | None) -> None:
        if title:
            self._log.message(agent_messages.session_title(title))

    async def _take(self, prompts: Sequence[Prompt]) -> None:
        for prompt in prompts:
            if prompt.input_id:
                self._log.record(TakenRecord(prompt.input_id))
        await self._log.commit()

    async def _run_shell(self, prompt: Prompt) -> Opened:
        """Run the person's command line, unasked and without a cage. The model reads it with the next prompt."""
        await self._take([prompt])
        line = str(prompt.blocks[0].get("text")) if prompt.blocks else ""
        command = line.removeprefix("!").strip()
        tool = self._context.config.visible_tools().get(BASH.name)
        printed = f"It was not run: {BASH.name} is denied altogether."
        if tool is not None:
            given = {"command": command, "timeout": _PERSON_TIMEOUT_MS}
            outcome = await run_tool(self._context, ParsedCall(SHELL_CALL + new_uuid().replace("-", ""), tool, given))
            printed = str(outcome.result.content)
        self._log.message(agent_messages.command_output(printed))
        text = f"<bash-input>{command}</bash-input>\n<bash-stdout>{printed}</bash-stdout>"
        return Opened([Prompt([{"type": "text", "text": text}], verbatim=True, silent=True)])

    # What a command may do. The results go into its text, not into the conversation.

    async def _shell(self, allowed: Sequence[str], command: str) -> str:
        return await self._granted(allowed, BASH.name, {"command": command}, f"`{command[:500]}`: ")

    async def _delegate(self, allowed: Sequence[str], task: Json) -> str:
        return await self._granted(allowed, TASK.name, task, "")

    async def _granted(self, allowed: Sequence[str], name: str, given: Json, about: str) -> str:
        with granted(self._context.config.permissions, allowed):
            result = await self._call(name, given)
        if result.is_error:
            raise CommandRefused(f"{about}{result.content}")
        return str(result.content)

    async def _read(self, path: str) -> str | None:
        context = self._context.config.context
        full = context.host.real_path(path if path.startswith("/") else f"{context.cwd}/{path}")
        if await context.host.stat(full) is None:
            return None
        result = await self._call(READ.name, {"file_path": full})
        return None if result.is_error or not isinstance(result.content, str) else result.content

    async def _call(self, name: str, tool_input: Json) -> ToolResult:
        tool = self._context.config.visible_tools().get(name)
        if tool is None:
            return ToolResult(f"{name} is denied altogether", is_error=True)
        call = ParsedCall(f"command_{new_uuid().replace('-', '')}", tool, tool_input)
        try:
            return (await run_tool(self._context, await checked(self._context, call))).result
        except CallRefused as refused:
            return refused.outcome.result


def _text(prompt: Prompt) -> str:
    return "\n".join(str(block.get("text")) for block in prompt.blocks if block.get("type") == "text")


@contextmanager
def granted(permissions: PermissionEngine, rules: Sequence[str]) -> Iterator[None]:
    """Let the rules of a command hold during its turn."""
    permissions.grant_for_turn(list(filter(_is_rule, rules)))
    try:
        yield
    finally:
        permissions.grant_for_turn(())


def _is_rule(text: str) -> bool:
    try:
        parse_rules([text])
    except ValueError as error:
        _log.warning("a rule of a command is left out: %s", error)
        return False
    return True


_MENTION = re.compile(r'(?:^|(?<=[\s(\[]))@(?:"([^"\n]+)"|([^\s"]+))')
_LINES = re.compile(r"#L(\d+)(?:-L?(\d+))?\Z")
_MAX_MENTIONS = 10
_MAX_CHARS = 30_000  # of one file
_DEFAULT_LINES = 200  # behind a line that is named alone


async def mentioned_blocks(context: TurnContext, prompts: Sequence[Prompt]) -> list[Json]:
    """Return what prompts name with `@`. A word that names nothing readable stays a word."""
    said = [b for each in prompts if not each.origin and not each.verbatim for b in each.blocks]
    texts = [str(block["text"]) for block in said if "text" in block and not is_attached_file(block)]
    named = dict.fromkeys(quoted or plain for text in texts for quoted, plain in _MENTION.findall(text))
    blocks: list[Json] = []
    for each in list(named)[:_MAX_MENTIONS]:
        for name in dict.fromkeys((each, each.rstrip(".,;:!?)]'"))):
            found = await _named(context, name)
            if found is not None:
                blocks += found
                break
    return blocks


async def _named(context: TurnContext, name: str) -> list[Json] | None:
    """Return what a word names; [] for what may not be shown, None if it names nothing."""
    lines = _LINES.search(name)
    plain = unspelled(name[: lines.start()] if lines else name)
    path = os.path.normpath(os.path.join(context.config.context.cwd, os.path.expanduser(plain)))
    if name and os.path.exists(path):
        return await _shown(context, path, lines)
    server, _, uri = name.partition(":")
    given = {"server": server, "uri": uri}
    found = await run_unasked(context, READ_MCP_RESOURCE.name, given, wanted=True) if uri else None
    return _reminder(f"the resource {name}", found) if found is not None else None


async def _shown(context: TurnContext, path: str, lines: re.Match[str] | None) -> list[Json]:
    shown = spelled(path)
    if os.path.isdir(path):
        result = await run_unasked(context, LS.name, {"path": shown})
        return _reminder(f"the directory {shown}", result) if result is not None else []
    given: Json = {"file_path": shown}
    if lines is not None:
        first = max(1, int(lines[1]))
        given.update(offset=first, limit=max(1, int(lines[2]) - first + 1) if lines[2] else _DEFAULT_LINES)
    result = await run_unasked(context, READ.name, given)
    return _reminder(f"the file {shown}", result) if result is not None else []


def _reminder(said: str, result: ToolResult) -> list[Json]:
    if isinstance(result.content, str):
        return [reminder_block([f"The user names {said}:\n{cut(result.content, _MAX_CHARS)}"])]
    return [reminder_block([f"The user names {said}. It follows."]), *result.content]


async def run_unasked(context: TurnContext, name: str, given: Json, *, wanted: bool = False) -> ToolResult | None:
    """Return what a reading tool finds, None if it may not run unasked. `wanted`: the person has named what is read."""
    config, tool = context.config, context.agent.tools.get(name)
    if tool is None:
        return None
    decision = decide(config, ParsedCall("", tool, given), can_ask=wanted)
    if decision.behavior is Behavior.DENY or (decision.behavior is Behavior.ASK and not wanted):
        return None
    call = ParsedCall(new_uuid(), tool, given, cage=decision.cage, pinned=decision.pinned)
    result = (await run_tool(context, call)).result
    return None if result.is_error else result


def cut(text: str, size: int) -> str:
    return text if len(text) <= size else text[:size].rpartition("\n")[0] + "\n(cut here)"
