"""`--devcontainer`: the container of a folder of the host, found by the label that the devcontainer tools give it.

`devcontainer.json` comes from the host. ccb takes a user, a folder and ports from it, and runs none of its commands;
`devcontainer up` does, which the person has asked for with the option.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from ccb.tunnel.errors import ConnectionLost, DeployError, NoSuchPath, UsageError
from ccb.tunnel.plain_text import HostText, neutralise, one_line
from ccb.tunnel.transports.container import container_name
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments
from ..command_line.transport_choice import host_label

_PATH = "PATH=$PATH:/usr/local/bin:/usr/bin:/bin; IFS= read -r F; "
_LOOK = (
    'case $F in "~"|"~/"*) F=$HOME${F#?};; esac; cd -- "$F" 2>/dev/null || exit 91; echo "$M folder"; pwd; '
    "for C in .devcontainer/devcontainer.json .devcontainer.json; do "
    'test -f $C || continue; echo "$M file"; head -c 262144 $C; echo; break; done; '
    "for D in docker podman; do command -v $D >/dev/null 2>&1 || continue; "
    'for I in $($D ps -aq --filter "label=devcontainer.local_folder=$(pwd)" </dev/null); do '
    'echo "$M container"; $D container inspect "$I" </dev/null; done; done; '
    'command -v devcontainer >/dev/null && echo "$M cli"; exit 0'
)
_NO_FOLDER = 91
_UP = 'exec devcontainer up --workspace-folder "$F" </dev/null 2>&1'
_LOOK_S = 60.0
_HEARD_S = 5.0
_MAX_OUTPUT = 4 * 1024 * 1024
_MAX_LINE = 200
_MAX_PORTS = 20
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
# Looks at nothing twice: the host may have written something that takes for ever otherwise.
_JSONC = re.compile(rf'("(?:[^"\\]|\\.?)*+(?:"|\Z))|{_COMMENT}|,(?=(?:\s|{_COMMENT})*+[}}\]])', re.DOTALL)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


class _Config(BaseModel):
    """What ccb takes from `devcontainer.json`, and from an entry of a container's label `devcontainer.metadata`."""

    workspaceFolder: str | None = None
    remoteUser: str | None = None
    containerUser: str | None = None
    forwardPorts: list[int | str] = []


class _Mount(BaseModel):
    source: str = Field("", alias="Source")
    destination: str = Field("", alias="Destination")


class _State(BaseModel):
    running: bool = Field(False, alias="Running")


class _Labels(BaseModel):
    labels: dict[str, str] | None = Field(None, alias="Labels")


class _Container(BaseModel):
    """A container, as `docker container inspect` and that of podman print it."""

    name: str = Field(alias="Name")
    state: _State = Field(alias="State")
    config: _Labels = Field(alias="Config")
    mounts: list[_Mount] | None = Field(None, alias="Mounts")


@dataclass(frozen=True)
class _Found:
    """What the host has for a folder. `cli`: the devcontainer CLI is on its PATH; `warned`: what the engine said."""

    folder: str
    config: _Config | None
    containers: Sequence[_Container]
    cli: bool
    warned: str


async def entered(arguments: Arguments, prompts: Prompts, host: Transport) -> tuple[Arguments, tuple[str, ...]]:
    """Find or start the container of the folder. Return the arguments that lead there, and sentences about what is left
    out. Raises CcbError."""
    found = await _inside_of(host, arguments, prompts)
    taken = {each.rpartition(":")[2] for each in arguments.ports.forwards}
    forwards = (*arguments.ports.forwards, *(each for each in found.ports if each not in taken))
    connection = replace(arguments.connection, devcontainer=False, container=found.container)
    ports = replace(arguments.ports, forwards=forwards)
    return replace(arguments, directory=found.folder, connection=connection, ports=ports), found.left


async def _inside_of(host: Transport, arguments: Arguments, prompts: Prompts) -> _Inside:
    folder, shown = arguments.directory or "", host_label(arguments.connection)
    found = await _look(host, folder, shown)
    if not any(each.state.running for each in found.containers):
        _check_startable(found, folder, shown)
        _tell(
            prompts,
            f"`devcontainer up` starts the container of {folder} on {shown}, and runs the commands that "
            "devcontainer.json names; this may take minutes",
        )
        status, said, _ = await _run(host, _UP, found.folder, prompts.banner)
        found = await _look(host, folder, shown)
        if status or not any(each.state.running for each in found.containers):
            raise DeployError(
                f"`devcontainer up` has not started the container of {folder} on {shown} (status {status})",
                evidence=neutralise("\n".join(said.splitlines()[-10:])),
                do="Correct what it says, or start the container by hand; then try again.",
            )
    return _inside(found, next(each for each in found.containers if each.state.running))


def _tell(prompts: Prompts, sentence: str) -> None:
    tell = prompts.tell if isinstance(prompts, NobodyToAsk) else prompts.banner
    if tell is not None:
        tell(one_line(sentence))


async def _run(
    host: Transport, script: str, folder: str, heard: Callable[[str], None] | None = None
) -> tuple[int | None, str, str]:
    """Run a script on the host that reads the folder from its stdin, and return its status, stdout and stderr. Now and
    then the last line is `heard`. Raise CcbError."""
    pipe = await host.execute(f"exec /bin/sh -c '{_PATH}{script}'")
    output, told, due, clock = bytearray(), -1, 0.0, asyncio.get_running_loop().time
    try:
        with suppress(ConnectionLost):  # a command that has ended says why on its output
            await pipe.write(folder.encode() + b"\n")
        while data := await pipe.read():
            output += data
            if len(output) > _MAX_OUTPUT:
                raise DeployError(f"{host.name} sent more than {_MAX_OUTPUT} bytes", do="Use --container NAME.")
            if heard is not None and clock() >= due and (end := output.rfind(b"\n")) > told:
                start = output.rfind(b"\n", 0, end) + 1
                heard(HostText(output[start:end].decode("utf-8", "replace")).line(_MAX_LINE))
                told, due = end, clock() + _HEARD_S
        status = await pipe.exit_status()
        if not output and (error := host.failure(status, pipe.stderr_tail())):
            raise error
        return status, output.decode("utf-8", "replace").replace("\r\n", "\n"), pipe.stderr_tail()
    finally:
        await pipe.close()


async def _look(host: Transport, folder: str, shown: str) -> _Found:
    mark = f"ccb-{secrets.token_hex(8)}"
    try:
        async with asyncio.timeout(_LOOK_S):
            status, said, warned = await _run(host, f"M={mark}; {_LOOK}", folder)
    except TimeoutError:
        what = f"{shown} has not said within {_LOOK_S:g} s which containers it has"
        raise DeployError(what, do="Check docker or podman there: `docker ps`.") from None
    if status == _NO_FOLDER:
        raise NoSuchPath(f"{shown} has no folder {folder}", do="Name the folder with devcontainer.json in it.")
    config, path, cli = None, "", False
    containers: list[_Container] = []
    for part in said.split(f"{mark} ")[1:]:
        kind, _, text = part.partition("\n")
        try:
            if kind == "folder":
                path = text.rstrip("\n")
            elif kind == "file":
                config = _Config.model_validate_json(without_comments(text), strict=True)
            elif kind == "container":
                containers += TypeAdapter(list[_Container]).validate_json(text)
            cli = cli or kind == "cli"
        except ValidationError as error:
            what = "devcontainer.json" if kind == "file" else "what the engine says of the container"
            wrong = error.errors(include_url=False, include_input=False)[0]
            raise DeployError(
                f"{what} of {folder} on {shown} cannot be read",
                evidence=f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}".removeprefix(": "),
                do="Correct it, or name the container: --container NAME.",
            ) from None
    if not path.startswith("/"):
        raise DeployError(f"{shown} has not said which containers it has", do="Name the container: --container NAME.")
    return _Found(path, config, containers, cli, warned)


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


@dataclass(frozen=True)
class _Inside:
    """Where a session works in a container `[USER@]NAME`. `left` are sentences about what is left out."""

    container: str
    folder: str
    ports: tuple[str, ...]
    left: tuple[str, ...]


def _inside(found: _Found, container: _Container) -> _Inside:
    """Read where the session works in the container. The tools write the settings of the image and of the file into a
    label of the container, the strongest last."""
    labels, config = container.config.labels or {}, found.config or _Config()
    try:
        stored = TypeAdapter(list[_Config]).validate_json(labels.get("devcontainer.metadata", "[]"))
    except ValidationError:
        stored = []
    entries = [config, *reversed(stored)]
    users = (each.remoteUser for each in entries), (each.containerUser for each in entries)
    user = next((each for named in users for each in named if each), "")
    name = container.name.lstrip("/")
    if user and not _USER.fullmatch(user):
        raise UsageError(f"remoteUser in devcontainer.json is no name of a user: {HostText(user)}")
    folder = _workspace(found, config, container)
    if not folder.startswith("/") or one_line(folder) != folder:
        raise UsageError(
            f"workspaceFolder in devcontainer.json is no path: {HostText(folder)}",
            do="Name the container and its folder: `ccb ssh HOST:/PATH --container NAME`.",
        )
    ports, left = _ports(entries)
    return _Inside(container_name(f"{user}@{name}" if user else name), folder, ports, left)


def _ports(entries: Sequence[_Config]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ports to forward, and a sentence if some are left out."""
    ports = dict.fromkeys(port for each in entries for port in each.forwardPorts)
    taken = [str(each) for each in ports if isinstance(each, int) and 0 < each < 65536][:_MAX_PORTS]
    left = [str(each) for each in ports if str(each) not in taken]
    if not left:
        return tuple(taken), ()
    said = (
        f"forwardPorts of devcontainer.json: {HostText(', '.join(left)).line(_MAX_LINE)} is left out; ccb forwards "
        f"up to {_MAX_PORTS} ports of the container itself"
    )
    return tuple(taken), (said,)


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
