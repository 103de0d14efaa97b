"""Build a session and its agents from the session's options, its journal, and the resources of the daemon."""

from __future__ import annotations

import os
import time
from collections.abc import Collection
from dataclasses import field, replace
from typing import Any, Callable

from ccb.tunnel.wire.control_protocol import AnsweredBy
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.journal_records import MAIN_AGENT, OptionsRecord
from ccb.tunnel.wire.session_options import SessionOptions

from ..agent.agent import Agent
from ..agent.agent_config import AgentConfig, AgentDeps, OfferedTools, ToldToClients
from ..agent.agent_histories import AgentHistories, AgentHistory
from ..agent.agent_hooks import instructions_loaded
from ..agent.agent_log import Emitter
from ..agent.conversation import Conversation
from ..context.instructions import NestedInstructions
from ..context.system_prompt import instruction_sources, session_prompt
from ..hooks.hook_runner import HookContext, HookRunner
from ..model.retry import RetrySettings
from ..permissions.engine import LaunchRules, PermissionEngine
from ..permissions.modes import Sandbox
from ..session.client_outbox import ClientOutbox
from ..session.client_setup import ClientLaunches, added_directories, check_sandbox, with_own_files
from ..session.input_queue import InputQueue
from ..session.recovery import restore, take_up
from ..session.request_broker import OpenRequests
from ..session.request_handlers import register_client_requests
from ..session.rewind import register_rewinds
from ..session.session import Session, SessionParts
from ..session.session_commands import agents_command, register_context_commands, register_session_commands
from ..session.session_log import AgentEmitter, SessionLog
from ..session_store.journal import Journal
from ..session_store.session_directory import resumed_elsewhere
from ..session_store.session_paths import home_directory
from ..slash_commands.command_registry import CommandRegistry
from ..subagents.sub_agents import SubAgents, after_a_cut, end_cut_agents, left_behind
from ..tools.plan_mode import PlanReminders
from ..tools.tool_contract import ToolContext
from ..tools.toolset import default_tools
from .model_streams import ModelStreams

Json = dict[str, Any]

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


@dataclass(frozen=True)
class SessionHost:
    """The resources of the daemon that its session uses."""

    session_id: str
    journal: Journal
    outboxes: Collection[ClientOutbox]
    changed: Callable[[], None]
    calls: ModelStreams
    context: ToolContext
    version: str
    surviving: Collection[str] = ()
    """The kinds of requests that stay open when the worker restarts, until they are asked again under the same ids."""

    def log(self) -> SessionLog:
        """Return a new SessionLog, which writes to the journal."""
        return SessionLog(self.session_id, self.journal, self.outboxes, self.changed)


def begin_session(host: SessionHost, options: SessionOptions, facts: Json) -> Session:
    """Start a new session; `facts` are stored with its first record. Raise JournalError, ValueError if the options are
    not valid, and HostRefusal if this host cannot make the cage that they name."""
    log = host.log()
    options = with_own_files(options, os.path.dirname(host.context.spill.directory))
    parts = SessionParts.make(log, ClientLaunches(options), InputQueue(), OpenRequests())
    cwd = host.context.cwd
    directories = [cwd, *added_directories(cwd, options)]
    check_sandbox(Sandbox(host.context.cages, options.sandbox, options.allow_net), directories)
    hooks = _hooks(host, parts)
    hooks.setup = options.setup
    factory = AgentFactory(parts, host.calls, host.version, hooks)
    agent = factory.main_agent(host.context, AgentHistory(MAIN_AGENT))
    log.emit(OptionsRecord(options.to_json(), host.session_id, round(time.time(), 3), **facts))
    parts.launches.use(options)
    host.journal.flush_soon()
    session = Session(parts, agent, sdk_requests)
    session.watch_tasks()
    return _answering(session)


def resume_session(host: SessionHost) -> tuple[Session, str]:
    """Continue the session of a journal that has records. Return the session, and the mark of the processes that the
    last worker may have left running. Raise JournalError."""
    restored = restore(host.log(), host.surviving)
    hooks = _hooks(host, restored.parts)
    hooks.start_source = "resume"
    factory = AgentFactory(restored.parts, host.calls, host.version, hooks)
    factory.close_open_tools(restored.histories)
    end_cut_agents(restored.histories, factory.emitter, restored.tasks.open)
    agent = factory.main_agent(host.context, restored.histories.main)
    if restored.directory not in ("", host.context.cwd):
        agent.reminders.add("root", resumed_elsewhere(restored.directory, host.context.cwd))
    return _answering(take_up(restored, agent, sdk_requests)), restored.mark


def _hooks(host: SessionHost, parts: SessionParts) -> HookRunner:
    log = parts.log
    session = HookContext(
        log.session_id,
        log.journal.path,
        host.context.cwd,
        host.context.host,
        parts.broker,
        log,
        connected=lambda: host.calls.link_up_since() is not None,
        allow_private=lambda: host.context.web.allow_private,
        directory=os.path.dirname(host.context.spill.directory),
        variables=host.context.variables,
    )
    return HookRunner(session, lambda: parts.launches.options.include_hook_events)


def sdk_requests(session: Session) -> None:
    """Register the handlers of requests that only clients of SDKs make."""
    from ..session.sdk_handlers import register_sdk_requests  # most sessions never load it

    register_sdk_requests(session)


def _answering(session: Session) -> Session:
    register_client_requests(session)
    register_context_commands(session)
    register_session_commands(session)
    register_rewinds(session)
    return session


@dataclass(frozen=True)
class AgentFactory:
    """Creates agents that record in the log of a session and call the model over `calls`. Any number of agents can run
    at the same time, each with its own history."""

    parts: SessionParts
    calls: ModelStreams
    version: str
    hooks: HookRunner | None = None
    commands: CommandRegistry = field(default_factory=CommandRegistry)

    def agent(self, config: AgentConfig, history: AgentHistory, emitter: Emitter | None = None) -> Agent:
        """Return the agent that goes on with `history`. It records with `emitter`; None for its own."""
        sources = instruction_sources(self.parts.launches.options)
        agent_id = history.conversation.agent_id
        nested = NestedInstructions(config.context.cwd, config.context.cages.home, sources)
        nested.loaded = lambda files: instructions_loaded(self.hooks, agent_id, files, "nested_traversal")
        deps = AgentDeps(
            emitter=emitter or self.emitter(agent_id),
            transport=self.calls,
            broker=self.parts.broker,
            session_id=self.parts.log.session_id,
            version=self.version,
            link_up_since=self.calls.link_up_since,
            limits=RetrySettings.from_env(os.environ),
            nested=nested,
            home=config.context.cages.home,
            hooks=self.hooks,
            commands=None if agent_id else self.commands,
            models=self.parts.launches.models,
        )
        deps.reminders.follow(nested.due)
        return Agent(config, deps, history.conversation, history.ledger)

    def emitter(self, agent_id: str) -> Emitter:
        """Return the emitter of an agent of the session."""
        return AgentEmitter(self.parts.log, agent_id)

    def main_agent(self, context: ToolContext, history: AgentHistory) -> Agent:
        """Return the main agent, with the history from the journal. Raise ValueError if the options are not valid on
        this host."""
        options, commands = self.parts.launches.options, self.commands
        context.add_dirs[:] = added_directories(context.cwd, options)
        context.web.use(options.web, options.web_allow_private)
        engine = PermissionEngine(
            LaunchRules.of(options, context.cages, context.add_dirs),
            cwd=context.cwd,
            home=home_directory(),
            plan_file=context.plan.path,
        )
        launches, tools = self.parts.launches, default_tools()
        if options.defer_above is not None:
            tools.defer_above = options.defer_above
        config = AgentConfig(
            prompts=session_prompt(options, context.cwd, context.host, context.cages),
            tools=tools,
            permissions=engine,
            context=context,
            disclosure=ToldToClients(api_key_source=options.api_key_source, partial_messages=options.partial_messages),
            take_queued=lambda agent_id: self.parts.inputs.take_all(agent_id, commands.calls),
            offer=OfferedTools(
                options.tools, options.tool_aliases, lambda: tools.named(launches.options.permission_prompts)
            ),
        ).with_options(options)
        if self.hooks is not None:
            self.hooks.mode, self.hooks.covers = lambda: engine.mode, engine.covers
        agent = self.agent(config, history)
        if self.hooks is not None:
            self.hooks.remind, self.hooks.judge = agent.reminders.add, agent.judge
            self.hooks.names = lambda: agent.config.names
            self.hooks.effort = lambda: agent.config.reasoning.effort or ""
        agent.reminders.follow(
            PlanReminders(
                context.plan,
                lambda: engine.mode,
                lambda: launches.can_ask(AnsweredBy.PERSON),
                lambda: launches.options.plan_instructions,
            )
        )
        sub_agents = SubAgents(agent, self.agent, self.emitter, self.parts.log.journal, self.parts.broker)
        commands.register(agents_command(sub_agents))
        agent.configure(replace(config, context=replace(context, sub_agents=sub_agents)))
        return agent

    def close_open_tools(self, histories: AgentHistories) -> None:
        """Close the tool calls that an earlier worker left open, in the histories and in the journal."""
        log = self.parts.log
        damaged = bool(log.journal.damaged)  # a damaged record may have been the start of any tool

        def why(conversation: Conversation, tool_use_id: str) -> str:
            started = damaged or tool_use_id in conversation.started
            if tool_use_id in conversation.copied:
                return COPIED if started else COPIED_UNSTARTED
            cut = histories.cut_agent(tool_use_id)
            if cut is not None and conversation.agent_id == MAIN_AGENT:
                return f"{INTERRUPTED} {after_a_cut(cut, histories.worktrees.get(tool_use_id))}"
            tree = histories.worktrees.get(tool_use_id)
            if tree is not None and not tree.removed and os.path.lexists(tree.path):
                return f"{INTERRUPTED} {left_behind(tree)}"
            return INTERRUPTED if started else NEVER_STARTED

        for agent_id, message in histories.close_open_tool_uses(why):
            log.emit(message, agent_id)
