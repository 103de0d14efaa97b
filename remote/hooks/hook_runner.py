"""Runs the hooks of an event, and merges their answers: `outcome = await hooks.run(EVENT, {its own fields}, match)`.
They are in the journal before they run. Without a matching hook it costs nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from typing import Any, Callable, Optional

from ccb.tunnel.wire.control_protocol import HOOK_CALLBACK, Broker, HookCallback, Request, RequestFailed, new_uuid
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.journal_records import MAIN_AGENT, HookRecord, MessageRecord
from ccb.tunnel.wire.model_facts import CCB_NAMES, ModelNames
from ccb.tunnel.wire.policy_patterns import Patterns, is_allowed

from ..permissions.engine import PermissionEngine
from ..session_store.journal import NotKept
from ..session_store.session_log import SessionLog
from ..settings.worker_settings import MANAGED, Sourced
from ..system.deadline import in_thread, within, within_while
from ..system.host import Host, nearest_directory
from . import hook_table as events
from .hook_kinds import Judge, decide, make_env_file, run_command, send, take_env_file
from .hook_outcome import NOTHING, HookOutcome, failed, merged, read_answer, read_output
from .hook_table import Hook, Json, read_hooks


@dataclass(frozen=True)
class HookContext:
    """What a session lends to its hooks. `remind` tells the main agent what a hook says that nothing waited for.
    `connected`: the driving program can be reached. `reports`: the client wants a message about each hook. `directory`
    is the session's own, "" without one. Commands run with `variables`, to which SessionStart hooks add."""

    cwd: str
    host: Host
    broker: Broker
    log: SessionLog
    permissions: PermissionEngine
    remind: Callable[[str, str], None]
    connected: Callable[[], bool] = lambda: True
    allow_private: Callable[[], bool] = lambda: False
    reports: Callable[[], bool] = lambda: False
    directory: str = ""
    variables: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HookTurn:
    """The turn of the main agent, as its hooks see it. `names` are the short names of models. `judge` asks a model for
    hooks of the type `prompt`. `effort` says how hard the model is to think, "" where that is left to it."""

    names: ModelNames = CCB_NAMES
    judge: Judge | None = None
    prompt_id: str = ""
    effort: str = ""


@dataclass(frozen=True)
class HookWork:
    """An agent that works: its name, its own hooks, and the directory where hooks run for it, "" for the session's."""

    agent_type: str = ""
    hooks: Sequence[Hook] = ()
    cwd: str = ""


NOBODY = HookWork()

_log = logging.getLogger(__name__)

_END_S = 5.0
_QUICK_S = 1.0  # a hook that takes longer shows its status message
_MAX_LATER = 20  # runs of hooks beside the turn
_MAX_TOLD = 100  # warnings about hooks and their answers
_EVERY_S = 1.0  # between two looks at the files that are watched
_MAX_FILES = 100

State = Optional[tuple[int, int, int]]  # the time, size and inode of a file


class HookRunner:
    """`hooks` are all hooks in force. They run on the host, outside the cages, as commands of the person. `setup` names
    the Setup hooks that are due before those of SessionStart, "" for none. `source` is `startup` for a new session,
    else `resume`. `ran` are the keys of the hooks that have run and run only once."""

    def __init__(self, session: HookContext, setup: str = "", source: str = "startup", ran: Iterable[str] = ()) -> None:
        self.variables: dict[str, str] = {}  # what hooks have set for the commands of the session
        self.problems: list[str] = []  # what is wrong with the configured hooks
        self._session = session
        self._due: tuple[str, str] | None = setup, source  # until the SessionStart hooks of this worker run
        self._ran = set(ran)
        self._turn = HookTurn()
        self._configured: tuple[Hook, ...] = ()
        self._callbacks: tuple[Hook, ...] = ()
        self._agents: dict[str, HookWork] = {}
        self.allowed: Patterns = None  # by the policy, besides its own hooks
        self._initial = ""  # what goes before the first prompt that reaches the model
        self._watching: asyncio.Task[None] | None = None
        self._watched: tuple[str, ...] = ()  # what hooks want to be watched
        self._directories: dict[str, str] = {}  # of the shell of each agent
        self._told: set[str] = set()
        self._later: set[asyncio.Task[HookOutcome]] = set()

    @property
    def hooks(self) -> Sequence[Hook]:
        """All hooks, with those of the agents that work."""
        agents = chain.from_iterable(each.hooks for each in self._agents.values())
        return tuple(filter(self._may_run, (*self._configured, *self._callbacks, *agents)))

    def begin_turn(self, turn: HookTurn, sources: Iterable[Sourced]) -> Sequence[str]:
        """Use the hooks of these settings, which are trusted. A notification hook of the person's own settings runs on
        the laptop and is left out. Return what is wrong with others, once."""
        self._turn = turn
        self.problems = []
        hooks = read_hooks(sources, self.problems.append, turn.names)
        left_out = events.NOTIFICATION, "user"
        self._configured = tuple(each for each in hooks if (each.event, each.layer.source) != left_out)
        self._look_at_files()
        return [text for text in self.problems if self._is_news(text)]

    def _is_news(self, text: str) -> bool:
        if text in self._told or len(self._told) >= _MAX_TOLD:
            return False
        self._told.add(text)
        return True

    async def begin_session(self, model: str) -> HookOutcome:
        """Run the Setup hooks that are due and those of SessionStart, once in this worker. Raise NotKept."""
        if self._due is None:
            return NOTHING
        setup, source = self._due
        self._due = "", source
        if setup:
            self._remind(events.SETUP, events.SETUP, await self.run(events.SETUP, {"trigger": setup}, setup))
        self._due = None
        outcome = await self.conversation_starts(source, model)
        self._initial = outcome.own.get("initialUserMessage", "")
        return outcome

    async def conversation_starts(self, source: str, model: str) -> HookOutcome:
        """Run the SessionStart hooks, and let the main agent know what they say. Raise NotKept."""
        outcome = await self.run(events.SESSION_START, {"source": source, "model": model}, source)
        self._remind(events.SESSION_START, events.SESSION_START, outcome)
        return outcome

    def take_initial(self) -> str:
        """Return once what SessionStart hooks want to tell the model before its first prompt, "" for nothing."""
        said, self._initial = self._initial, ""
        return said

    def _remind(self, key: str, name: str, outcome: HookOutcome) -> None:
        if outcome.context:
            said = "\n\n".join(outcome.context)
            self._session.remind(key, f"{name} hook additional context: {said}")

    def _may_run(self, hook: Hook) -> bool:
        """A hook that cannot be read runs nothing: it refuses."""
        return bool(hook.broken) or hook.layer.source == MANAGED or is_allowed(hook.does, self.allowed)

    def use_callbacks(self, hooks: Sequence[Hook]) -> Sequence[str]:
        """Use the callbacks of the driving program (`client_hooks`). Return its events that ccb does not have."""
        self._callbacks = tuple(hooks)
        self._look_at_files()
        return sorted({hook.event for hook in hooks} - {*events.EVENTS})

    def begin(self, agent_id: str, agent_type: str, hooks: Sequence[Hook], cwd: str = "") -> None:
        """Let these hooks run for the events of one agent, besides the others, until `leave` is called. The end of a
        sub-agent is a Stop for them. All hooks of its events run in `cwd`, "" for the session's directory."""
        if agent_id:
            hooks = [replace(each, event=events.SUBAGENT_STOP) if each.event == events.STOP else each for each in hooks]
        self._agents[agent_id] = HookWork(agent_type, hooks, cwd)

    def leave(self, agent_id: str) -> None:
        self._agents.pop(agent_id, None)
        self._directories.pop(agent_id, None)

    def matching(self, event: str, match: str = "", agent_id: str = MAIN_AGENT) -> list[Hook]:
        """Return the hooks that run for an event of an agent, each command and callback once."""
        found: dict[tuple[str, str], Hook] = {}
        for hook in (*self._configured, *self._callbacks, *self._agents.get(agent_id, NOBODY).hooks):
            if hook.event == event and hook.matches(match) and self._may_run(hook):
                found[hook.does, hook.condition] = hook
        return list(found.values())

    async def run(
        self, event: str, payload: Json, match: str = "", *, about: str = "", agent_id: str = MAIN_AGENT
    ) -> HookOutcome:
        """Run the hooks of an event. `match` is for matchers, `about` the id of the tool call. Raise NotKept."""
        session = self._session
        hooks = [each for each in self.matching(event, match, agent_id) if self._is_due(each, match, payload)]
        if not hooks:
            return NOTHING
        once = [each.key for each in hooks if each.once]
        self._ran.update(once)
        session.log.emit(HookRecord(event, match, about, len(hooks), " ".join(once)), agent_id)
        await session.log.commit()
        whole = {**self._facts(event, agent_id), **payload}
        name = f"{event}:{match}" if match else event
        for hook in hooks:
            if hook.beside:
                self._keep(self._beside(hook, name, whole, agent_id))
        waited = [hook for hook in hooks if not hook.beside]
        if not waited:
            return NOTHING
        env_file = self._env_file(event, waited)
        running = {asyncio.ensure_future(self._one(hook, match, whole, about, env_file)): hook for hook in waited}
        outcome = await self._together(running, env_file, agent_id)
        if "watchPaths" in outcome.own:
            self._watched = outcome.own["watchPaths"]
            self._look_at_files()
        self._tell_all(outcome, name, agent_id)
        return outcome

    def _is_due(self, hook: Hook, name: str, payload: Json) -> bool:
        if hook.once and hook.key in self._ran:
            return False
        given = payload.get("tool_input") or {}
        return not hook.condition or self._session.permissions.covers(hook.condition, name, given)

    def _env_file(self, event: str, hooks: Iterable[Hook]) -> str:
        """Return a new file for the variables that commands set, "" where none may be set."""
        wanted = event in events.SETS_VARIABLES and any(hook.kind == "command" for hook in hooks)
        return make_env_file(self._session.directory) if wanted and self._session.directory else ""

    async def _together(self, tasks: Mapping[asyncio.Task[HookOutcome], Hook], file: str, agent_id: str) -> HookOutcome:
        try:
            if any(hook.status for hook in tasks.values()):
                _, slow = await asyncio.wait(tasks, timeout=_QUICK_S)
                for status in filter(None, (tasks[task].status for task in slow)):
                    self._tell(f"{status} …", "info", agent_id)
            outcome = merged(await asyncio.gather(*tasks))
            if file:
                await self._take_variables(file)
            return outcome
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _facts(self, event: str, agent_id: str) -> Json:
        session, working, turn = self._session, self._agents.get(agent_id, NOBODY), self._turn
        more = {
            "prompt_id": turn.prompt_id,
            "effort": {"level": turn.effort} if turn.effort else None,
            "agent_id": agent_id,
            "agent_type": working.agent_type,
        }
        return {
            "session_id": session.log.session_id,
            "transcript_path": session.log.journal.path,
            "cwd": working.cwd or session.cwd,
            "permission_mode": session.permissions.mode,
            "hook_event_name": event,
            **{name: value for name, value in more.items() if value},
        }

    def _look_at_files(self) -> None:
        """Watch the files that FileChanged hooks and the answers of hooks name."""
        if self._named_files() and self._watching is None:
            self._watching = asyncio.ensure_future(self._watch_files())

    def _named_files(self) -> list[str]:
        wanted = [each for each in (*self._configured, *self._callbacks) if each.event == events.FILE_CHANGED]
        here = self._directories.get(MAIN_AGENT, self._session.cwd)
        names = [*(name for each in wanted for name in each.names), *self._watched] if wanted else []
        return list(dict.fromkeys(os.path.join(here, name) for name in names))[:_MAX_FILES]

    async def _watch_files(self) -> None:
        known: dict[str, State] = {}
        while True:
            now = await in_thread(_states, self._named_files())
            for path, state in now.items():
                if path in known and state != known[path]:
                    event = "unlink" if state is None else "add" if known[path] is None else "change"
                    self.run_later(events.FILE_CHANGED, {"file_path": path, "event": event}, path)
            known = now
            await asyncio.sleep(_EVERY_S)

    async def directory_is(self, directory: str, agent_id: str = MAIN_AGENT) -> None:
        """Note the directory of an agent's shell, and run the CwdChanged hooks if it is a new one. Raise NotKept."""
        old = self._directories.get(agent_id) or self._agents.get(agent_id, NOBODY).cwd or self._session.cwd
        self._directories[agent_id] = directory
        if directory != old:
            self._look_at_files()
            await self.run(events.CWD_CHANGED, {"old_cwd": old, "new_cwd": directory}, agent_id=agent_id)

    async def _take_variables(self, env_file: str) -> None:
        try:
            self.variables.update(await take_env_file(self._session.host, env_file, self._session.cwd))
        except OSError as error:
            _log.warning("the variables of hooks are not known: %s", error)
        self._session.variables.update(self.variables)

    async def _beside(self, hook: Hook, name: str, payload: Json, agent_id: str) -> HookOutcome:
        outcome = await self._one(hook, name.partition(":")[2], payload, "")
        self._tell_all(outcome, name, agent_id)
        self._remind(f"hook:{hook.key}", name, outcome)
        return outcome

    def _tell_all(self, outcome: HookOutcome, name: str, agent_id: str) -> None:
        for text in outcome.notes:
            self._tell(text, "info", agent_id)
        for field_name in outcome.unknown:
            text = f"ccb does not know {field_name} in the answer of a {name.partition(':')[0]} hook: it has no effect."
            if self._is_news(text):
                self._tell(text, "warning", agent_id)
        for text in outcome.errors:
            self._tell(f"A {name} hook failed: {text}", "warning", agent_id)

    def run_later(self, event: str, payload: Json, match: str = "", *, agent_id: str = MAIN_AGENT) -> None:
        """Run the hooks of an event beside the turn, because nothing waits for what they decide."""
        if self.matching(event, match, agent_id):
            self._keep(self.run(event, payload, match, agent_id=agent_id))

    def _keep(self, work: Coroutine[Any, Any, HookOutcome]) -> None:
        if len(self._later) >= _MAX_LATER:
            work.close()
            return
        task = asyncio.ensure_future(work)
        self._later.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[HookOutcome]) -> None:
        self._later.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.warning("hooks beside the turn failed: %s", task.exception())

    async def conversation_ends(self, reason: str) -> None:
        """Run the SessionEnd hooks, for 5 seconds at most. Raise NotKept."""
        try:
            await within(_END_S, self.run(events.SESSION_END, {"reason": reason}, reason))
        except asyncio.TimeoutError:
            _log.warning("the SessionEnd hooks were stopped: no end within %g s", _END_S)

    async def end(self, reason: str) -> None:
        """Run the SessionEnd hooks if a turn ever began here, and stop those beside the turns. Does not raise."""
        if self._due is None:
            self._callbacks = ()
            try:
                await self.conversation_ends(reason)
            except NotKept as error:
                _log.warning("the SessionEnd hooks were stopped: %s", error)
        tasks = [*self._later, *([self._watching] if self._watching is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _one(self, hook: Hook, match: str, payload: Json, about: str, env_file: str = "") -> HookOutcome:
        try:
            outcome = await self._answer(hook, match, payload, about, env_file)
        except NotKept:
            raise
        except RequestFailed as error:  # a callback or a model has answered, with an error
            is_callback = hook.kind == "callback"
            outcome = HookOutcome(errors=(str(error),)) if is_callback else failed(hook.event, str(error))
        except Exception as error:  # noqa: BLE001 - a hook that cannot run does not open its gate
            _log.warning("a hook of %s failed: %s", hook.event, error)
            outcome = failed(hook.event, str(error) or type(error).__name__)
        if outcome.errors and hook.must_decide and not outcome.blocked:
            return HookOutcome("deny", f"The hook failed: {outcome.errors[0]}")
        if outcome.errors and outcome.blocked and payload.get("stop_hook_active"):
            return HookOutcome(errors=outcome.errors)  # the agent has heard of it; one more try would change nothing
        return outcome

    async def _answer(self, hook: Hook, match: str, payload: Json, about: str, env_file: str) -> HookOutcome:
        session = self._session
        if hook.broken:
            return failed(hook.event, hook.broken)
        if hook.kind == "command":
            return await self._command(hook, match, payload, env_file)
        if hook.kind == "http":
            answer = await send(hook, payload, allow_private=session.allow_private())
            return read_output(hook.event, 0, answer, "")
        try:  # time without a connection does not count: the client and the model are asked through it
            if hook.kind == "callback":
                request = Request(HOOK_CALLBACK, HookCallback(hook.what, payload, about or new_uuid()), hook.event)
                asking = session.broker.request(request)
                return read_answer(hook.event, await within_while(hook.timeout_s, session.connected, asking))
            if self._turn.judge is None:
                raise RequestFailed("no model can be asked here")
            deciding = decide(hook, payload, self._turn.judge)
            return await within_while(hook.timeout_s, session.connected, deciding)
        except asyncio.TimeoutError:
            if hook.kind == "prompt":
                raise RequestFailed(f"the model has not answered within {hook.timeout_s:g} s") from None
            text = f"no answer within {hook.timeout_s:g} s"
            outcome = failed(hook.event, text)
            return replace(outcome, reason=f"The hook gave {text}.") if outcome.blocked else outcome

    async def _command(self, hook: Hook, match: str, payload: Json, env_file: str) -> HookOutcome:
        session = self._session
        facts = {"hook_id": new_uuid(), "hook_name": f"{hook.event}:{match}", "hook_event": hook.event}
        self._report("hook_started", facts)
        data = json.dumps(payload).encode() + b"\n"
        env = {**session.variables, **({"CLAUDE_ENV_FILE": env_file} if env_file else {})}
        end = await run_command(session.host, hook.what, str(payload["cwd"]), data, hook.timeout_s, env, session.cwd)
        if end.code is None:
            outcome = failed(hook.event, f"stopped after {hook.timeout_s:g} s: {hook.what[:200]}")
        else:
            outcome = read_output(hook.event, end.code, end.stdout, end.stderr, whole=end.whole)
            if end.code not in (0, 2) and await in_thread(nearest_directory, session.cwd) != session.cwd:
                # what the command needs may be gone with it
                outcome = failed(hook.event, f"{outcome.errors[0]} ({session.cwd} is gone or closed)")
        how = "error" if outcome.errors else "success"
        printed = {"output": end.stdout + end.stderr, "stdout": end.stdout, "stderr": end.stderr}
        self._report("hook_response", {**facts, **printed, "exit_code": end.code, "outcome": how})
        return outcome

    def _report(self, subtype: str, facts: Json) -> None:
        if self._session.reports():
            self._session.log.emit(MessageRecord({"type": "system", "subtype": subtype, **facts}), MAIN_AGENT)

    def _tell(self, text: str, level: str, agent_id: str) -> None:
        body = {"type": "system", "subtype": "informational", "content": text, "level": level}
        self._session.log.emit(MessageRecord(body), agent_id)


def _states(paths: Iterable[str]) -> dict[str, State]:
    found: dict[str, State] = dict.fromkeys(paths)
    for path in found:
        with contextlib.suppress(OSError, ValueError):
            info = os.stat(path)
            found[path] = info.st_mtime_ns, info.st_size, info.st_ino
    return found
