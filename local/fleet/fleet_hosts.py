"""The places of a fleet: what the command line names, and the hosts of Ansible inventories."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import TypeAdapter

from ccb.tunnel.errors import UsageError
from ccb.tunnel.secret import without_secrets
from ccb.tunnel.ssh_config.ssh_target import flags_of
from ccb.tunnel.transports.command_transport import said_by
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.target import parse_target
from ..command_line.transport_choice import LOCAL_HOST
from ..dash.dash_hosts import named_places

_GROUPS = TypeAdapter(dict[str, dict[str, Any]])
_LISTED_S = 60.0  # seconds for an inventory: a dynamic one asks a cloud
_MAX_REFUSED = 20
_SSH = ("ssh", "smart", "paramiko", "ansible.builtin.ssh", "ansible.builtin.paramiko_ssh", "paramiko_ssh")
_LOCAL = ("local", "ansible.builtin.local")
_PASSWORDS = ("ansible_password", "ansible_ssh_pass", "ansible_ssh_password")
_WORDS_OF_SSH = ("ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_args")


@dataclass(frozen=True)
class FleetPlace:
    """A host and a directory there. `place` is `[user@]host[:path]`; `options` are words of the command line that lead
    to it. `host` is how it is called."""

    host: str
    place: str
    options: tuple[str, ...] = ()


async def fleet_places(
    words: Sequence[str], inventories: Sequence[str], limit: str | None, environ: Mapping[str, str]
) -> list[FleetPlace]:
    """Return the places that words and inventories name, each once. A word `:DIRECTORY` is for those that are named
    without one. Raises UsageError."""
    directory = next((word for word in words if word.startswith(":")), "")
    found = [_named(word, directory) for word in named_places(word for word in words if not word.startswith(":"))]
    listed = await inventory_places(inventories, limit, environ)
    found += [replace(each, place=each.place + directory) for each in listed]
    if not found:
        do = "Write HOST, @FILE or --inventory PATH, before an option of several words such as --allowedTools."
        raise UsageError("ccb fleet run needs hosts", do=do)
    return list({(each.place, each.options): each for each in found}.values())


async def inventory_places(
    inventories: Sequence[str], limit: str | None, environ: Mapping[str, str]
) -> list[FleetPlace]:
    """Return the hosts of the inventories. Raises UsageError."""
    if limit is not None and not inventories:
        raise UsageError("--limit is for the hosts of an inventory", do="Add --inventory PATH.")
    return [place for path in inventories for place in _inventory_places(await _listed(path, limit, environ), path)]


def _named(word: str, directory: str) -> FleetPlace:
    target = parse_target(word)
    place = word if target.path is not None else word + directory
    return FleetPlace(target.login, place, ("--local",) if target.login == LOCAL_HOST else ())


async def _listed(path: str, limit: str | None, environ: Mapping[str, str]) -> Mapping[str, Any]:
    """Return what `ansible-inventory --list` prints. Raises UsageError."""
    argv = ["ansible-inventory", "-i", path, "--list", *([] if limit is None else ["--limit", limit])]
    try:
        status, out, err = await said_by(argv, env=without_secrets(environ), deadline_s=_LISTED_S)
        if status == 0:
            return _GROUPS.validate_json(out)
    except (TimeoutError, ValueError) as error:
        err = str(error) or f"It took longer than {_LISTED_S:g} s."
    raise UsageError(f"the inventory {path} cannot be listed", evidence=err[-2000:], do=f"Try {shlex.join(argv)}")


def _inventory_places(listed: Mapping[str, Any], path: str) -> list[FleetPlace]:
    """Return the hosts of an inventory. Raise UsageError, which names what cannot be honoured on which host."""
    names = dict.fromkeys(name for group in listed.values() for name in group.get("hosts", ()))
    found, refused = [], []
    for name in names:
        try:
            found.append(_place(name, listed.get("_meta", {}).get("hostvars", {}).get(name, {})))
        except ValueError as error:
            refused.append(f"{name}: {error}")
    if refused:
        raise UsageError(
            f"the inventory {path} asks for what ccb does not do on {len(refused)} of {len(names)} hosts",
            evidence="\n".join(refused[:_MAX_REFUSED]),
            do="Leave these hosts out with --limit, or name them without the inventory.",
        )
    if not names:
        raise UsageError(f"the inventory {path} has no such hosts", do="`ansible-inventory --graph` shows them.")
    return found


def _place(name: str, variables: Mapping[str, Any]) -> FleetPlace:
    """Return a host by its variables. Raise ValueError for one that means what cannot be honoured."""
    if str(variables.get("ansible_become", False)).lower() not in ("false", "no", "0", ""):
        raise ValueError("ansible_become: ccb works as the user of the login")
    for each in _PASSWORDS:
        if each in variables:
            raise ValueError(f"{each}: ccb logs in with keys; passwords are not taken from inventories")
    how = _text(variables, "ansible_connection") or "ssh"
    if how in _LOCAL:
        return FleetPlace(name, LOCAL_HOST, ("--local",))
    if how not in _SSH:
        raise ValueError(f"ansible_connection: {how} is not ssh")
    host = _text(variables, "ansible_host", "ansible_ssh_host") or name
    user = _text(variables, "ansible_user", "ansible_ssh_user")
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    options = [word for each in _WORDS_OF_SSH for word in _of_ssh(each, _text(variables, each))]
    if key := _text(variables, "ansible_ssh_private_key_file", "ansible_private_key_file"):
        options += ["-i", key]
    if port := _text(variables, "ansible_port", "ansible_ssh_port"):
        options += ["-P", port]
    place = f"{user}@{host}" if user else host
    try:
        parse_target(place)
    except UsageError as error:
        raise ValueError(error.what) from None
    return FleetPlace(name, place, tuple(options))


def _of_ssh(variable: str, text: str) -> Iterator[str]:
    """Yield ccb's words for the words of ssh in a variable."""
    flags = flags_of(["ssh", *shlex.split(text)])
    if text and not flags:
        raise ValueError(f"{variable}: {text} is not understood")
    for flag, value in flags:
        if flag == "-J":
            yield from ("-o", f"ProxyJump={value}")
        elif flag in ("-o", "-i", "-p"):
            yield from (flag.replace("p", "P"), value)
        elif flag not in ("-C", "-q", "-T"):
            raise ValueError(f"{variable}: {flag} is not an option of ccb; -o, -J, -i and -p are")


def _text(variables: Mapping[str, Any], *names: str) -> str:
    """Return the first variable that is set. Raise ValueError for a value that only Ansible can read."""
    for name in names:
        value = variables.get(name)
        if isinstance(value, dict | list):
            raise ValueError(f"{name}: it is encrypted (vault)" if "__ansible_vault" in value else f"{name}: no text")
        if value is not None and "{{" in str(value):
            raise ValueError(f"{name}: {value} is a template, which only Ansible fills in")
        if value not in (None, ""):
            return str(value)
    return ""
