"""The settings of a session, and the question whether the project may count."""

from __future__ import annotations

import json
import logging
from dataclasses import asdict, replace
from typing import Callable

from ccb.tunnel.wire.control_protocol import TRUST_PROJECT, Broker, ProjectTrust, Request
from ccb.tunnel.wire.session_options import SessionOptions, SettingsOption

from ..session_store.journal import NotKept
from ..settings import worker_settings
from ..settings.project_switches import EVERY_CALL, Project, checked, read_project, unknown_keys
from ..settings.worker_settings import Layer, WorkerSettings
from ..system.deadline import in_thread

log = logging.getLogger(__name__)

MANAGED_FILE = "/etc/ccb/managed-settings.json"  # of the host's administrator
ANY_PROJECT = "*"
_MAX_QUESTION = 128 * 1024  # bytes


class SessionSettings:
    """`current` are those in force. Nothing of the project counts until `settle` has asked the laptop."""

    def __init__(self, cwd: str, home: str, broker: Broker, changed: Callable[[WorkerSettings], None]) -> None:
        self.current = WorkerSettings()
        self._cwd, self._home, self._broker, self._changed = cwd, home, broker, changed
        self._option = SettingsOption()
        self._settled = False
        self._problems: list[str] = []  # of the policy of the host
        self._trusted = ""  # the fingerprint of the project that counts
        self._plugin_dirs: list[str] = []
        self.plugin_problems: list[str] = []
        self.failure = ""  # why no turn may begin

    def use(self, options: SessionOptions) -> None:
        """Put a command line's settings in force. Raise FrameError, or ValueError for rules that cannot be read."""
        self._option = SettingsOption.from_json(options.settings)
        self._plugin_dirs = options.plugin_dirs
        self._settled = False
        self._put(None)

    async def settle(self) -> None:
        """Read the project once for each command line: what a session writes there does not count in it."""
        if self._settled:
            return
        await self.reload()

    async def reload(self) -> None:
        """Read the project again; what counted goes on to count if what is there now is not trusted."""
        self._settled, self.failure = True, ""
        try:
            project = await in_thread(read_project, self._cwd, self._home, self.current.sources)
            if self._problems:
                project = replace(project, problems=(*self._problems, *project.problems))
            if await self._counts(project):
                self._trusted = project.fingerprint
                self._put(project)
        except NotKept as error:
            self._settled = False
            log.warning("the question about trust was not asked: %s", error)
        except Exception as error:  # a bug must not make rules vanish: no turn begins
            self._settled = False
            log.exception("the settings of the project cannot be read")
            self.failure = f"The settings of {self._cwd} cannot be read: {type(error).__name__}: {error}"

    async def _counts(self, project: Project) -> bool:
        if not project.switches and not project.problems:
            return True
        trusted = (self._option.trusted, self._trusted)
        known = project.fingerprint in trusted or ANY_PROJECT in trusted
        if known and not project.problems:
            return True
        switches = [asdict(each) for each in project.switches]
        question = ProjectTrust(project.directories[0], project.fingerprint, switches, project.problems)
        if not self._option.trusted and all(each.name == EVERY_CALL for each in project.switches):
            question, known = ProjectTrust(question.directory, "", (), project.problems), False  # nobody wants that
        if len(json.dumps(asdict(question))) > _MAX_QUESTION:
            why_not = f"{question.directory}: it switches on more than can be shown, so nothing of it counts"
            question = ProjectTrust(question.directory, "", (), [*project.problems, why_not])
            known = False
        answer = await self._broker.request(Request(TRUST_PROJECT, question, "what the project switches on"))
        return known or (answer and bool(question.fingerprint))

    def _policy(self) -> list[Layer]:
        layer, notes = worker_settings.read_layer(MANAGED_FILE, worker_settings.MANAGED) or (None, [])
        if layer is None:
            return []
        wrong = [layer.broken] if layer.broken else checked(layer)
        if wrong:
            raise ValueError("the policy of this host cannot be used: %s" % wrong[0].partition("; ")[0])
        self._problems = [*notes, *unknown_keys(layer, ("disableBypassPermissionsMode", "allowManagedHooksOnly"))]
        return [layer]

    def _put(self, project: Project | None) -> None:
        option = self._option
        chosen = frozenset(option.sources) if option.sources is not None else WorkerSettings().sources
        layers = [
            Layer(str(each.get("source")), str(each.get("path", "")), each["values"], lines=each.get("lines", {}))
            for each in option.layers
            if each.get("source") in worker_settings.SOURCES and each["source"] not in worker_settings.OF_PROJECT
        ]
        layers = [each for each in layers if each.source != worker_settings.USER or worker_settings.USER in chosen]
        layers += self._policy()
        if project is not None:
            layers += project.layers
        plugins: tuple[worker_settings.Plugin, ...] = ()
        if self._plugin_dirs:
            self.plugin_problems = []
            read, more = worker_settings.read_plugins(self._plugin_dirs, self._cwd, self.plugin_problems.append)
            plugins, layers = tuple(read), [*layers, *more]
        self.current = WorkerSettings(
            tuple(sorted(layers, key=lambda each: worker_settings.SOURCES.index(each.source))),
            chosen,
            project is not None,
            project.directories if project is not None else (),
            tuple(option.left_open),
            plugins,
            project.agents if project is not None else {},
        )
        self._changed(self.current)
