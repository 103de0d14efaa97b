"""Options and start parameters of a session, from the command line, the settings and the person's files."""

from __future__ import annotations

import logging
import os
import re
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.known_agents import foreign_agent, is_foreign, stream_json_program
from ccb.tunnel.wire.session_options import BUILT_IN_AGENTS, INSTRUCTIONS, OwnFile, SessionOptions, pack

from ..command_line.arguments import OPTIONS, Arguments, SdkOptions, SessionChoice
from ..command_line.option_values import shortened
from ..command_line.transport_choice import TransportKind, host_label, transport_kind
from .startup import chosen_model, without_alias

if TYPE_CHECKING:
    from ..config.settings import Settings


log = logging.getLogger(__name__)

Choose = Callable[[], Awaitable[str]]
_ID_LENGTH = 36  # of the ID of a session
_MAX_AGENTS, _MAX_AGENT_BYTES = 100, 64 << 10  # of all together, which travel in one frame with the other options
_MAX_FILES, _MAX_FILE, _MAX_ALL = 300, 128 << 10, 768 << 10
_SECRET_NAME = re.compile(r"\..*|id_(rsa|dsa|ecdsa|ed25519).*|.*\.(pem|key|p12|pfx|kdbx)|credentials(\..*)?", re.I)
_SECRET = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY|\bsk-[A-Za-z0-9_-]{20,}|\bAKIA[0-9A-Z]{16}\b|\bgh[pousr]_[A-Za-z0-9]{36}"
)
HEADLESS_RECONNECT_S = 600.0  # how long a headless run tries to reconnect when --reconnect-timeout does not say
_MAX_THINKING = 31_999  # the family's budget for models that think with a budget only
_NEVER = 1 << 60
_CHARS_OF_A_PERCENT = 8_000  # of a window of 200,000 tokens, each of about 4 characters
_LEFT_OUT = {"CLAUDE_AGENT_SDK_DISABLE_BUILTIN_AGENTS": BUILT_IN_AGENTS, "CLAUDE_CODE_DISABLE_CLAUDE_MDS": INSTRUCTIONS}
_SWITCH = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}
_WAIT_VARIABLE = "CLAUDE_CODE_PRINT_BG_WAIT_CEILING_MS"  # set by SDK clients


def own_agents(folder: Path | None) -> dict[str, str]:
    """Return the text of each file in `agents` of `~/.claude` by its path; the log tells what is left out."""
    if folder is None:
        return {}
    top = folder / "agents"
    paths = sorted(top.rglob("*.md")) if top.is_dir() else []
    found, left = _gathered(top, paths, 1, _MAX_AGENTS, _MAX_AGENT_BYTES)
    for sentence in left:
        log.warning("%s", sentence)
    return {str(path): file.text for path, file in found if file.text}


def own_files(folder: Path | None) -> tuple[str, list[str]]:
    """Pack the commands and skills in `~/.claude`; tell which files stay: no text, large, secret, or linked away."""
    if folder is None:
        return "", []
    found, left = _gathered(folder, _paths(folder), 2, _MAX_FILES, _MAX_ALL)
    return pack([file for _, file in found]), left


def _gathered(
    top: Path, paths: Iterable[Path], depth: int, most: int, most_bytes: int
) -> tuple[list[tuple[Path, OwnFile]], list[str]]:
    """Return the files that go to the host, and sentences about the others. An entry is `depth` levels below `top`."""
    found: list[tuple[Path, OwnFile]] = []
    left: list[str] = []
    size = 0
    for path in paths:
        name = path.relative_to(top)
        read = _read(path, name, top.joinpath(*name.parts[:depth]))
        if isinstance(read, str):
            left.append(f"{path} stays on the laptop: {read}")
            continue
        size += len(read.text)
        if len(found) >= most or size > most_bytes:
            left.append(f"{path} and what follows stays on the laptop: {most} files and {most_bytes >> 10} KB go")
            break
        found.append((path, read))
    return found, left


def _paths(top: Path) -> Iterator[Path]:
    for place in ("commands", "skills"):
        skills = place == "skills"
        for here, directories, names in os.walk(top / place, followlinks=True):
            directories[:] = sorted(each for each in directories if not each.startswith(".") and each != "node_modules")
            if len(Path(here).relative_to(top).parts) > 10:
                directories.clear()  # a link may lead back
            if skills and Path(here).parent == top / place and "SKILL.md" not in names:
                directories.clear()
                continue
            if not (skills and Path(here) == top / place):
                yield from (Path(here, name) for name in sorted(names) if skills or name.endswith(".md"))


def _read(path: Path, name: Path, entry: Path) -> OwnFile | str:
    """Return a file, or why it stays on the laptop. `entry` is what the person has put into `~/.claude`."""
    real, own = (Path(os.path.realpath(each)) for each in (path, entry))
    if any(_SECRET_NAME.fullmatch(each.name) for each in (path, real)):
        return "its name is that of a secret"
    if not real.is_relative_to(own):
        return f"a link leads out of {own}"
    try:
        if not path.is_file() or path.stat().st_size > _MAX_FILE:
            return f"it has more than {_MAX_FILE >> 10} KB" if path.is_file() else "it is no file"
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        return "it is no text" if isinstance(error, UnicodeDecodeError) else str(error.strerror)
    if "\0" in text or _SECRET.search(text):
        return "it is no text" if "\0" in text else "it seems to hold a key"
    return OwnFile(str(name), text, os.access(path, os.X_OK))


async def session_parameters(
    arguments: Arguments, session_id: str, settings: Settings, choose: Choose
) -> dict[str, object]:
    """Return the worker's start parameters. `choose` asks the person for a session if none is named."""
    session = arguments.session
    parameters: dict[str, object] = {"cwd": arguments.directory or ""}
    if transport_kind(arguments.connection) is not TransportKind.LOCAL or arguments.connection.container:
        parameters["shell"] = True  # on this machine, the worker has the environment of the person's shell anyway
    if arguments.directory and not arguments.directory_is_current and (session.resume or session.continue_latest):
        parameters["named"] = True  # the session goes on there, wherever it was
    if "graceHours" in settings.given:
        parameters["grace_s"] = settings.graceHours * 3600
    if "idleMinutes" in settings.given:
        parameters["idle_s"] = settings.idleMinutes * 60
    return {**parameters, **await _which_session(session, session_id, choose)}


async def _which_session(session: SessionChoice, session_id: str, choose: Choose) -> dict[str, object]:
    if session.begun:
        return {"session": session_id, "create": True, **({"job": "leads"} if session.in_job else {})}
    new: dict[str, object] = {"session": session_id, "fresh": True}
    if session.continue_latest:
        return {"continue": True, **({"fork": True, **new} if session.fork_session else {})}
    if session.resume is not None:
        chosen = session.resume or await choose()
        return {"fork_of": chosen, **new} if session.fork_session else {"session": chosen, "create": False}
    if session.worktree is not None:
        new["worktree"] = session.worktree or f"session-{session_id[:8]}"
    return {**new, "create": True}


def counted_session(parameters: Mapping[str, object], said: str) -> str:
    """Return the session whose budget is spent: if another one than the host says was asked for, that counts. Only the
    beginning of an ID leaves the rest to the host."""
    asked = str(parameters.get("session") or "")
    return said if said.startswith(asked) and len(asked) < _ID_LENGTH else asked


def session_options(
    arguments: Arguments,
    settings: Settings,
    *,
    api_key_source: str = "none",
    laptop_mcp: Sequence[str] = (),
    files: str = "",
    agents: Mapping[str, str] | None = None,
    models: Mapping[str, Any] | None = None,
) -> SessionOptions:
    """Return the options of a new session. `files` are the person's own commands and skills, packed, `agents` their
    agents, and `models` the fields about models."""

    agent, streams, sdk = arguments.agent, arguments.streams, arguments.sdk
    host, wait = host_label(arguments.connection), os.environ.get(_WAIT_VARIABLE, "")
    mode = _mode(arguments, settings)
    asks = streams.permission_prompt_tool or ("none" if arguments.headless else "stdio")
    foreign = chosen_agent(arguments, settings)
    appended = _prompt(agent.append_system_prompt, sdk.append_system_prompt_file, "--append-system-prompt-file")
    return SessionOptions(
        model=agent.model if foreign else chosen_model(settings, agent.model),
        permission_mode=mode,
        permission_prompts=asks,
        allow_bypass=arguments.permissions.allow_bypass or mode == "bypassPermissions",
        system_prompt=_prompt(agent.system_prompt, sdk.system_prompt_file, "--system-prompt-file"),
        append_system_prompt=appended,
        partial_messages=streams.include_partial_messages or not arguments.headless,
        api_key_source=api_key_source,
        client=client_name(),
        host=host,
        background_after_ms=0 if arguments.headless else round(settings.backgroundAfterSeconds * 1000),
        background_wait_ms=int(wait) if wait.isascii() and wait.isdigit() else SessionOptions.background_wait_ms,
        setup=agent.setup,
        foreign_agent=foreign,
        left_out=_left_out(os.environ, headless=arguments.headless),
        task_tools=_SWITCH.get(os.environ.get("CLAUDE_CODE_ENABLE_TASKS", "").lower()),
        own_agents=dict(agents or {}),
        own_files=files,
        client_mcp=client_servers(sdk.mcp_config),
        laptop_mcp=list(laptop_mcp),
        fallback_model=without_alias(settings, sdk.fallback_model),
        **(models or {}),
        max_thinking_tokens=_thinking_tokens(sdk),
        max_output_tokens=settings.modelCalls.of_host(host).maxOutputTokens,
        defer_above=_defer_above(os.environ.get("ENABLE_TOOL_SEARCH", "")),
        web_allow_private=settings.webAllowPrivate,
        titles=settings.sessionTitles and not arguments.headless,
        **dict(_declared(arguments, settings)),
    )


def _declared(arguments: Arguments, settings: Settings) -> Iterator[tuple[str, Any]]:
    """Yield the options that a row declares: what a policy sets, else the flag, else the setting. Lists are joined."""
    for option in OPTIONS:
        if not option.wire:
            continue
        flag = arguments.value(option)
        value = attrgetter(option.setting)(settings) if option.setting else None
        if isinstance(value, list):
            value = [*value, *flag]
        elif flag is not None and not settings.is_managed(option.setting):
            value = flag
        if value is not None:
            yield option.wire, option.to_wire(list(value) if isinstance(value, tuple) else value)


def _thinking_tokens(sdk: SdkOptions) -> int | None:
    if sdk.thinking is None or sdk.max_thinking_tokens is not None:
        return sdk.max_thinking_tokens
    return 0 if sdk.thinking == "disabled" else _MAX_THINKING


def _defer_above(given: str) -> int | None:
    """Return from how many characters on tools of MCP servers are deferred (ENABLE_TOOL_SEARCH)."""
    if given in ("true", "1", "false", "0"):
        return 0 if given in ("true", "1") else _NEVER
    percent = given.removeprefix("auto:")
    return int(percent) * _CHARS_OF_A_PERCENT if percent != given and re.fullmatch("[0-9]{1,3}", percent) else None


def _left_out(environ: Mapping[str, str], *, headless: bool) -> list[str]:
    given = {name for name in _LEFT_OUT if _SWITCH.get(environ.get(name, "").lower())}
    return [_LEFT_OUT[name] for name in sorted(given) if headless or _LEFT_OUT[name] != BUILT_IN_AGENTS]


def _mode(arguments: Arguments, settings: Settings) -> str:
    """Return the permission mode of a new session. Raise UsageError if the settings forbid it."""
    rules = settings.permissions
    mode = given_mode(arguments, settings) or settings.permissionMode or rules.defaultMode or "default"
    forbidden = rules.disableBypassPermissionsMode or settings.policy.sandbox
    if forbidden and (arguments.permissions.allow_bypass or mode == "bypassPermissions"):
        raise UsageError("the settings do not allow the permission mode bypassPermissions", do="Choose another mode.")
    return mode


def options_for_existing(arguments: Arguments, settings: Settings, options: SessionOptions) -> dict[str, object]:
    """Return the options for an existing session. Only flags and what a policy sets change its model and its modes,
    settings do not."""
    given: dict[str, object] = options.to_json()
    model = options.model if settings.is_managed("model") else arguments.agent.model
    sandbox = options.sandbox if settings.is_managed("sandbox") else arguments.permissions.sandbox
    foreign = None if settings.is_managed("agent") else chosen_agent(arguments, None) or None
    mode = given_mode(arguments, settings)
    flags = (("model", model), ("permission_mode", mode), ("sandbox", sandbox), ("foreign_agent", foreign))
    given["laptop_mcp"] = list(options.laptop_mcp)  # the servers of this laptop replace those of the last one
    given["project_mcp"] = options.project_mcp
    for name, flag in flags:
        given.pop(name, None)
        if flag is not None:
            given[name] = flag
    return given


def chosen_agent(arguments: Arguments, settings: Settings | None) -> str:
    """Return the agent of others that is to work, "" for ccb's own. Raise UsageError for what names none."""
    agent, setting = arguments.agent, settings.agent if settings is not None else None
    if settings is not None and settings.is_managed("agent"):
        named, program = setting or "", None
    else:
        named, program = agent.role if agent.role is not None else setting or "", agent.remote_bin
    found = stream_json_program(program) if program else named if is_foreign(named) else ""
    try:
        return found if not found or foreign_agent(found) else ""
    except ValueError as error:
        raise UsageError(f"--agent {shortened(found)}: {error}", do="Write it as on a command line.") from None


def client_servers(configs: Sequence[str]) -> list[str]:
    """Return the names of the MCP servers of --mcp-config that run inside the client. Raises UsageError."""
    if not configs:
        return []
    from ..mcp.mcp_config import mcp_servers

    return [name for name, server in mcp_servers(configs).items() if server.get("type") == "sdk"]


def _prompt(text: str | None, file: str | None, option: str) -> str | None:
    if file is None:
        return text
    try:
        return Path(file).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UsageError(f"{option} {shortened(file)}: it cannot be read", evidence=str(error)) from None


def reconnect_seconds(arguments: Arguments, settings: Settings) -> float:
    if arguments.session.reconnect_timeout is not None:
        return arguments.session.reconnect_timeout
    return HEADLESS_RECONNECT_S if arguments.headless else settings.graceHours * 3600


def given_mode(arguments: Arguments, settings: Settings) -> str | None:
    """Return the permission mode that a policy sets, else that of a flag."""
    permissions = arguments.permissions
    if settings.is_managed("permissionMode"):
        return settings.permissionMode
    if settings.is_managed("permissions.defaultMode"):
        return settings.permissions.defaultMode
    return "bypassPermissions" if permissions.dangerously_skip_permissions else permissions.permission_mode


def client_name() -> str:
    try:
        import getpass  # nobody waits for it here

        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()} pid {os.getpid()} {secrets.token_hex(3)}"
