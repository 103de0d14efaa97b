"""Keyword arguments of the API, as the command line that they stand for."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from ccb.tunnel.errors import UsageError

from ..command_line.arguments import OPTIONS, Arguments, Option, OptionKind
from ..command_line.option_values import nearest
from ..command_line.parser import parse_arguments

Texts = str | Sequence[str]
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class SessionOptions(TypedDict, total=False):
    """The names are those of the options of the command line, which say what they mean."""

    model: str
    permission_mode: str
    dangerously_skip_permissions: bool
    allowed_tools: Texts
    disallowed_tools: Texts
    append_system_prompt: str
    system_prompt: str
    max_turns: int
    add_dir: Texts
    sandbox: str
    allow_net: bool
    record: bool
    web: str
    trust: bool
    allow_dangerously_skip_permissions: bool
    agent: str
    remote_bin: str
    group: str
    channel: Texts
    tools: Texts
    agents: Mapping[str, Any]
    mcp_config: str | Mapping[str, Any] | Sequence[str]
    strict_mcp_config: bool
    setting_sources: str
    bare: bool
    settings: str | Mapping[str, Any]
    max_budget_usd: float
    fallback_model: str
    max_thinking_tokens: int
    effort: str
    betas: Texts
    task_budget: int
    thinking: str
    no_session_persistence: bool
    plugin_dir: Texts
    forward: Texts
    reverse: Texts
    reconnect_timeout: float


class OpeningOptions(SessionOptions, total=False):
    """What `Host.session` takes: which session it is, and options that outrank those of `connect`."""

    resume: str | None
    continue_latest: bool
    fork_session: bool
    session_id: str | None
    worktree: str | bool


class HostOptions(SessionOptions, total=False):
    """What `connect` takes: how the host is reached, and what each session of it gets."""

    identity_file: Paths
    port: int
    ssh_options: Texts
    no_pipelined_login: bool
    transport: str
    ssh_command: str
    container: str
    devcontainer: bool
    local: bool


_RENAMED = {"-o": "ssh_options", "--identity": "identity_file", "--continue": "continue_latest"}
_FLAGS = (
    *("--print", "--input-format=stream-json", "--output-format=stream-json", "--verbose"),
    "--include-partial-messages",
)


def _keyword(option: Option) -> str:
    names = [_RENAMED.get(each, each.lstrip("-").replace("-", "_")) for each in option.names if each.islower()]
    return max(names, key=lambda name: (name in _RENAMED.values(), len(name)))


_BY_KEYWORD = {_keyword(each): each for each in OPTIONS}


def check_keywords(function: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Raise TypeError as Python does, with names that may be meant."""
    for name in given:
        if name not in known:
            near = nearest(name, known, most=3)
            meant = f"; did you mean {', '.join(near)}?" if near else ""
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}{meant}")


def arguments_of(target: str, given: Mapping[str, object], *, asks: bool, own_tools: str = "") -> Arguments:
    """Return the arguments of a session. `asks`: the program answers questions about permissions. `own_tools` is the
    name of the MCP server inside the program, whose tools are allowed. Raises UsageError, which names the options as
    the command line does."""
    if target.startswith("-"):
        raise UsageError(f"{target}: this is no host and no directory", do="Write HOST:/PATH.")
    place = [target] if target[:1] in ("/", "~", ".") else ["ssh", target]
    if place[0] == target and not Path(target).expanduser().is_dir():
        raise UsageError(f"{target}: there is no such directory here", do="Write HOST:/PATH for one of a host.")
    flags = [*_FLAGS, *(["--permission-prompt-tool=stdio"] if asks else [])]
    if own_tools:
        servers = json.dumps({"mcpServers": {own_tools: {"type": "sdk", "name": own_tools}}})
        flags += [f"--mcp-config={servers}", f"--allowedTools=mcp__{own_tools}"]
    words = [word for name, value in given.items() for word in _words(_BY_KEYWORD[name], value)]
    return parse_arguments([*place, *flags, *words])


def _words(option: Option, value: object) -> Iterator[str]:
    if value is None or value is False:
        return
    name = max(option.names, key=len)
    if value is True:
        yield name
        return
    several = option.kind in (OptionKind.REPEAT, OptionKind.VARIADIC)
    listed = value if several and isinstance(value, Sequence) and not isinstance(value, str) else [value]
    for each in listed:
        text = json.dumps(each) if isinstance(each, Mapping) else str(each)
        yield from (name, text) if len(name) == 2 else (f"{name}={text}",)
