"""What the person decided about projects: directories on hosts, which are known by their host keys, not by names."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from pathlib import Path

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.transport_choice import shown_host
from .settings import config_dir
from .settings_file import locked, parse_settings, read_settings_text, replace_file

_MAX_PROJECTS = 1000
RULE_KINDS = ("allow", "ask", "deny")
DIRECTORIES = "additionalDirectories"
_KINDS = (*RULE_KINDS, DIRECTORIES)
EVERYWHERE = "*"
"""Stands for the directory of what holds for a whole host."""


@dataclass(frozen=True)
class HostIdentity:
    """`name` is what the person calls it; `keys` are the fingerprints of its host keys, or what else identifies it."""

    name: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class ProjectRecord:
    """`trusted` is the fingerprint of what was trusted, "" for nothing; `permissions` are what "always" has added. The
    ports in `ignored_ports` are not offered."""

    host: HostIdentity
    directory: str
    trusted: str = ""
    permissions: Mapping[str, list[str]] = field(default_factory=dict)
    ignored_ports: tuple[int, ...] = ()

    @property
    def lines(self) -> list[str]:
        where = f"{shown_host(self.host.name)}:{HostText(self.directory).path}"
        trusted = [f"{where} is trusted"] if self.trusted else []
        rules = [(kind, rule) for kind, rules in self.permissions.items() for rule in rules]
        kept = [f"{where} permissions.{kind} = {json.dumps(rule)}" for kind, rule in rules]
        return [*trusted, *kept, *(f"{where} does not offer port {port}" for port in self.ignored_ports)]

    def fits(self, host: HostIdentity, directory: str) -> bool:
        return self.directory == directory and not set(self.host.keys).isdisjoint(host.keys)


def projects_path(environ: Mapping[str, str] = os.environ) -> Path:
    return config_dir(environ) / "projects.json"


class Projects:
    """The file. Every method blocks, and may raise ConfigError."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.path = projects_path(environ)
        self._environ = environ

    def knows(self, *directories: str) -> bool:
        return any(each.directory in (*directories, EVERYWHERE) for each in self.all())

    def find(self, host: HostIdentity, directory: str) -> ProjectRecord:
        """Return the record of a project, with the permissions that hold for its whole host."""
        records = self.all()
        own, host_wide = (
            next((each for each in records if each.fits(host, place)), ProjectRecord(host, place))
            for place in (directory, EVERYWHERE)
        )
        both = {kind: [*own.permissions.get(kind, ()), *host_wide.permissions.get(kind, ())] for kind in _KINDS}
        return replace(own, permissions=_rules(both))

    def trust(self, host: HostIdentity, directory: str, fingerprint: str) -> None:
        with self._changing() as records:
            records.append(replace(_taken(records, host, directory), trusted=fingerprint))

    def forget(self, chosen: Callable[[ProjectRecord], bool]) -> list[ProjectRecord]:
        with self._changing() as records:
            gone = [each for each in records if chosen(each)]
            records[:] = [each for each in records if each not in gone]
        return gone

    def change_rules(
        self, host: HostIdentity, directory: str, kind: str, rules: Sequence[str], *, add: bool, only: bool = False
    ) -> None:
        """Add rules or directories to those of a project, or remove them. `only`: they replace the others."""
        with self._changing() as records:
            old = _taken(records, host, directory)
            held = [rule for rule in old.permissions.get(kind, ()) if rule not in rules and not only]
            changed = {**old.permissions, kind: [*held, *dict.fromkeys(rules)] if add else held}
            records.append(replace(old, permissions=_rules(changed)))

    def ignore_port(self, host: HostIdentity, directory: str, port: int) -> None:
        with self._changing() as records:
            old = _taken(records, host, directory)
            records.append(replace(old, ignored_ports=tuple(sorted({*old.ignored_ports, port}))))

    @contextmanager
    def _changing(self) -> Iterator[list[ProjectRecord]]:
        """Yield all records, and write them back. Other processes wait meanwhile."""
        with locked(self.path.with_suffix(".lock")):
            records = self.all()
            yield records
            projects = [
                {
                    "host": each.host.name,
                    "keys": list(each.host.keys),
                    "directory": each.directory,
                    "trusted": each.trusted,
                    "permissions": each.permissions,
                    **({"ignoredPorts": each.ignored_ports} if each.ignored_ports else {}),
                }
                for each in records[-_MAX_PROJECTS:]
            ]
            try:
                replace_file(self.path, json.dumps({"projects": projects}, indent=1))
            except OSError as error:
                raise ConfigError(f"{self.path} cannot be written", evidence=str(error.strerror)) from None

    def all(self) -> list[ProjectRecord]:
        text = read_settings_text(self.path, self._environ)
        data = parse_settings(str(self.path), text) if text is not None else {}
        try:
            return [
                ProjectRecord(
                    HostIdentity(str(each["host"]), tuple(map(str, each["keys"]))),
                    str(each["directory"]),
                    str(each.get("trusted", "")),
                    _rules(each.get("permissions", {})),
                    tuple(map(int, each.get("ignoredPorts", ()))),
                )
                for each in data.get("projects", [])
            ]
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConfigError(f"{self.path} is damaged", do=f"Correct {self.path}, or remove it.") from None


def _taken(records: list[ProjectRecord], host: HostIdentity, directory: str) -> ProjectRecord:
    """Take the record of a project out of `records`, and return it with the present keys of its host."""
    found = next((each for each in records if each.fits(host, directory)), ProjectRecord(host, directory))
    if found in records:
        records.remove(found)
    return replace(found, host=host)


def _rules(permissions: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    return {kind: [*map(str, permissions[kind])] for kind in _KINDS if permissions.get(kind)}
