"""Agents, commands, skills, servers of files and clients."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import MAIN_AGENT
from ccb.tunnel.wire.session_options import BUILT_IN_AGENTS, SessionOptions, SettingsOption

from ..agent.agent import Agent
from ..agent.agent_config import AgentConfig
from ..context.reminders import Occasion
from ..context.system_prompt import SessionPrompt, session_prompt
from ..hooks.hook_runner import HookRunner
from ..hooks.hook_table import CONFIG_CHANGE, EVENTS
from ..permissions.paths import PathScope
from ..session_store.session_paths import home_directory
from ..settings.worker_settings import WorkerSettings
from ..slash_commands.command_registry import CommandCall, SlashCommand
from ..slash_commands.skills import FileCommands
from ..subagents.agent_catalogue import Catalogue
from ..subagents.sub_agents import SubAgents, memory_directory, memory_text
from ..system.deadline import in_thread
from ..tools.agent_definitions import INHERIT, AgentDefinition
from .client_setup import ClientSetup
from .session_settings import SessionSettings

_MAX_CHARS = 300  # of one command in the list of hooks
_RELOAD_S = 5.0  # how long a reload waits for MCP servers


class SessionExtensions:
    """Finds agents, commands, skills and servers at the start of the agent's turns."""

    def __init__(
        self,
        agent: Agent,
        settings: SessionSettings,
        clients: ClientSetup,
        sub_agents: SubAgents,
        session_id: str,
        warn: Callable[[str], None],
    ) -> None:
        self._agent, self._settings, self._clients, self._sub_agents = agent, settings, clients, sub_agents
        self._warn = warn
        self._agents_of: tuple[SessionOptions, WorkerSettings] | None = None
        self._prompts: SessionPrompt | None = None  # those of the role
        self._files = FileCommands(session_id, agent.config.tools)
        agent.reminders.follow(self._due)

        async def hooks(_: CommandCall) -> str:
            return _listing(agent.hooks)

        def plugins() -> list[Json]:
            found = agent.config.settings.plugins
            return [{"name": each.name, "path": each.path, "source": f"{each.name}@inline"} for each in found]

        def commands() -> list[Json]:
            return [each.public() for each in agent.commands.commands]

        does = "Show the hooks, and where they are configured"
        agent.commands.register(SlashCommand("hooks", does, hooks, local=True))
        agent.commands.provide(self._files.commands)
        announced = agent.config.announced
        announced.commands, announced.agents = commands, sub_agents.listed
        announced.skills, announced.plugins = self._files.skills, plugins

    async def settle(self) -> None:
        await self._settings.settle()
        if self._agent.program is not None:  # it reads its own files, and starts its own servers
            return
        await self._find()
        await self._clients.settle(self._agent.config.options)
        role = self._agent.config.role
        why = self._settings.failure or (role.unmet(self._clients.servers.connected()) if role is not None else "")
        if why:
            self._refuse(why)

    async def reload(self) -> None:
        """Read the files of the host again, if they are still trusted."""
        before = {each.path: replace(each, lines={}) for each in self._settings.current.layers}
        await self._settings.reload()
        after = {each.path: replace(each, lines={}) for each in self._settings.current.layers}
        for path in {**before, **after}:
            if before.get(path) != after.get(path):
                source = f"{(after.get(path) or before[path]).source}_settings"
                self._agent.hooks.run_later(CONFIG_CHANGE, {"source": source, "file_path": path}, source)
        self._agents_of = None
        await self._find()
        await self._clients.settle(self._agent.config.options, _RELOAD_S)

    async def _find(self) -> None:
        await self.define_agents()
        options, settings, hooks = self._agent.config.options, self._settings.current, self._agent.hooks
        await self._take_role(options)
        problems, self._settings.plugin_problems = self._settings.plugin_problems, []
        for problem in [*problems, *await self._find_files(settings, options)]:
            self._warn(problem)
        config = self._agent.config
        role = config.role
        if role is not None:
            hooks.begin(MAIN_AGENT, role.name, role.hooks if config.settings.runs_hooks(role.source) else ())
        else:
            hooks.leave(MAIN_AGENT)
        self._clients.use_files(role, settings, options)

    async def _find_files(self, settings: WorkerSettings, options: SessionOptions) -> list[str]:
        context, own_files = self._agent.config.context, options.own_files
        own = [os.path.join(os.path.dirname(context.spill.directory), own_files)] if own_files else []
        problems = await self._files.use(settings, [*own, home_directory()], options.skills)
        self._agent.config.permissions.lend(self._files.readable)
        return problems or []

    def _due(self, occasion: Occasion) -> Iterable[str]:
        context = self._agent.config.context
        if not any(each.paths for each in self._files.files):
            return ()
        places = PathScope.of(context.cwd, context.cages.home)
        return self._files.due(context.files.paths, places, again=occasion is Occasion.COMPACTED)

    async def define_agents(self) -> None:
        """Offer the agents that the options and the trusted project define, if either has changed."""
        sources = self._agent.config.options, self._settings.current
        if sources == self._agents_of:
            return
        catalogue = await in_thread(Catalogue, *sources)
        for problem in catalogue.problems:
            self._warn(problem)
        self._sub_agents.define(catalogue.definitions, built_in=BUILT_IN_AGENTS not in sources[0].left_out)
        self._agents_of = sources

    def _refuse(self, why: str) -> AgentConfig:
        """Let no turn start because of `why`, "" to let them start again."""
        config = self._agent.config
        if why != config.refusal:
            config = replace(config, refusal=why)
            self._agent.configure(config)
        return config

    async def _take_role(self, options: SessionOptions) -> None:
        """Let the main agent work as the agent that the options name: its prompt, memory, tools and model."""
        config, definitions = self._agent.config, self._sub_agents.definitions
        role = next((each for each in definitions if each.name == options.role), None)
        config = self._refuse(_no_such_agent(options.role, definitions) if role is None else "")
        if role is config.role and (role is None or config.prompts is self._prompts):
            return
        context, text, memory = config.context, "", ""
        if role is not None:
            text = role.prompt
            memory = memory_directory(role, context.cwd, context.cages.home, trusted=config.settings.trusted)
        if memory:
            notes = await in_thread(memory_text, memory)
            text = f"{text}\n\n{notes}"
        config.permissions.remember_in(memory)
        self._prompts = session_prompt(options, context.cwd, context.host, context.cages, text)
        self._agent.configure(replace(config, prompts=self._prompts, role=role))
        if role is None or role.model in ("", INHERIT) or self._agent.conversation.messages:
            return
        if options.model is None or "model" in SettingsOption.from_json(options.settings).left_open:
            self._agent.set_model(role.model)


def _listing(runner: HookRunner) -> str:
    lines: list[str] = []
    for event in EVENTS:
        of_event = [hook for hook in runner.hooks if hook.event == event]
        lines += [event] if of_event else []
        for hook in of_event:
            does = " ".join(hook.does.split())
            matcher = f"{hook.matcher}: " if hook.matcher else ""
            where = hook.layer.source + (f", {hook.layer.path}" if hook.layer.path else "")
            more = [f"if {hook.condition}" if hook.condition else "", "async" * hook.beside, "once" * hook.once]
            facts = "; ".join(filter(None, [where, *more, f"at most {hook.timeout_s:g} s"]))
            lines.append(f"  {matcher}{does[:_MAX_CHARS]}  ({facts})")
    lines = lines or ['No hooks run on this host. They are configured under "hooks" in the settings.']
    problems = runner.problems
    return "\n".join([*lines, *(["", "Not used:"] if problems else []), *(f"  {each}" for each in problems)])


def _no_such_agent(name: str, definitions: Iterable[AgentDefinition]) -> str:
    if not name:
        return ""
    from difflib import get_close_matches  # nobody waits for it in a session that works

    names = [each.name for each in definitions]
    near = get_close_matches(name, names, cutoff=0.5)
    meant = f"Did you mean {' or '.join(near)}?" if near else f"The agents are {', '.join(names)}."
    return f"There is no agent {name[:100]!r}. {meant} Choose another one (--agent, `agent` in the settings), or none."
