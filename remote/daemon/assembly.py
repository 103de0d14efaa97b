"""Build a session and its agents from the session's options, its journal, and the resources of the daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import replace

from ccb import __version__
from ccb.tunnel.wire.control_protocol import AnsweredBy
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT, OptionsRecord
from ccb.tunnel.wire.model_facts import ModelNames
from ccb.tunnel.wire.session_options import SessionOptions
from ccb.tunnel.wire.tool_traits import traits_of

from ..agent.agent import Agent
from ..agent.agent_config import AgentConfig, AgentDeps
from ..agent.agent_histories import AgentHistories, AgentHistory
from ..agent.agent_messages import informational
from ..agent.conversation import Conversation
from ..context.instructions import NestedInstructions
from ..context.reminders import Reminders
from ..context.system_prompt import instruction_sources, session_prompt
from ..hooks.hook_runner import HookContext, HookRunner
from ..model.model_request import resolve_model
from ..model.retry import RetrySettings
from ..permissions.engine import LaunchRules, PermissionEngine
from ..permissions.modes import Sandbox
from ..session.client_setup import ClientLaunches, ClientSetup, added_directories, check_sandbox
from ..session.recovery import Recovered, take_up
from ..session.request_broker import OpenRequests
from ..session.request_handlers import register_client_requests, register_context_commands, register_session_commands
from ..session.rewind import register_rewinds
from ..session.sdk_handlers import register_sdk_requests
from ..session.session import Session, SessionParts
from ..session.turns import InputQueue
from ..session_store.session_directory import moved_here, resumed_elsewhere
from ..session_store.session_log import SessionLog
from ..session_store.session_paths import home_directory
from ..slash_commands.command_files import written
from ..subagents.sub_agents import SubAgents, after_a_cut, end_cut_agents, left_behind
from ..tools.asking import PlanReminders
from ..tools.tool_contract import ToolContext
from ..tools.toolset import default_tools
from .model_relay import ModelRelay
from .model_streams import ModelStreams

INTERRUPTED = (
    "The worker was stopped while this tool was open. It was interrupted and may have run; "
    "check before running it again."
)
NEVER_STARTED = "The worker was stopped before this tool was started. It did not run."
COPIED = (
    "This copy of the session was made while the original ran this tool. It may have run: look before running it again."
)
COPIED_UNSTARTED = (
    "This copy of the session was made before this tool was started. It did not run here, but the original may run it: "
    "look before running it again."
)


def begin_session(
    log: SessionLog, calls: ModelStreams, context: ToolContext, relay: ModelRelay, options: SessionOptions, facts: Json
) -> Session:
    """Start a session; its first record has `facts`. Raise NotKept, HostRefusal, or ValueError for its options."""
    options = written(options, os.path.dirname(context.spill.directory))
    parts = SessionParts(log, ClientLaunches(options), InputQueue(), OpenRequests())
    directories = [context.cwd, *added_directories(context.cwd, options)]
    check_sandbox(Sandbox(context.cages, options.sandbox, options.allow_net), directories)
    lent = _main_agent(calls, context, relay, parts, AgentHistory(MAIN_AGENT), setup=options.setup)
    log.emit(OptionsRecord(options.to_json(), log.session_id, round(time.time(), 3), **facts))
    parts.launches.use(options)
    log.journal.flush_soon()
    session = Session(parts, *lent)
    session.notices.begin()
    session.tell_missing(context.add_dirs)
    return _answering(session)


def resume_session(
    log: SessionLog, calls: ModelStreams, context: ToolContext, relay: ModelRelay
) -> tuple[Session, str]:
    """Return the session of a journal, and the mark of what its last worker may have left. Raise NotKept."""
    recovered = Recovered(log.journal.rewound)
    log.read(*recovered.parts)
    parts = SessionParts(log, recovered.launches, recovered.inputs, recovered.requests)
    parts.broker.withdraw_abandoned()
    histories, told_in = recovered.histories, recovered.worker.told_in
    close_open_tools(log, histories)
    end_cut_agents(histories, log, recovered.tasks.open)
    known = recovered.worker.agent_session
    lent = _main_agent(
        calls, context, relay, parts, histories.main, source="resume", ran=recovered.hooks_run, known=known
    )
    session = Session(parts, *lent)
    moved = recovered.worker.moved
    if told_in and moved is not None:
        session.agent.reminders.add("root", moved_here(told_in, context.cwd, moved.outputs, context.spill.directory))
    elif told_in not in ("", context.cwd):
        session.agent.reminders.add("root", resumed_elsewhere(told_in, context.cwd))
    take_up(recovered, session)
    return _answering(session), recovered.worker.mark


def _answering(session: Session) -> Session:
    register_client_requests(session)
    register_context_commands(session)
    register_session_commands(session)
    register_rewinds(session)
    register_sdk_requests(session)
    return session


def _main_agent(
    calls: ModelStreams,
    context: ToolContext,
    relay: ModelRelay,
    parts: SessionParts,
    history: AgentHistory,
    *,
    setup: str = "",
    source: str = "startup",
    ran: Collection[str] = (),
    known: str = "",
) -> tuple[Agent, ClientSetup, SubAgents]:
    """Return the main agent with its history, its MCP servers and its sub-agents. `known` is the id of the conversation
    for an agent of others. Raise ValueError for options."""
    launches, log = parts.launches, parts.log
    options, reminders = launches.options, Reminders()
    tools = default_tools(tasks=_uses_tasks(options, history.conversation.model))
    context.add_dirs[:] = added_directories(context.cwd, options)
    context.web.use(options.web, options.web_allow_private)
    rules = LaunchRules.of(options, context.cages, context.add_dirs)
    engine = PermissionEngine(rules, cwd=context.cwd, home=home_directory(), plan_file=context.plan.path)
    lent = HookContext(
        context.cwd,
        context.host,
        parts.broker,
        log,
        engine,
        reminders.add,
        connected=lambda: calls.link_up_since() is not None,
        allow_private=lambda: context.web.allow_private,
        reports=lambda: launches.options.include_hook_events,
        directory=os.path.dirname(context.spill.directory),
        variables=context.login.variables,
    )
    if options.defer_above is not None:
        tools.defer_above = options.defer_above
    deps = AgentDeps(
        log=log,
        transport=calls,
        broker=parts.broker,
        version=__version__,
        hooks=HookRunner(lent, setup, source, ran),
        nested=NestedInstructions(context.cwd, context.cages.home, instruction_sources(options)),
        link_up_since=calls.link_up_since,
        limits=RetrySettings().over(os.environ),
        reminders=reminders,
        models=launches.models,
    )
    if options.foreign_agent:
        from ..foreign.foreign_agent import ForeignAgent  # most sessions have none
        from ..foreign.foreign_session import LentToAgent

        own = LentToAgent(
            context,
            engine,
            parts.broker,
            deps.hooks,
            options=lambda: launches.options,
            trusted=lambda: agent.config.settings.trusted,
        )
        program = ForeignAgent(options.foreign_agent, own, relay.open, known)
        deps.commands.provide(program.commands)
        deps = replace(deps, program=program)
    config = AgentConfig(
        prompts=session_prompt(options, context.cwd, context.host, context.cages),
        tools=tools,
        permissions=engine,
        context=context,
        options=options,
        take_queued=lambda agent_id: parts.inputs.take_all(agent_id, deps.commands.calls),
        judge=lambda: tools.named(launches.options.permission_prompts),
    )
    agent = Agent(config, deps, history.conversation, history.ledger)
    plan = PlanReminders(
        context.plan,
        lambda: engine.mode,
        lambda: launches.can_ask(AnsweredBy.PERSON),
        lambda: launches.options.plan_instructions,
    )
    reminders.follow(plan)
    clients = ClientSetup(agent, parts.broker, lambda text: log.say(informational(text, "warning")))
    sub_agents = SubAgents(agent, deps, clients.servers)
    agent.configure(replace(config, context=replace(context, sub_agents=sub_agents)))
    return agent, clients, sub_agents


def _uses_tasks(options: SessionOptions, model: str | None) -> bool:
    """Return whether the model keeps its todo list with the Task tools: if the client says so, else if it names them,
    else if the model is a Claude, which knows them."""
    if options.task_tools is not None:
        return options.task_tools
    named = map(traits_of, (*(options.tools or ()), *options.allowed_tools))
    ways = {traits.todo_items for traits in named if traits.view.shows_todos}
    if ways:
        return True in ways
    return "claude" in resolve_model(model or options.model, ModelNames(options.model_aliases))


def close_open_tools(log: SessionLog, histories: AgentHistories) -> None:
    """Close the tool calls that an earlier worker left open, in the histories and in the journal."""
    damaged = bool(log.journal.damaged)  # a damaged record may have been the start of any tool

    def why(conversation: Conversation, tool_use_id: str) -> str:
        started = damaged or tool_use_id in conversation.started
        if tool_use_id in conversation.copied:
            return COPIED if started else COPIED_UNSTARTED
        cut = histories.cut.get(tool_use_id)
        if cut is not None and conversation.agent_id == MAIN_AGENT:
            return f"{INTERRUPTED} {after_a_cut(cut, histories.worktrees.get(tool_use_id))}"
        tree = histories.worktrees.get(tool_use_id)
        if tree is not None and not tree.removed and os.path.lexists(tree.path):
            return f"{INTERRUPTED} {left_behind(tree)}"
        return INTERRUPTED if started else NEVER_STARTED

    for agent_id, message in histories.close_open_tool_uses(why):
        log.emit(message, agent_id)
