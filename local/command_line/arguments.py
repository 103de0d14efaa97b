"""The command line as a typed value: what `parse_arguments` returns, in groups of options that belong together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Literal

from ccb.tunnel.wire.dataclass import dataclass

from .option_declaration import Group, Option
from .target import Target


@dataclass(frozen=True)
class ConnectionOptions:
    """How to reach the host.

    `target` is None for this machine, and if the command in `transport` leads to one place.
    """

    target: Target | None = None
    identities: tuple[str, ...] = ()
    port: int | None = None
    ssh_options: tuple[str, ...] = ()
    plain_login: bool = False
    transport: str | None = None
    ssh_command: str | None = None
    container: str | None = None
    local: bool = False


@dataclass(frozen=True)
class SessionChoice:
    """Which session to open (a new one, an existing one, or a copy of one), and how long to try to reconnect.

    `resume` is the ID of an existing session or the start of it, `""` to let the person choose. Host commands such as
    `logs` have their session there too. `reconnect_timeout` is in seconds. `resume_at` is the message after which
    an existing session goes on.
    `drops_turn` is the prompt of the only turn that may be left out then. `rewind_files` is the prompt to before which
    files go back. `worktree` is the name of the git worktree that a new session works in, `""` for a new name, None for
    the directory itself.
    """

    session_id: str | None = None
    continue_latest: bool = False
    resume: str | None = None
    fork_session: bool = False
    reconnect_timeout: float | None = None
    resume_at: str | None = None
    rewind_files: str | None = None
    drops_turn: str | None = None
    worktree: str | None = None


@dataclass(frozen=True)
class AgentOptions:
    """What the agent runs with: model, prompts, limits, permissions."""

    model: str | None = None
    permission_mode: str | None = None
    dangerously_skip_permissions: bool = False
    allowed_tools: tuple[str, ...] = ()
    disallowed_tools: tuple[str, ...] = ()
    append_system_prompt: str | None = None
    system_prompt: str | None = None
    max_turns: int | None = None
    add_dirs: tuple[str, ...] = ()
    sandbox: str | None = None
    allow_net: bool = False
    record: bool = False
    web: str | None = None
    trust: bool = False
    allow_bypass: bool = False
    role: str | None = None
    init: bool = False
    init_only: bool = False
    maintenance: bool = False

    @property
    def setup(self) -> str:
        """Which Setup hooks a new session runs first: `init`, `maintenance` or "" for none."""
        return "maintenance" if self.maintenance else "init" if self.init or self.init_only else ""


@dataclass(frozen=True)
class SdkOptions:
    """What programs that drive ccb set beyond that. JSON values are kept as text; `tools` is None for all tools."""

    tools: tuple[str, ...] | None = None
    json_schema: str | None = None
    agents: str | None = None
    mcp_config: tuple[str, ...] = ()
    strict_mcp_config: bool = False
    setting_sources: str | None = None
    bare: bool = False
    settings: str | None = None
    system_prompt_file: str | None = None
    append_system_prompt_file: str | None = None
    max_budget_usd: float | None = None
    fallback_model: str | None = None
    max_thinking_tokens: int | None = None
    effort: str | None = None
    include_hook_events: bool = False
    betas: tuple[str, ...] = ()
    task_budget: int | None = None
    thinking: str | None = None
    thinking_display: str | None = None
    forget: bool = False
    plugin_dirs: tuple[str, ...] = ()
    debug_file: str | None = None
    mirror: bool = False
    await_initialize: bool = False
    initialize_fields: str | None = None


@dataclass(frozen=True)
class ScreenOptions:
    """How a session shows itself to a person. `plain`: as lines. `no_mouse`: the mouse stays the terminal's."""

    plain: bool = False
    no_mouse: bool = False


@dataclass(frozen=True)
class StdioOptions:
    """What a headless run reads from stdin and writes to stdout."""

    print: bool = False
    output_format: str = "text"
    input_format: str = "text"
    verbose: bool = False
    include_partial_messages: bool = False
    replay_user_messages: bool = False
    permission_prompt_tool: str | None = None


@dataclass(frozen=True)
class HostCommandOptions:
    """Options that belong to single commands. `older_than` is in days; `lines` is None for the default number."""

    view: bool = False
    all: bool = False
    dry_run: bool = False
    older_than: float | None = None
    yes: bool = False
    lines: int | None = None
    json: bool = False
    revoke: bool = False
    recursive: bool = False
    by: Literal["host", "model", "day", "session"] = "day"
    days: float | None = None
    provider: str | None = None
    origin: bool = False
    env: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True)
class AccountOptions:
    """Options of `ccb auth`: which account of a provider, and how its credential comes."""

    account: str | None = None
    api_key_stdin: bool = False
    oauth_stdin: bool = False
    bearer: bool = False
    workspace: str = ""
    in_file: bool = False


@dataclass(frozen=True)
class CopyChoice:
    """What `ccb cp` copies: `remote` is a path on the host, `local` one of this machine."""

    upload: bool
    local: str
    remote: str


@dataclass(frozen=True)
class Arguments:
    """One parsed command line.

    `command` is one of COMMANDS, or `""` for a session on this machine. `directory` is a path on the host, None for the
    default; `directory_is_current` if it is that of the laptop, because none was named. `rest` holds the words after
    `help` and the commands in OWN_WORDS, `copy` those of `cp`.
    `hints` are sentences to show the person before the run.
    """

    command: str = ""
    directory: str | None = None
    prompt: str | None = None
    rest: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    debug: bool = False
    help: bool = False
    version: bool = False
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    session: SessionChoice = field(default_factory=SessionChoice)
    agent: AgentOptions = field(default_factory=AgentOptions)
    screen: ScreenOptions = field(default_factory=ScreenOptions)
    streams: StdioOptions = field(default_factory=StdioOptions)
    host_command: HostCommandOptions = field(default_factory=HostCommandOptions)
    account: AccountOptions = field(default_factory=AccountOptions)
    sdk: SdkOptions = field(default_factory=SdkOptions)
    copy: CopyChoice | None = None
    directory_is_current: bool = False

    @property
    def headless(self) -> bool:
        """Whether to run without the REPL: because of -p, or of an option that makes sense only without it."""
        streams = self.streams
        other_format = streams.output_format != "text" or streams.input_format != "text"
        return streams.print or other_format or bool(self.session.rewind_files)

    def value(self, option: Option) -> Any:
        """Return the value of an option, or its default."""
        attribute = option.group.attribute
        return getattr(getattr(self, attribute) if attribute else self, option.field)


def arguments_from(values: Mapping[Option, object]) -> Arguments:
    """Return arguments with the options in `values` set and no words interpreted yet."""
    arguments = Arguments()
    for group in Group:
        given: dict[str, Any] = {each.field: value for each, value in values.items() if each.group is group}
        if group is Group.GENERAL:
            arguments = replace(arguments, **given)
        elif given:
            filled = replace(getattr(arguments, group.attribute), **given)
            arguments = replace(arguments, **{group.attribute: filled})
    if arguments.sdk.bare and arguments.sdk.setting_sources is None:
        return replace(arguments, sdk=replace(arguments.sdk, setting_sources="", strict_mcp_config=True))
    return arguments


def private_texts(connection: ConnectionOptions) -> list[str]:
    """Return the commands and options that may contain passwords, so that logs and the doctor can hide them."""
    return [text for text in (connection.transport, connection.ssh_command, *connection.ssh_options) if text]
