"""`--devcontainer`: the container of a folder of the host, found by the label that the devcontainer tools give it.

`devcontainer.json` comes from the host. ccb takes a user, a folder and ports from it, and runs none of its commands;
`devcontainer up` does, which the person has asked for with the option.
"""

from __future__ import annotations

import asyncio
import posixpath
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
    "for C in .devcontainer/devcontainer.json .devcontainer.json .devcontainer/*/devcontainer.json; do "
    'test -f "$C" || continue; echo "$M file $C"; head -c 262144 "$C"; echo; done; '
    "for D in docker podman; do command -v $D >/dev/null 2>&1 || continue; "
    'for I in $($D ps -aq --filter "label=devcontainer.local_folder=$(pwd)" </dev/null); do '
    'echo "$M container"; $D container inspect "$I" </dev/null; done; done; '
    'command -v devcontainer >/dev/null && echo "$M cli"; exit 0'
)
_NO_FOLDER = 91
_UP = 'IFS= read -r C; exec devcontainer up --workspace-folder "$F" ${C:+--config "$F/$C"} </dev/null 2>&1'
_LOOK_S = 60.0
_HEARD_S = 5.0
_MAX_OUTPUT = 4 * 1024 * 1024
_MAX_LINE = 200
_MAX_PORTS = 20
_COMMENT = r"//[^\n]*|/\*.*?(?:\*/|\Z)"
# Looks at nothing twice: the host may have written something that takes for ever otherwise.
_JSONC = re.compile(rf'("(?:[^"\\]|\\.?)*+(?:"|\Z))|{_COMMENT}|,(?=(?:\s|{_COMMENT})*+[}}\]])', re.DOTALL)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")
_DEFAULTS = ("", ".devcontainer/devcontainer.json", ".devcontainer.json")
_NAMED = re.compile(r"\.devcontainer/([^/\n]+)/devcontainer\.json")
_CONFIG_LABEL = "devcontainer.config_file"
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


class _State(BaseModel):
    running: bool = Field(False, alias="Running")


class _ContainerConfig(BaseModel):
    labels: dict[str, str] | None = Field(None, alias="Labels")
    env: list[str] | None = Field(None, alias="Env")


class _Container(BaseModel):
    """A container, as `docker container inspect` and that of podman print it."""

    name: str = Field(alias="Name")
    state: _State = Field(alias="State")
    config: _ContainerConfig = Field(alias="Config")
    mounts: list[_Mount] | None = Field(None, alias="Mounts")


@dataclass(frozen=True)
class _Found:
    """What the host has for a folder. `file` is the one that counts, from the folder on, "" for none, and `config` what
    it says. `cli`: the devcontainer CLI is on its PATH; `warned`: what the engine said."""

    folder: str
    file: str
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
    connection = replace(arguments.connection, devcontainer=None, container=found.container, container_env=found.env)
    ports = replace(arguments.ports, forwards=forwards)
    return replace(arguments, directory=found.folder, connection=connection, ports=ports), found.left


async def _inside_of(host: Transport, arguments: Arguments, prompts: Prompts) -> _Inside:
    folder, shown = arguments.directory or "", host_label(arguments.connection)
    wanted = arguments.connection.devcontainer or ""
    found = await _look(host, folder, shown, wanted)
    if not any(each.state.running for each in found.containers):
        _check_startable(found, folder, shown)
        _tell(
            prompts,
            f"`devcontainer up` starts the container of {folder} on {shown}, and runs the commands that "
            "devcontainer.json names; this may take minutes",
        )
        named = found.file if found.file not in _DEFAULTS else ""
        status, said, _ = await _run(host, _UP, f"{found.folder}\n{named}", prompts.banner)
        found = await _look(host, folder, shown, wanted)
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
    host: Transport, script: str, given: str, heard: Callable[[str], None] | None = None
) -> tuple[int | None, str, str]:
    """Run a script on the host that reads the folder from its stdin, the first line of `given`, and return its status,
    stdout and stderr. Now and then the last line is `heard`. Raise CcbError."""
    pipe = await host.execute(f"exec /bin/sh -c '{_PATH}{script}'")
    output, told, due, clock = bytearray(), -1, 0.0, asyncio.get_running_loop().time
    try:
        with suppress(ConnectionLost):  # a command that has ended says why on its output
            await pipe.write(given.encode() + b"\n")
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


async def _look(host: Transport, folder: str, shown: str, wanted: str) -> _Found:
    mark = f"ccb-{secrets.token_hex(8)}"
    try:
        async with asyncio.timeout(_LOOK_S):
            status, said, warned = await _run(host, f"M={mark}; {_LOOK}", folder)
    except TimeoutError:
        what = f"{shown} has not said within {_LOOK_S:g} s which containers it has"
        raise DeployError(what, do="Check docker or podman there: `docker ps`.") from None
    if status == _NO_FOLDER:
        raise NoSuchPath(f"{shown} has no folder {folder}", do="Name the folder with devcontainer.json in it.")
    files: dict[str, str] = {}
    config, path, cli = None, "", False
    containers: list[_Container] = []
    for part in said.split(f"{mark} ")[1:]:
        head, _, text = part.partition("\n")
        kind, _, name = head.partition(" ")
        if kind == "folder":
            path = text.rstrip("\n")
        elif kind == "file":
            files[name] = text
        elif kind == "container":
            with _readable(f"what the engine says of the container of {folder} on {shown}"):
                containers += TypeAdapter(list[_Container]).validate_json(text)
        cli = cli or kind == "cli"
    if not path.startswith("/"):
        raise DeployError(f"{shown} has not said which containers it has", do="Name the container: --container NAME.")
    file = _file_meant(list(files), wanted, f"{folder} on {shown}")
    if file:
        with _readable(f"{HostText(file)} of {folder} on {shown}"):
            config = _Config.model_validate_json(without_comments(files[file]), strict=True)
    own = [each for each in containers if _belongs(each, file)]
    return _Found(path, file, config, own, cli, warned)


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


def _file_meant(files: Sequence[str], wanted: str, where: str) -> str:
    """Return the path of the devcontainer.json to use, or "" if there is none. Raise UsageError or NoSuchPath."""
    named = {match[1]: match[0] for each in files if (match := _NAMED.fullmatch(each))}
    listed = ", ".join(str(HostText(each)) for each in named)
    if wanted and wanted not in named:
        have = f"It has {listed}." if named else "Leave out the name."
        raise NoSuchPath(f"{where} has no .devcontainer/{wanted}/devcontainer.json", do=have)
    default = next((each for each in _DEFAULTS if each in files), "")
    if wanted or default or not named:
        return named.get(wanted, default)
    if len(named) > 1:
        raise UsageError(f"{where} has several dev containers: {listed}", do="Choose one: --devcontainer NAME.")
    return next(iter(named.values()))


def _belongs(container: _Container, file: str) -> bool:
    """Whether a container of the folder was made from `file`. Without a label it may have been."""
    label = (container.config.labels or {}).get(_CONFIG_LABEL, "")
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


@dataclass(frozen=True)
class _Inside:
    """Where a session works in a container `[USER@]NAME`. `left` are sentences about what is left out."""

    container: str
    folder: str
    ports: tuple[str, ...]
    env: tuple[str, ...]
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
    ports, ports_left = _ports(entries)
    env, env_left = _env(entries, container, {"localWorkspaceFolder": found.folder, "containerWorkspaceFolder": folder})
    named = container_name(f"{user}@{name}" if user else name)
    return _Inside(named, folder, ports, env, (*ports_left, *env_left))


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


def _env(
    entries: Sequence[_Config], container: _Container, folders: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `remoteEnv` as NAME=VALUE for `container_command`, and a sentence if some are left out. The host's shell
    puts its own variables in, so the laptop does not see them. A reference that nobody knows is empty."""
    of_container = dict(each.partition("=")[::2] for each in container.config.env or ())
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
    if not left:
        return tuple(env), ()
    names = HostText(", ".join(left)).line(_MAX_LINE)
    return tuple(env), (f"remoteEnv of devcontainer.json: {names} is left out; ccb sets plain values of one line",)


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
