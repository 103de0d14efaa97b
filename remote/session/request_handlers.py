"""The requests of clients: section 6.1 of the stream-json protocol as observed."""

from __future__ import annotations

import os
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ccb.tunnel.wire import client_requests as requests
from ccb.tunnel.wire import control_protocol as protocol
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import CompactStartRecord, MessageRecord, QueuedRecord
from ccb.tunnel.wire.mcp_messages import CLIENT_MCP_MESSAGE, MCP_RECONNECT, MCP_STATUS
from ccb.tunnel.wire.model_facts import ALIASES, EFFORTS, ModelTable, effort_of
from ccb.tunnel.wire.outside_messages import CHANNEL, TELL_SESSION, OutsideMessage
from ccb.tunnel.wire.session_options import CLAUDE_CODE_VERSION, LAPTOP_COMMANDS, SETUP_COMMAND, SessionOptions

from ..agent.agent_messages import CAPABILITIES, mode_message
from ..agent.conversation import FROM, UP_TO
from ..context.instructions import find_instructions
from ..context.system_prompt import instruction_sources, style_name
from ..hooks.hook_table import POST_MODEL_SWITCH, PRE_MODEL_SWITCH
from ..mcp.mcp_servers import McpServers
from ..model.model_request import SMALL, can_think
from ..permissions.modes import SandboxError
from ..session_store.file_history import Point
from ..session_store.journal import NotKept
from ..slash_commands.command_registry import CommandCall, CommandRefused, Expanded, SlashCommand
from ..system.deadline import in_thread
from ..system.host import is_under
from ..system.regular_files import ABSENT, FileChanged, NotAFile, digest_of
from ..system.text_encoding import text_of
from ..tools.agent_definitions import AgentDefinition
from ..tools.tasks import Task
from .client_setup import Initialize, added_directories, no_directory, offered_models, output_styles
from .request_broker import RequestOutcome
from .session import Session, check_model, find_task

_MAX_MODELS = 50
_MAX_OUTSIDE = 50  # messages from outside that wait
_MAX_A_MINUTE = 30  # such messages: each may cost a turn
_MAX_TEXT = 200  # characters of a prompt that is named in a summary
_PART = re.compile(r"--(?P<part>from|up-to)[ =](?P<id>\S+)(?:\s+(?P<hint>.*))?", re.DOTALL)
_MODELS = {"Opus": "Largest", "Sonnet": "For most work", "Haiku": "Fastest"}
INITIALIZE: protocol.RequestKind[Initialize, Json] = protocol.client_kind("initialize", Initialize.read)
GET_CONTEXT_USAGE: protocol.RequestKind[None, Json] = protocol.client_kind("get_context_usage", lambda fields: None)


MCP_TOGGLE: protocol.RequestKind[tuple[str, bool], Json] = protocol.client_kind(
    "mcp_toggle", lambda fields: (str(fields.get("serverName")), fields.get("enabled") is not False)
)
_SERVERS_S = 5.0  # `initialize` waits for MCP servers


def register_client_requests(session: Session) -> None:
    broker, agent = session.broker, session.agent
    announced = agent.config.announced

    async def context_usage(_: None) -> Json:
        return (await agent.context_report()).public()

    broker.register(INITIALIZE, lambda setup: _initialize(session, setup))
    broker.register(protocol.SET_MODEL, lambda name: _set_model(session, name))
    broker.register(GET_CONTEXT_USAGE, context_usage)
    broker.register(requests.ADD_DIRECTORY, lambda path: _add_directory(session, path))
    broker.register(requests.REMEMBER, lambda note: _remember(session, note))
    broker.register(protocol.INTERRUPT, lambda with_queue: _interrupt(session, with_queue or False))
    broker.register(protocol.SET_PERMISSION_MODE, lambda mode: _set_permission_mode(session, mode))
    broker.register(requests.SET_SANDBOX, lambda mode: _set_sandbox(session, mode))
    broker.register(requests.LIST_COMMANDS, lambda _: {"commands": announced.commands()})
    broker.register(MCP_STATUS, lambda _: {"mcpServers": session.clients.servers.status()})
    broker.register(MCP_RECONNECT, lambda name: _server(session, name, lambda servers: servers.reconnect(name)))
    broker.register(MCP_TOGGLE, lambda it: _server(session, it[0], lambda servers: servers.toggle(*it)))
    broker.register(
        CLIENT_MCP_MESSAGE,
        lambda it: _server(session, it.server_name, lambda servers: servers.said(it.server_name, it.message)),
    )
    broker.register(requests.BACKGROUND_TASKS, lambda _: {"moved": agent.config.context.shells.move_all()})
    broker.register(requests.STOP_TASK, lambda task_id: _stop(session, task_id))
    broker.register(requests.READ_TASK, lambda task_id: _output(find_task(session, task_id)))
    broker.register(requests.CANCEL_ASYNC_MESSAGE, lambda uuid: {"cancelled": session.take_back(uuid)})
    broker.register(TELL_SESSION, OutsideMessages(session).take)
    broker.register(requests.MOVE_ASYNC_MESSAGE, lambda move: {"moved": session.move(move)})
    # Changes by these hold from the next turn on, and over restarts.
    broker.register(requests.SET_EFFORT, lambda level: _set_effort(session, level))
    broker.register(requests.SET_MAX_THINKING_TOKENS, lambda tokens: _set_tokens(session, tokens))
    broker.register(requests.LEARN_MODELS, session.learn_models)
    broker.register(requests.CHANGE_RULES, lambda updates: _change_rules(session, updates))


class OutsideMessages:
    """Takes messages from outside into the queue, as notices: they start a turn while models can be called, and never
    answer a question."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._taken: deque[float] = deque(maxlen=_MAX_A_MINUTE)

    def take(self, message: OutsideMessage) -> Json:
        session, now = self._session, time.monotonic()
        off = {each["name"] for each in session.clients.servers.summary() if each["status"] == "disabled"}
        if message.via == CHANNEL and message.sender in off:
            raise protocol.RequestRefused("its MCP server is switched off")
        if session.inputs.outside_waiting >= _MAX_OUTSIDE:
            raise protocol.RequestRefused(f"{_MAX_OUTSIDE} messages wait for the agent already", "too_many_requests")
        if len(self._taken) == _MAX_A_MINUTE and now - self._taken[0] < 60:
            raise protocol.RequestRefused(f"the session takes {_MAX_A_MINUTE} messages a minute", "too_many_requests")
        self._taken.append(now)
        content = [{"type": "text", "text": message.for_model()}]
        session.log.emit(QueuedRecord(f"outside:{protocol.new_uuid()}", content, message.origin, wakes=True))
        session.log.changed()
        return {"driven": session.agent.online}


def _initialize(session: Session, setup: Initialize) -> Awaitable[Json]:
    """Apply the client's fields at once, so that the next prompt finds them applied."""
    try:
        session.adopt(setup)
    except ValueError as error:
        raise protocol.RequestRefused(str(error)) from error
    return _description(session, setup)


async def _description(session: Session, setup: Initialize) -> Json:
    program, offered = session.agent.program, list[tuple[str, str]]()
    if program is not None:
        offered = await offered_models(program)
    else:
        await session.extensions.define_agents()
        await session.clients.settle(session.options, _SERVERS_S)
    model, announced, known = session.agent.model, session.agent.config.announced, session.models
    names = {**ALIASES, **session.options.model_aliases}
    own = [(name, given) for name, given in session.options.model_aliases.items() if name not in ALIASES]
    body: Json = {
        "commands": [{"argumentHint": "", **each} for each in announced.commands()],
        "agents": announced.agents(),
        "output_style": style_name(session.agent.config.settings),
        "available_output_styles": await output_styles(session.agent),
        "models": [_model(known, value, value, name, "") for value, name in offered]
        if program is not None
        else [
            _model(known, "default", model, "Default", model),
            *(_model(known, name.lower(), str(names[name.lower()]), name, text) for name, text in _MODELS.items()),
            *(_model(known, name, str(given), name, str(given)) for name, given in own[:_MAX_MODELS]),
        ],
        "account": {"apiKeySource": session.options.api_key_source},
        "pid": os.getpid(),
        "claude_code_version": CLAUDE_CODE_VERSION,
        "current_permission_mode": session.agent.config.permissions.mode,
        "sandbox": session.agent.config.permissions.cage_in_force,
        "session_state": session.state,
        "capabilities": list(CAPABILITIES),
        "hook_on_failure_supported": True,
    }
    return {**body, "hooks_applied": True} if setup.hooks else body


def _model(known: ModelTable, value: str, model: str, name: str, description: str) -> Json:
    levels = [each for each in EFFORTS if effort_of(model, known.facts(model), each) == each]
    body: Json = {"value": value, "resolvedModel": model, "displayName": name, "description": description}
    return {**body, "supportsEffort": bool(levels), "supportedEffortLevels": levels}


def _server(session: Session, name: str, then: Callable[[McpServers], object]) -> RequestOutcome:
    """Do something with the servers of a session that has a server of this name."""
    servers = session.clients.servers
    if name not in {each["name"] for each in servers.summary()}:
        raise protocol.RequestRefused(f"Server not found: {name[:100]}")
    return RequestOutcome(then=lambda: then(servers))


def _interrupt(session: Session, with_queue: bool) -> RequestOutcome:
    """Withdraw the questions before the answer, end the turn after it; also if neither can be journalled."""
    try:
        session.broker.withdraw(protocol.AnsweredBy.PERSON, spare=session.sub_agents.in_background)
    except NotKept:
        session.agent.interrupt()
        raise
    cancelled = [each for each in session.inputs.waiting_uuids if session.take_back(each)] if with_queue else None
    receipt = {"still_queued": session.inputs.waiting_uuids, **({} if cancelled is None else {"cancelled": cancelled})}
    return RequestOutcome(receipt, session.agent.interrupt)


def _set_permission_mode(session: Session, mode: str) -> RequestOutcome:
    try:
        session.agent.config.permissions.set_mode(mode)
    except ValueError as error:
        raise protocol.RequestRefused(str(error), getattr(error, "code", "")) from error

    said = MessageRecord(mode_message(session.agent.config.permissions))

    def then() -> None:
        session.log.emit(said)
        session.broker.reconsider()

    return RequestOutcome({"mode": mode}, then)


def _set_sandbox(session: Session, mode: str) -> RequestOutcome:
    try:
        session.use_sandbox(mode)
    except SandboxError as error:
        raise protocol.RequestRefused(": ".join(filter(None, (str(error), error.why))), "no_sandbox") from error
    in_force = session.agent.config.permissions.cage_in_force
    return RequestOutcome({"sandbox": in_force}, session.broker.reconsider)


async def _set_model(session: Session, name: str | None) -> Json:
    """Use another model, unless a hook refuses it. Nobody can be asked here, so "ask" refuses it too."""
    check_model(session, name)
    agent, hooks = session.agent, session.agent.hooks
    old, new = agent.model, agent.model_of(name)
    facts: Json = {"from_model": old, "to_model": new, "requested_model": name, "source": "sdk"}
    if old != new:
        outcome = await hooks.run(PRE_MODEL_SWITCH, facts, new)
        if outcome.stops or outcome.decision in ("ask", "deny"):
            raise protocol.RequestRefused(f"a hook refused it: {outcome.why}")
    agent.set_model(name)
    if old != new:
        outcome = await hooks.run(POST_MODEL_SWITCH, facts, new)
        if outcome.context:
            said = f"{POST_MODEL_SWITCH} hook additional context: {' '.join(outcome.context)}"
            agent.reminders.add(POST_MODEL_SWITCH, said)
    return {"model": name or agent.model}


_MAX_FILE = 1 << 20
_MAX_NOTE = 2_000


def _with_note(path: str, data: bytes, note: str) -> bytes:
    file = text_of(data)
    if file is None or not file.codec:
        raise protocol.RequestRefused(f"{path} is not in UTF-8: add the note with an editor that knows its encoding")
    ending = "\r\n" if "\r\n" in file.text else "\n"
    separator = ending if file.text and not file.text.endswith("\n") else ""
    line = f"- {note}{ending}".encode("utf-8", "replace").decode()
    return file.encoded(f"{file.text}{separator}{line}")


async def _remember(session: Session, note: str) -> Json:
    text = " ".join(note.split())[:_MAX_NOTE]
    if not text:
        raise protocol.RequestRefused("the note is empty")
    context = session.agent.config.context
    host = context.host
    paths = [os.path.join(context.cwd, name) for name in ("CLAUDE.md", "AGENTS.md")]
    path = next(filter(os.path.lexists, paths), paths[0])
    real = host.real_path(path)
    if not is_under(real, host.real_path(context.cwd)):
        raise protocol.RequestRefused(f"{path} leads out of the project, to {real}: nothing was written")
    try:
        found = await host.stat(real)
        data = await host.read(real, 0, _MAX_FILE + 1) if found is not None else b""
        if len(data) > _MAX_FILE:
            raise protocol.RequestRefused(f"{path} is too large")
        await host.replace(real, _with_note(path, data, text), digest_of(data) if found is not None else ABSENT)
    except (OSError, FileChanged, NotAFile) as error:
        raise protocol.RequestRefused(f"{path} was not written: {error or 'it has just changed'}") from None
    session.agent.reminders.add(f"note:{text}", f"The user has added this to {path}: {text}")
    return {"path": path}


async def _add_directory(session: Session, given: str) -> Json:
    context = session.agent.config.context
    (path,) = added_directories(context.cwd, SessionOptions(add_dirs=[given]))
    if not given.strip() or not await in_thread(os.path.isdir, path):
        raise protocol.RequestRefused(no_directory(path))
    if path not in (context.cwd, *context.add_dirs):
        session.add_directory(path)
    return {"path": path}


def _change_rules(session: Session, updates: list[Json]) -> Json:
    problems = session.agent.config.permissions.apply(updates)
    if problems:
        raise protocol.RequestRefused("; ".join(problems))
    return {}


def _set_effort(session: Session, level: str | None) -> Json:
    session.reason(replace(session.options, effort=level))
    model = session.agent.model
    return {"effort": level, "applied": effort_of(model, session.models.facts(model), level)}


def _set_tokens(session: Session, tokens: int | None) -> Json:
    session.reason(replace(session.options, max_thinking_tokens=tokens))
    model = session.agent.model
    return {"max_thinking_tokens": tokens, "can_think": can_think(model, session.models.facts(model))}


_MAX_LINES = 200
_MAX_BYTES = 32 * 1024


def _stop(session: Session, task_id: str) -> RequestOutcome:
    if session.sub_agents.stop(task_id):
        return RequestOutcome({})
    task = find_task(session, task_id)
    if task.end is not None:
        raise protocol.RequestRefused(f"Task {task_id} is not running: its status is {task.status.value}")
    return RequestOutcome({}, lambda: session.tasks.stop_soon(task))


def _output(task: Task) -> Json:
    return {"task_id": task.id, "status": task.status.public, "output": task.last(_MAX_LINES, _MAX_BYTES)}


_LISTED = (
    ("cost", "Show the tokens and the cost of this session", ""),
    ("help", "List the commands", ""),
    ("mcp", "List the MCP servers with their state", ""),
    ("model", "Show or change the model", "[name]"),
    ("status", "Show session, host, model and mode", ""),
)


def register_session_commands(session: Session) -> None:
    async def on_laptop(call: CommandCall) -> str:
        here = ", ".join(f"/{each.name}" for each in commands.commands)
        raise CommandRefused(f"It belongs to the screen of ccb (`ccb` without -p). Here there are {here}.")

    async def by_laptop(_: CommandCall) -> str:
        raise CommandRefused("The laptop carries it out, and this client does not: the REPL and `ccb -p` do.")

    async def setup(_: CommandCall) -> str:
        return "The hooks of the start have run."

    commands = session.agent.commands
    commands.reserve(SlashCommand(SETUP_COMMAND[1:], "", setup, local=True))
    for name, does, hint in _LISTED:
        commands.register(SlashCommand(name, does, by_laptop, hint, local=True))
    for name in LAPTOP_COMMANDS.split():  # those that are listed, too: a registered command goes first
        commands.reserve(SlashCommand(name, "", on_laptop, local=True))


_INIT = """\
Look at this project and write a CLAUDE.md in its top directory for agents that will work here. If there is one, \
improve it and keep what is right in it. Read the manifest, the build and test configuration, the README and the rules \
of other agents (AGENTS.md, .cursorrules, .github/copilot-instructions.md) first.

Write down, briefly: the commands to build, lint and test, also for a single test; the architecture that takes several \
files to understand; conventions that cannot be seen in one file. Leave out what anybody can see at once, general \
advice, and anything that you have not verified. Refer to long documents with @path instead of repeating them."""


_CHANGES = """\
Find the changes with git on this host: what is named below, or else the commits of this branch since it left the main \
branch together with what is not committed, new files included. Change nothing, check nothing out, and post nothing. \
Read enough of the code around a change to know how it is used. If there are no changes, say so."""

_REVIEW = f"""\
Review changes of this repository. {_CHANGES}

Report what is wrong, the worst first: bugs, broken promises to callers, races, missing handling of errors, tests that \
are missing or prove nothing. For each: file and line, what happens in which case, and how to put it right. Verify a \
suspicion in the code before you report it; leave out matters of taste. End with one sentence: can this be merged?"""

_SECURITY = f"""\
Look for security holes in changes of this repository. {_CHANGES}

Follow each input that somebody else controls to where it acts: commands, queries, paths, templates, deserialising, \
addresses, redirects, output to a page. Look at checks of identity and rights, secrets in code and logs, cryptography \
and randomness, races between check and use, and new dependencies. Report only holes that these changes open or widen \
and that you can show: file and line, the attack, what the attacker gains, how grave it is (high, medium, low), and \
the repair. Leave out what needs rights that the attacker would have anyway. If you find none, say what you \
looked at."""


def register_context_commands(session: Session) -> None:
    agent = session.agent

    async def clear(_: CommandCall) -> str:
        await agent.running_turn.clear()
        return ""

    async def context(_: CommandCall) -> str:
        return (await agent.context_report()).text()

    async def agents(_: CommandCall) -> str:
        return "\n".join(map(_line, session.sub_agents.definitions))

    def prompt(name: str, does: str, text: str, hint: str) -> SlashCommand:
        async def run(call: CommandCall) -> Expanded:
            return Expanded([{"type": "text", "text": f"{text}\n\n{call.arguments}".strip()}])

        return SlashCommand(name, does, run, hint)

    async def compact(call: CommandCall) -> str:
        return await agent.running_turn.compact(_asked_summary(session.log.points.points, call.arguments))

    def add(name: str, does: str, run: Callable[[CommandCall], Awaitable[str]], hint: str = "") -> None:
        agent.commands.register(SlashCommand(name, does, run, hint, local=True))

    add("clear", "Forget the conversation and begin anew", clear)
    add("context", "Show what fills the model's window", context)
    if agent.program is not None:
        return
    add("compact", "Replace the conversation by a summary", compact, "[what to keep]")
    add("agents", "List the agents that can be started", agents)
    add("memory", "List the instruction files in force", lambda _: _memory(session))
    agent.commands.register(prompt("init", "Write a CLAUDE.md for this project", _INIT, "[what matters]"))
    reviews = (
        prompt("review", "Review the changes of this branch, or what is named", _REVIEW, "[branch, commit, range, PR]"),
        prompt("security-review", "Look for holes in the changes of this branch", _SECURITY, "[branch, commit, range]"),
    )
    agent.commands.provide(lambda: reviews)  # a command of the project with such a name goes first


def _asked_summary(points: Sequence[Point], arguments: str) -> CompactStartRecord:
    """Read the arguments of /compact. Raise CommandRefused."""
    found = _PART.fullmatch(arguments)
    if found is None:
        return CompactStartRecord("manual", arguments)
    named = {point.seq: point for point in points if point.id.startswith(found["id"])}
    if len(named) != 1:
        raise CommandRefused(f"No prompt, or more than one, has an id that begins with {found['id'][:80]}.")
    (point,) = named.values()
    part = FROM if found["part"] == "from" else UP_TO
    return CompactStartRecord("manual", found["hint"] or "", part, point.seq, point.text[:_MAX_TEXT])


async def _memory(session: Session) -> str:
    context = session.agent.config.context
    sources = instruction_sources(session.options)
    files = await in_thread(find_instructions, context.cwd, context.cages.home, sources)
    if not files:
        return "There are no instruction files. /init writes a CLAUDE.md for this project."
    lines = [f"  {each.path}  ({each.scope}, {len(each.text):,} characters)" for each in files]
    return "\n".join(["Instruction files, the last one counts most:", *lines, "A new session reads them again."])


_SMALL = "the small model"
_WHOSE = {"user": "yours, from the laptop", "project": "of the project", "client": "of the client"}
_MAX_DESCRIPTION = 300  # characters


def _line(agent: AgentDefinition) -> str:
    facts = [
        _WHOSE.get(agent.source, agent.source),
        _SMALL if agent.model == SMALL else f"model {agent.model}" if agent.model else "",
        "only reads" if agent.read_only else "",
        "in a worktree of its own" if agent.isolation else "",
        f"tools {', '.join(agent.tools) or 'none'}" if agent.tools is not None else "",
        f"mode {agent.permission_mode} at most" if agent.permission_mode else "",
    ]
    return f"{agent.name} ({'; '.join(filter(None, facts))}): {agent.description[:_MAX_DESCRIPTION]}"
