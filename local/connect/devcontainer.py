"""`--devcontainer`: the container of a folder of the host, found by the label that the devcontainer tools give it.

`devcontainer.json` comes from the host. ccb takes a user, a folder and ports from it, and runs none of its commands;
`devcontainer up` does, which the person has asked for with the option.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pydantic import AliasPath, BaseModel, Field, TypeAdapter, ValidationError

from ccb.tunnel.errors import DeployError, NoSuchPath, UsageError
from ccb.tunnel.plain_text import HostText, neutralise, one_line
from ccb.tunnel.transports.container import container_name
from ccb.tunnel.transports.login_prompts import Prompts, tell_once
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments
from ..command_line.transport_choice import host_label
from .host_script import run_command

_PATH = "PATH=$PATH:/usr/local/bin:/usr/bin:/bin"
_LOOK = """
echo "$M folder"; pwd
for C in .devcontainer/devcontainer.json .devcontainer.json; do
    test -f "$C" && { echo "$M file $C"; head -c 262144 "$C"; break; }
done
for D in docker podman; do
    command -v $D >/dev/null || continue
    for I in $($D ps -aq --filter "label=devcontainer.local_folder=$(pwd)"); do
        echo "$M container"; $D container inspect "$I"
    done
done
command -v devcontainer >/dev/null && echo "$M cli"
exit 0
"""
_LOOK_S = 60.0
_MAX_LINE = 200
_MAX_PORTS = 20
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
# Looks at nothing twice: the host may have written something that takes for ever otherwise.
_JSONC = re.compile(rf'("(?:[^"\\]|\\.?)*+(?:"|\Z))|{_COMMENT}|,(?=(?:\s|{_COMMENT})*+[}}\]])', re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,100}")
_PART = re.compile(r"\$\{([A-Za-z]+)(?::([A-Za-z_][A-Za-z0-9_]*))?(?::[^}]*)?\}|[^$]+|\$")  # a reference, or plain
_VALUE = re.compile(r"[^\x00-\x1f\x7f'\\!]{0,2000}")  # can stand in the line for the host
_MAX_VARIABLES = 50


class _Config(BaseModel):
    """What ccb takes from `devcontainer.json`, and from an entry of a container's label `devcontainer.metadata`."""

    workspaceFolder: str | None = None
    remoteUser: str | None = None
    containerUser: str | None = None
    forwardPorts: list[int | str] = []
    remoteEnv: dict[str, str | None] = {}


class _Mount(BaseModel):
    source: str = Field("", alias="Source")
    destination: str = Field("", alias="Destination")


class _Container(BaseModel):
    """A container, as `docker container inspect` and that of podman print it."""

    name: str = Field(alias="Name")
    running: bool = Field(False, validation_alias=AliasPath("State", "Running"))
    labels: dict[str, str] | None = Field(None, validation_alias=AliasPath("Config", "Labels"))
    env: list[str] | None = Field(None, validation_alias=AliasPath("Config", "Env"))
    mounts: list[_Mount] | None = Field(None, alias="Mounts")


@dataclass(frozen=True)
class _Found:
    """What the host has for a folder. `config` is what its file says. `cli`: the devcontainer CLI is on its PATH;
    `warned`: what the engine said."""

    folder: str
    config: _Config | None
    containers: Sequence[_Container]
    cli: bool
    warned: str

    @property
    def running(self) -> _Container | None:
        return next((each for each in self.containers if each.running), None)


async def entered(arguments: Arguments, prompts: Prompts, host: Transport) -> tuple[Arguments, tuple[str, ...]]:
    """Find or start the container of the folder. Return the arguments that lead there, and sentences about what is left
    out. Raises CcbError."""
    folder, shown = arguments.directory or "", host_label(arguments.connection)
    found = await _look(host, folder, shown)
    if found.running is None:
        _check_startable(found, folder, shown)
        tell_once(
            prompts,
            one_line(
                f"`devcontainer up` starts the container of {folder} on {shown}, and runs the commands that "
                "devcontainer.json names; this may take minutes"
            ),
        )
        up = f'{_PATH}; exec devcontainer up --workspace-folder "$(pwd)" 2>&1'
        ended = await run_command(host, up, folder)
        found = await _look(host, folder, shown)
        if ended.code or found.running is None:
            raise DeployError(
                f"`devcontainer up` has not started the container of {folder} on {shown} (status {ended.code})",
                evidence=neutralise("\n".join(ended.text.splitlines()[-10:])),
                do="Correct what it says, or start the container by hand; then try again.",
            )
    return _inside(arguments, found, found.running)


async def _look(host: Transport, folder: str, shown: str) -> _Found:
    mark = f"ccb-{secrets.token_hex(8)}"
    try:
        async with asyncio.timeout(_LOOK_S):
            looked = await run_command(host, f"M={mark} {_PATH}{_LOOK}", folder)
    except TimeoutError:
        what = f"{shown} has not said within {_LOOK_S:g} s which containers it has"
        raise DeployError(what, do="Check docker or podman there: `docker ps`.") from None
    config, file, path, cli = None, "", "", False
    containers: list[_Container] = []
    for part in looked.text.split(f"{mark} ")[1:]:
        head, _, text = part.partition("\n")
        kind, _, name = head.partition(" ")
        if kind == "folder":
            path = text.rstrip("\n")
        elif kind == "file":
            file = name
            with _readable(f"{HostText(file)} of {folder} on {shown}"):
                config = _Config.model_validate_json(without_comments(text), strict=True)
        elif kind == "container":
            with _readable(f"what the engine says of the container of {folder} on {shown}"):
                containers += TypeAdapter(list[_Container]).validate_json(text)
        cli = cli or kind == "cli"
    if not path.startswith("/"):
        raise DeployError(f"{shown} has not said which containers it has", do="Name the container: --container NAME.")
    own = [each for each in containers if _belongs(each, file)]
    return _Found(path, config, own, cli, looked.stderr)


@contextmanager
def _readable(what: str) -> Iterator[None]:
    try:
        yield
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        raise DeployError(
            f"{what} cannot be read",
            evidence=f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}".removeprefix(": "),
            do="Correct it, or name the container: --container NAME.",
        ) from None


def _belongs(container: _Container, file: str) -> bool:
    """Whether a container of the folder was made from `file`. Without a label it may have been."""
    label = (container.labels or {}).get("devcontainer.config_file", "")
    return not (label and file) or label.endswith(f"/{file}")


def without_comments(text: str) -> str:
    """Return JSON without the comments and the commas before a bracket that JSON with comments may have."""
    return _JSONC.sub(lambda match: match[1] or " ", text)


def _check_startable(found: _Found, folder: str, shown: str) -> None:
    """Raise DeployError if ccb cannot start the container."""
    if found.config is None and not found.containers:
        raise NoSuchPath(
            f"{folder} on {shown} has no devcontainer.json, and no container belongs to it",
            do="Name the folder that has .devcontainer/devcontainer.json, or a container: --container NAME.",
        )
    if not found.cli:
        stopped = next((each.name.lstrip("/") for each in found.containers), "")
        state = f"its container {HostText(stopped)} is stopped" if stopped else "it has no container yet"
        raise DeployError(
            f"no container runs for {folder} on {shown}: {state}, and the host has no devcontainer CLI to start "
            "it with",
            evidence=found.warned,
            do="Start it there (`docker start NAME`, `devcontainer up --workspace-folder PATH`, or in your editor), "
            "then try again. `npm install -g @devcontainers/cli` installs the CLI.",
        )


def _inside(arguments: Arguments, found: _Found, container: _Container) -> tuple[Arguments, tuple[str, ...]]:
    """Return the arguments that lead into the container, and sentences about what is left out. The tools write the
    settings of the image and of the file into a label of the container, the strongest last."""
    config = found.config or _Config()
    with _readable("the label devcontainer.metadata of the container"):
        label = (container.labels or {}).get("devcontainer.metadata", "[]")
        stored = TypeAdapter(list[_Config]).validate_json(label)
    entries = [config, *reversed(stored)]
    users = (each.remoteUser for each in entries), (each.containerUser for each in entries)
    user = next((each for named in users for each in named if each), "")
    name = container_name("@".join(filter(None, (user, container.name.lstrip("/")))))
    folder = _workspace(found, config, container)
    if not folder.startswith("/") or one_line(folder) != folder:
        raise UsageError(
            f"workspaceFolder in devcontainer.json is no path: {HostText(folder)}",
            do="Name the container and its folder: `ccb ssh HOST:/PATH --container NAME`.",
        )
    ports, ports_left = _ports(entries)
    env, env_left = _env(entries, container, {"localWorkspaceFolder": found.folder, "containerWorkspaceFolder": folder})
    taken = {each.rpartition(":")[2] for each in arguments.ports.forwards}
    forwards = (*arguments.ports.forwards, *(each for each in ports if each not in taken))
    left = (
        *_left_out("forwardPorts", ports_left, f"ccb forwards up to {_MAX_PORTS} ports of the container itself"),
        *_left_out("remoteEnv", env_left, "ccb sets plain values of one line"),
    )
    connection = replace(arguments.connection, devcontainer=False, container=name, container_env=env)
    ports_there = replace(arguments.ports, forwards=forwards)
    return replace(arguments, directory=folder, connection=connection, ports=ports_there), left


def _left_out(key: str, names: Sequence[str], why: str) -> Iterator[str]:
    if names:
        yield f"{key} of devcontainer.json: {HostText(', '.join(names)).line(_MAX_LINE)} is left out; {why}"


def _ports(entries: Sequence[_Config]) -> tuple[list[str], list[str]]:
    """Return the ports to forward, and those that are left out."""
    ports = dict.fromkeys(port for each in entries for port in each.forwardPorts)
    taken = [str(each) for each in ports if isinstance(each, int) and 0 < each < 65536][:_MAX_PORTS]
    return taken, [str(each) for each in ports if str(each) not in taken]


def _env(
    entries: Sequence[_Config], container: _Container, folders: Mapping[str, str]
) -> tuple[tuple[str, ...], list[str]]:
    """Return `remoteEnv` as NAME=VALUE for `container_command`, and the names that are left out. The host's shell
    puts its own variables in, so the laptop does not see them. A reference that nobody knows is empty."""
    of_container = dict(each.partition("=")[::2] for each in container.env or ())
    known = {**folders, **{f"{name}Basename": posixpath.basename(path) for name, path in folders.items()}}

    def for_shell(part: re.Match[str]) -> str:
        kind, name = part[1], part[2]
        if kind == "localEnv" and name:
            return f"${{{name}-}}"
        found = of_container.get(name, "") if kind == "containerEnv" else known.get(kind, "")
        return _quoted(found if kind else part[0])

    variables = {name: value for each in reversed(entries) for name, value in each.remoteEnv.items()}
    env: list[str] = []
    left: list[str] = []
    for name, value in variables.items():
        try:
            if value is None or not _VARIABLE.fullmatch(name) or len(env) == _MAX_VARIABLES:
                raise ValueError
            env.append(f"{name}={_PART.sub(for_shell, value)}")
        except ValueError:
            left.append(name)
    return tuple(env), left


def _quoted(text: str) -> str:
    """Return text for double quotes of sh. Raise ValueError for what the line for the host cannot carry."""
    if not _VALUE.fullmatch(text):
        raise ValueError
    return re.sub(r'(["$`])', r"\\\1", text)


def _workspace(found: _Found, config: _Config, container: _Container) -> str:
    """Return the folder in the container: as the file says it, else where the folder of the host is mounted."""
    base = posixpath.basename(found.folder)
    named = (config.workspaceFolder or "").replace("${localWorkspaceFolderBasename}", base)
    named = named.replace("${localWorkspaceFolder}", found.folder)
    if named and "${" not in named:
        return named
    known = [each for each in container.mounts or [] if each.source]
    mounts = [each for each in known if f"{found.folder}/".startswith(f"{each.source.rstrip('/')}/")]
    for each in sorted(mounts, key=lambda each: -len(each.source)):
        below = found.folder[len(each.source) :].lstrip("/")
        return posixpath.normpath(posixpath.join(each.destination, below))
    return f"/workspaces/{base}"
