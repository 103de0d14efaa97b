"""What the files of a project would switch on, for `ccb trust` and `ccb config show`."""

from __future__ import annotations

import os
from dataclasses import asdict

from ..sessions.directory import resolve_directory
from ..sessions.paths import home_directory
from ..settings.project import read_project
from ..settings.worker_settings import LOCAL, PROJECT
from .report import Reports


def describe_project(path: str, reports: Reports) -> None:
    """Report the project of a directory, each problem with its files, and each thing that it switches on. Raise
    HostRefusal if there is no such directory."""
    directory = resolve_directory(path)
    project = read_project(directory, home_directory() or os.path.expanduser("~"), frozenset((PROJECT, LOCAL)))
    reports.report("project", {"directory": project.directories[0], "fingerprint": project.fingerprint})
    for text in project.problems:
        reports.report("problem", {"text": text})
    for switch in project.switches:
        reports.report("switch", asdict(switch))
