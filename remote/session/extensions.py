"""What files and clients add to a session: agents, commands, skills, plugins, MCP servers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Callable

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.options import BUILT_IN_AGENTS, SettingsOption
from ccb.tunnel.wire.records import MAIN_AGENT

from ..agent.agent import Agent
from ..agent.deps import AgentConfig
from ..context.prompt import SessionPrompt, session_prompt
from ..hooks.table import CONFIG_CHANGE
from ..sessions.paths import home_directory
from ..settings.worker_settings import WorkerSettings
from ..subagents.memory import memory_directory, memory_text
from ..subagents.sub_agents import SubAgents, connected_names, defines_agents
from ..tools.agents.definition import INHERIT, AgentDefinition
from .clients.client_setup import ClientSetup
from .commands.slash_commands import SessionCommands
from .settings import SessionSettings

_RELOAD_S = 5.0  # how long a reload waits for MCP servers


class SessionExtensions:
    """Finds the extensions of the agent `agent`, at the start of its turns. `warn` tells the person what is wrong with
    one."""

    def __init__(
        self,
        agent: Agent,
        settings: SessionSettings,
        clients: ClientSetup,
        session_id: str,
        options: Callable[[], SessionOptions],
        warn: Callable[[str], None],
    ) -> None:
        self._agent = agent
        self._settings = settings
        self._clients = clients
        self._commands = SessionCommands(agent, session_id, home_directory())
        self._agents_of: tuple[SessionOptions, WorkerSettings] | None = None
        self._options = options  # those in force, which a client may change while agents are looked for
        self._warn = warn
        self._prompts: SessionPrompt | None = None  # those of the role
        sub_agents = agent.config.context.sub_agents
        if isinstance(sub_agents, SubAgents):
            agent.config.disclosure.announced.add("agents", sub_agents.listed)
            sub_agents.session_servers = lambda: clients.running
            sub_agents.strict_servers = lambda: not self._options().project_mcp

    async def settle(self) -> None:
        """Return when a turn may start."""
        await self._settings.settle()
        await self._find()
        await self._clients.settle(self._options())
        role = self._agent.config.offer.role
        unmet = role.unmet(connected_names(self._clients.running)) if role is not None else ""
        if self._settings.failure or unmet:
            self._refuse(self._settings.failure or unmet)

    async def reload(self) -> None:
        """Read the files of the host again, if they are still trusted."""
        before = {each.path: replace(each, lines={}) for each in self._settings.current.layers}
        await self._settings.reload()
        after = {each.path: replace(each, lines={}) for each in self._settings.current.layers}
        hooks = self._agent.hooks
        for path in {**before, **after}:
            if hooks is not None and before.get(path) != after.get(path):
                source = f"{(after.get(path) or before[path]).source}_settings"
                hooks.run_later(CONFIG_CHANGE, {"source": source, "file_path": path}, source)
        self._agents_of = None
        await self._find()
        await self._clients.settle(self._options(), _RELOAD_S)

    async def _find(self) -> None:
        await self.define_agents()
        options = self._options()
        await self._take_role(options)
        problems, self._settings.plugin_problems = self._settings.plugin_problems, []
        for problem in [*problems, *await self._commands.use(self._settings.current, options)]:
            self._warn(problem)
        self._clients.use_project(self._settings.current, options)
        self._equip(options)

    def _equip(self, options: SessionOptions) -> None:
        """Let the hooks and the MCP servers of the main agent's role run."""
        config, hooks = self._agent.config, self._agent.hooks
        role = config.offer.role
        if hooks is not None and role is not None:
            hooks.begin(MAIN_AGENT, role.name, role.hooks if config.settings.runs_hooks(role.source) else ())
        elif hooks is not None:
            hooks.leave(MAIN_AGENT)
        self._clients.use_role(role, config.settings, options)

    async def define_agents(self) -> None:
        """Offer the agents that the options and the trusted project define, if either has changed."""
        sources = self._options(), self._settings.current
        sub_agents = self._agent.config.context.sub_agents
        if sources == self._agents_of or not isinstance(sub_agents, SubAgents):
            return
        built_in = BUILT_IN_AGENTS not in sources[0].left_out
        if not defines_agents(*sources):
            sub_agents.define((), built_in=built_in)
            self._agents_of = sources
            return
        from ..subagents.catalogue import Catalogue

        catalogue = await asyncio.get_running_loop().run_in_executor(None, Catalogue, *sources)
        sub_agents.define(catalogue.definitions, built_in=built_in)
        self._agents_of = sources
        for problem in catalogue.problems:
            self._warn(problem)

    def _refuse(self, why: str) -> AgentConfig:
        """Let no turn start because of `why`, "" to let them start again. Return the configuration with that."""
        config = self._agent.config
        if why != config.refusal:
            config = replace(config, refusal=why)
            self._agent.configure(config)
        return config

    async def _take_role(self, options: SessionOptions) -> None:
        """Let the main agent work as the agent that the options name: with its prompt, its memory, its tools and, in a
        session that begins and for which nobody has chosen a model, with its model."""
        config, sub_agents = self._agent.config, self._agent.config.context.sub_agents
        definitions = sub_agents.definitions if isinstance(sub_agents, SubAgents) else ()
        role = next((each for each in definitions if each.name == options.role), None)
        config = self._refuse(_no_such_agent(options.role, definitions) if role is None else "")
        if role is config.offer.role and (role is None or config.prompts is self._prompts):
            return
        context = config.context
        text = role.prompt if role is not None else ""
        memory, trusted = "", config.settings.trusted
        if role is not None:
            memory = memory_directory(role, context.cwd, context.cages.home, trusted=trusted)
        if memory:
            notes = await asyncio.get_running_loop().run_in_executor(None, memory_text, memory)
            text = f"{text}\n\n{notes}"
        config.permissions.remember_in(memory)
        self._prompts = session_prompt(options, context.cwd, context.host, context.cages, text)
        self._agent.configure(replace(config, prompts=self._prompts, offer=replace(config.offer, role=role)))
        chosen = SettingsOption.from_json(options.settings).left_open
        if role is None or role.model in ("", INHERIT) or self._agent.conversation.messages:
            return
        if options.model is None or "model" in chosen:
            self._agent.set_model(role.model)


def _no_such_agent(name: str, definitions: Iterable[AgentDefinition]) -> str:
    """Return why no turn may start as the agent `name`, which is not defined; "" without a name."""
    if not name:
        return ""
    from difflib import get_close_matches  # nobody waits for it in a session that works

    names = [each.name for each in definitions]
    near = get_close_matches(name, names, cutoff=0.5)
    meant = f"Did you mean {' or '.join(near)}?" if near else f"The agents are {', '.join(names)}."
    return f"There is no agent {name[:100]!r}. {meant} Choose another one (--agent, `agent` in the settings), or none."
