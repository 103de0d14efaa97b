"""One session: takes the inputs of its clients, and describes its state to them."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace

from ccb.tunnel.wire import journal_records as records
from ccb.tunnel.wire.client_requests import QueueMove
from ccb.tunnel.wire.control_protocol import AnsweredBy, RequestRefused, answer_in
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import BEFORE, PRIORITY
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, UserMessage, parse_message
from ccb.tunnel.wire.model_facts import ALIASES, ModelTable
from ccb.tunnel.wire.policy_patterns import is_allowed
from ccb.tunnel.wire.session_options import SessionOptions

from ..agent.agent import Agent
from ..agent.agent_messages import informational, mode_message, session_title
from ..context.system_prompt import session_prompt
from ..hooks.hook_table import DIRECTORY_ADDED, client_hooks
from ..permissions.engine import LaunchRules
from ..session_store.journal import NotKept
from ..session_store.refusal import HostRefusal
from ..session_store.session_log import SessionLog
from ..session_store.session_paths import home_directory
from ..settings.worker_settings import WorkerSettings
from ..slash_commands.command_files import written
from ..subagents.sub_agents import SubAgents
from ..tools.tasks import Task
from . import client_setup as setup
from .extensions import SessionExtensions
from .request_broker import OpenRequests, RequestBroker
from .session_settings import SessionSettings
from .session_title import SessionTitle
from .turns import InputQueue, TaskNotices, Turns, TurnState

_MAX_NAME = 100  # characters of a tool's name in a message
_MAX_MODELS = 1_000  # of which the laptop has told what they can do
_OF_PROMPT = {"system_prompt", "append_system_prompt", "append_agent_prompt", "static_prompt"}


class SessionParts:
    def __init__(
        self, log: SessionLog, launches: setup.ClientLaunches, inputs: InputQueue, requests: OpenRequests
    ) -> None:
        self.log, self.launches, self.inputs = log, launches, inputs
        log.follow(requests)
        log.follow(inputs)
        self.broker = RequestBroker(log, launches.can_ask, requests)


class Session:
    def __init__(self, parts: SessionParts, agent: Agent, clients: setup.ClientSetup, sub_agents: SubAgents) -> None:
        self.id = parts.log.session_id
        self.log = parts.log
        self.broker = parts.broker
        self.agent = agent
        self.hooks = agent.hooks
        self.launches = parts.launches
        context = agent.config.context
        self.settings = SessionSettings(context.cwd, home_directory(), parts.broker, self._use_settings)
        self.settings.use(parts.launches.options)
        self.tasks = context.tasks
        self.notices = TaskNotices(parts.log, parts.inputs, self.tasks)
        self.clients, self.sub_agents = clients, sub_agents
        self._title = SessionTitle(parts.log, agent)
        self.extensions = SessionExtensions(agent, self.settings, clients, sub_agents, self.id, self._warn)
        with suppress(ValueError):  # they were refused when they came
            self._use_callbacks(parts.launches.options)
        self._use_demands(parts.launches.options)

        def holds_notices() -> bool:
            return self.broker.waits_for(AnsweredBy.PERSON) or not agent.online

        self.turns = Turns(parts.log, parts.inputs, agent, self._settle, self.tasks, self.notices, holds_notices)
        self.inputs = parts.inputs
        self.inputs.on_taken = self._show_again

    def take_back(self, uuid: str) -> bool:
        input_id = self.inputs.waiting_id(uuid)
        if input_id:
            self.log.emit(records.UnqueuedRecord(input_id))
            self.log.changed()
        return bool(input_id)

    def move(self, move: QueueMove) -> bool:
        input_id = self.inputs.waiting_id(move.uuid)
        if input_id:
            others = (self.inputs.waiting_id(each) for each in move.before)
            place = next((each for each in others if each not in ("", input_id)), "")
            self.log.emit(records.MovedRecord(input_id, place, move.steers))
        return bool(input_id)

    def name(self, title: str) -> None:
        self.log.say(session_title(title))
        self.log.changed()

    @property
    def models(self) -> ModelTable:
        return self.launches.models

    @property
    def options(self) -> SessionOptions:
        return self.launches.options

    @property
    def state(self) -> str:
        if self.broker.waits_for(AnsweredBy.PERSON):
            return "requires_action"
        return "running" if self.turns.state is not TurnState.NONE or self.turns.due else "idle"

    def snapshot(self, seq: int) -> Json:
        asks = self.broker.journalled.asked_until(seq)
        body = self.log.snapshot.body(seq, model=self.agent.model, mode=self.agent.config.permissions.mode, asks=asks)
        cage, known = self.agent.config.permissions.cage_in_force, self.log.summary
        shown = {"sandbox": cage, "title": known.title or known.summary, "effort": self.options.effort or ""}
        if self.options.foreign_agent:
            shown["foreign_agent"] = self.options.foreign_agent
        return {**body, **shown}

    def take_input(self, input_id: str, body: Json, by: str = "") -> int:
        """Apply an input once; `by` is the viewer that sent it, or "". Return the event after which it is in
        the journal. Raise NotKept."""
        journal = self.log.journal
        if self.inputs.knows(input_id):
            return journal.seq
        record = records.InputRecord(input_id, body, by)
        line = record.public
        repeated = self.inputs.knows_message(line)
        self.log.emit(record)
        if isinstance(line, UserMessage):
            self._take_prompt(input_id, line, repeated=repeated)
        elif isinstance(line, ControlRequest):
            self.broker.take_request(line)
            self.inputs.wake()
        elif isinstance(line, ControlResponse):
            self.broker.take_answer(answer_in(line))
            self.inputs.wake()  # notices wait while the person is asked
        journal.flush_soon()
        return journal.seq

    def _take_prompt(self, input_id: str, line: UserMessage, *, repeated: bool) -> None:
        if repeated:
            self._show_again(input_id, line)
            return
        if line.body.get(PRIORITY) == "now" and self.turns.state is TurnState.RUNNING:
            self.agent.interrupt()
        before = line.body.get(BEFORE)
        if isinstance(before, list) and before:
            self.move(QueueMove(input_id, [str(each) for each in before]))
        self.log.changed()

    def _show_again(self, input_id: str, line: UserMessage) -> None:
        """Show a prompt to a client that wants to see its prompts. Without a uuid of its client it is known by its
        input: rewind_files takes what is shown here."""
        if self.options.replay_user_messages:
            self.log.say({**line.body, "uuid": line.body.get("uuid") or input_id, "isReplay": True})

    def refuse_input(self, body: Json, error: NotKept) -> bool:
        """Settle a prompt that could not be journalled by a result. Return False for what must be tried again."""
        if self.turns.state is not TurnState.NONE or not isinstance(parse_message(body), UserMessage):
            return False
        advice = "This prompt was not taken."
        if error.full and self.log.journal.path:
            host = "--local" if self.options.host == "local" else self.options.host or "HOST"
            advice = f"This prompt was not taken: make room (`ccb gc {host}`), then send it again."
        self.turns.fail([str(error), advice], full=error.full)
        return True

    async def end(self, reason: str) -> None:
        await self._title.close()
        if self.agent.program is not None:
            await self.agent.program.close()
        await self.hooks.end(reason)
        await self.broker.close()
        await self.clients.servers.close()

    def relaunch(self, given: Json) -> None:
        """Apply the command line of a new driver. Raise FrameError, ValueError, NotKept, HostRefusal."""
        sent = SessionOptions.from_json(given)
        if sent.permission_prompts != "stdio" and self.broker.waits_for(AnsweredBy.PERSON):
            about = ", ".join(each[:_MAX_NAME] for each in self.broker.subjects(AnsweredBy.PERSON))
            text = f"this session waits for an answer about {about}"
            raise HostRefusal("waits_for_answer", text, {"session": self.id})
        config = self.agent.config
        context = config.context
        merged = self.launches.merge(given, sent, self.agent.config.permissions.mode)
        options = written(merged, os.path.dirname(context.spill.directory))
        add_dirs = setup.added_directories(context.cwd, options)
        launch = LaunchRules.of(options, context.cages, add_dirs)
        if "sandbox" in given:
            setup.check_sandbox(launch.sandbox, [context.cwd, *add_dirs])
        config.permissions.relaunch(launch)
        self.tell_missing([each for each in add_dirs if each not in context.add_dirs])
        context.add_dirs[:] = add_dirs
        context.web.use(options.web, options.web_allow_private)
        self._record(options, given)
        self.settings.use(options)
        self.clients.use(options)
        self._use_callbacks(options)
        self._use_demands(options)
        if "model" in given:
            self.agent.set_model(options.model)
        self.log.journal.flush_soon()

    def learn_models(self, known: Json) -> Json:
        old = self.options
        facts, levels = {**old.model_facts, **known["models"]}, {**old.thinking_models, **known["thinking"]}
        facts, levels = (dict(list(each.items())[-_MAX_MODELS:]) for each in (facts, levels))
        self._record(replace(old, model_facts=facts, thinking_models=levels))
        return {}

    def use_sandbox(self, mode: str) -> None:
        """Raise SandboxError, and change nothing, if the host cannot make the cage."""
        permissions = self.agent.config.permissions
        permissions.set_sandbox(mode)
        self._record(replace(self.options, sandbox=mode, permission_mode=permissions.mode))
        self.log.emit(records.MessageRecord(mode_message(permissions)))

    def _record(self, options: SessionOptions, given: Collection[str] = ()) -> None:
        self.log.emit(records.OptionsRecord(options.to_json()))
        self._use(options, given)

    def _use(self, options: SessionOptions, given: Collection[str] = ()) -> None:
        """Put options in force. `given` are those that a client has just set."""
        self.launches.use(options)
        config, context = replace(self.agent.config, options=options), self.agent.config.context
        if not _OF_PROMPT.isdisjoint(given):
            config = replace(config, prompts=session_prompt(options, context.cwd, context.host, context.cages))
        self.agent.configure(config)

    def tell_missing(self, add_dirs: Sequence[str]) -> None:
        for each in add_dirs:
            if not os.path.isdir(each):
                self._warn(setup.no_directory(each))

    def add_directory(self, path: str) -> None:
        """Let tools use a directory, also after a restart. Raise NotKept, RequestRefused."""
        if not self.agent.config.permissions.may_add(path):
            raise RequestRefused(f"the policy of the laptop does not allow sessions in {path}")
        config = self.agent.config
        self._record(replace(self.options, add_dirs=[*self.options.add_dirs, path]))
        config.permissions.apply([{"type": "addDirectories", "directories": [path]}])
        config.context.add_dirs.append(path)
        self.agent.reminders.add(f"directory:{path}", f"The user lets you work in {path}, too.")
        self.hooks.run_later(DIRECTORY_ADDED, {"directory": path, "source": "slash_command"}, "slash_command")

    def reason(self, options: SessionOptions) -> None:
        """Use options with another effort, or another budget of thinking."""
        tokens = options.max_thinking_tokens
        self.log.emit(records.ReasoningRecord(options.effort or "", -1 if tokens is None else tokens))
        self._use(options)

    def adopt(self, told: setup.Initialize) -> None:
        """Apply the `initialize` request of the driver. Raise NotKept, and ValueError for malformed hooks."""
        if told.title and not self.inputs.any_prompt:
            self.name(told.title)
        if not told.options:
            return
        before = {} if told.replaces else self.options.client_mcp_configs
        configs = setup.merged_configs(before, told.options.get("client_mcp_configs", {}))
        options = replace(self.options, **{**told.options, "client_mcp_configs": configs})
        self._use_callbacks(options)
        if "json_schema" in told.options:
            self._use_demands(options)
        self._record(options, told.options)
        self.clients.use(options)

    def _use_demands(self, options: SessionOptions) -> None:
        after = options.background_after_ms / 1000
        self.agent.config.context.shells.background_after = after if after > 0 else None
        config = setup.demanded(self.agent.config, options, float(self.log.usage.spent["total_cost_usd"]))
        if config is not self.agent.config:
            self.agent.configure(config)

    def _use_callbacks(self, options: SessionOptions) -> None:
        unknown = self.hooks.use_callbacks(client_hooks(options.client_hooks))
        if unknown:
            self._warn(f"ccb has no hooks of the events {', '.join(unknown)[:500]}: they are not called.")

    async def _settle(self) -> None:
        context = self.agent.config.context
        moved = await context.directory.news()
        if moved:
            self.agent.reminders.add("root", moved)
        # What the model asks for is judged with the PATH of the login.
        problem = await context.login.settle(lambda text: self.log.say(informational(text)))
        if problem:
            self._warn(problem)
        await self.extensions.settle()
        if self.agent.program is not None:
            self.agent.program.begin()
        elif self.options.titles:
            self._title.ask_once()

    def _warn(self, text: str) -> None:
        self.log.say(informational(text, "warning"))

    def _use_settings(self, settings: WorkerSettings) -> None:
        permissions, context = self.agent.config.permissions, self.agent.config.context
        agent = self.options.foreign_agent
        if agent and not is_allowed(agent, settings.bound("agents")):
            raise ValueError(f"the policy of the laptop does not allow the agent {agent}")
        permissions.use_settings(settings)
        if not permissions.may_add(context.cwd):
            raise ValueError(f"the policy of the laptop does not allow sessions in {os.path.realpath(context.cwd)}")
        self.hooks.allowed = settings.bound("hooks")
        added = [*setup.added_directories(context.cwd, self.options), *settings.directories]
        context.add_dirs[:] = filter(permissions.may_add, added)
        if not self.agent.conversation.messages:  # a session that begins
            self._begin_as(settings)
        variables = context.login.variables
        variables.clear()
        variables.update(settings.env)
        variables.update(self.hooks.variables)
        self.agent.configure(replace(self.agent.config, settings=settings))

    def _begin_as(self, settings: WorkerSettings) -> None:
        model, mode = settings.of_project("model"), settings.of_project("defaultMode")
        if model and "model" in settings.left_open:
            if self.agent.config.names.may_be(model):
                self.agent.set_model(model)
            else:
                self._warn(f"the settings of this project name a model that is none: {model[:100]!r}")
        if mode and "permission_mode" in settings.left_open:
            permissions = self.agent.config.permissions
            permissions.set_mode(mode)
            self.log.say(mode_message(permissions))


def check_model(session: Session, name: str | None) -> None:
    if name and session.agent.program is None and not session.agent.config.names.may_be(name):
        raise RequestRefused(f"{name[:100]!r} is no model: it is {', '.join(ALIASES)}, or the full id of a model")


def find_task(session: Session, task_id: str) -> Task:
    task = session.tasks.get(task_id)
    if task is None:
        raise RequestRefused(f"No task found with ID: {task_id}")
    return task
