"""Rules for combining options, and checks of tool names.

Each rule is one row of a table, or one small function where it needs more than a condition.

`validate` applies the rules in a fixed order, so a command line with several mistakes always reports the same one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ccb.tunnel.errors import UsageError

from .arguments import Arguments, ConnectionOptions, SessionChoice, StdioOptions
from .option_declaration import shortened
from .options import OPTIONS
from .transport_choice import TransportKind, transport_kind


def unknown_tools(arguments: Arguments) -> Iterable[str]:
    """Return a sentence for each name that no tool has. Raise UsageError for the first one in `--tools`, unless a
    program drives this run: it may have been written for tools that this version lacks."""
    agent, offered = arguments.agent, arguments.sdk.tools or ()
    driven = arguments.streams.input_format == "stream-json"
    options = (("--allowedTools", agent.allowed_tools), ("--disallowedTools", agent.disallowed_tools))
    for option, names in (*options, ("--tools", offered)):
        for given in names:
            name = given.partition("(")[0] if option != "--tools" else given
            if no_such_tool(name):
                near = _nearest(name)
                if option == "--tools" and not driven:
                    raise UsageError(
                        f"--tools {shortened(name)}: there is no tool of that name",
                        do=f"Did you mean {near}?" if near else "`ccb help` says how --tools is written.",
                    )
                yield f"{option} {shortened(given)}: there is no tool of that name" + (
                    f" (did you mean {near}?)" if near else ""
                )


def no_such_tool(name: str) -> str:
    """See `tool_traits.no_such_tool`."""
    from ccb.tunnel.wire.tool_traits import no_such_tool as told  # most starts name no tools

    return told(shortened(name))


def _nearest(name: str) -> str:
    import difflib

    from ccb.tunnel.wire.tool_traits import BUILT_IN

    near = difflib.get_close_matches(name, BUILT_IN, n=1, cutoff=0.6)
    return near[0] if near else ""


Rule = tuple[Callable[[Arguments], bool], str, str]
"""When it is broken, what the error says (`{command}` is the command's name) and what to do."""


def validate(arguments: Arguments) -> None:
    """Raise UsageError for options that cannot be used together."""
    _apply(_SINGLE_RULES, arguments)
    kind = transport_kind(arguments.connection)
    _apply(_CONNECTION_RULES, arguments)
    _check_host(arguments, kind)
    _check_commands(arguments.connection, kind)
    _check_ssh_options(arguments.connection, kind)
    _check_own_options(arguments)
    _apply(_SESSION_RULES if arguments.command in ("", "ssh") else _HOST_COMMAND_RULES, arguments)
    _apply(_STREAM_RULES, arguments)


def refuse_ssh_options(connection: ConnectionOptions, instead: str) -> None:
    """Raise UsageError for SSH options without a host. `instead` is a command line with a host, for the hint."""
    for name, given in _ssh_options(connection):
        if given:
            raise UsageError(f"{name} needs a host", do=f"Write `{instead}`, or leave it out.")


def _apply(rules: Iterable[Rule], arguments: Arguments) -> None:
    for broken, what, do in rules:
        if broken(arguments):
            command = arguments.command
            raise UsageError(what.replace("{command}", command), do=do.replace("{command}", command))


def _continues(session: SessionChoice) -> bool:
    return session.continue_latest or session.resume is not None


def _stream_out(streams: StdioOptions) -> bool:
    return streams.output_format == "stream-json"


def _stream_in(streams: StdioOptions) -> bool:
    return streams.input_format == "stream-json"


def _names_a_way(connection: ConnectionOptions) -> bool:
    return (connection.transport, connection.ssh_command, connection.container) != (None, None, None)


_CONNECTION_RULES: tuple[Rule, ...] = (
    (
        lambda given: not given.command and _names_a_way(given.connection),
        "--transport, --ssh-command and --container belong to `ccb ssh`",
        "Write `ccb ssh HOST …`.",
    ),
    (
        lambda given: (
            given.connection.local and (given.connection.transport, given.connection.ssh_command) != (None, None)
        ),
        "--local excludes --transport and --ssh-command",
        "Give one of them.",
    ),
    (
        lambda given: (
            given.connection.ssh_command is not None
            and given.connection.transport not in (None, TransportKind.OPENSSH.value)
        ),
        "--ssh-command goes with --transport ssh only",
        "Leave out --transport.",
    ),
)

_SINGLE_RULES: tuple[Rule, ...] = (
    (
        lambda given: given.account.api_key_stdin and given.account.oauth_stdin,
        "--api-key-stdin and --oauth-stdin cannot be used together",
        "Give one of them.",
    ),
    (
        lambda given: given.command == "stop" and given.host_command.all and bool(given.session.resume),
        "an ID and --all cannot be used together",
        "Give one of them.",
    ),
)

_HOST_COMMAND_RULES: tuple[Rule, ...] = (
    (
        lambda given: given.command != "attach" and given.headless,
        "ccb {command} has no headless mode",
        "See `ccb help`.",
    ),
    (
        lambda given: given.session.continue_latest or given.session.fork_session or bool(given.session.session_id),
        "--continue, --fork-session and --session-id belong to `ccb ssh`",
        "See `ccb help`.",
    ),
)

_SESSION_RULES: tuple[Rule, ...] = (
    (
        lambda given: given.agent.init_only and (given.prompt is not None or _continues(given.session)),
        "--init-only starts a new session without a prompt",
        "Leave out the prompt and --continue or --resume, or write --init.",
    ),
    (
        lambda given: given.agent.maintenance and (given.agent.init or given.agent.init_only),
        "--maintenance and --init cannot be used together",
        "Give one of them.",
    ),
    (
        lambda given: given.agent.allow_net and given.agent.sandbox in ("read-only", "off"),
        "--allow-net belongs to --sandbox workspace",
        "Give --sandbox workspace, or leave out --allow-net.",
    ),
    (
        lambda given: given.session.continue_latest and given.session.resume is not None,
        "--continue and --resume cannot be used together",
        "Give one of them.",
    ),
    (
        lambda given: given.session.worktree is not None and _continues(given.session),
        "--worktree is for a new session",
        "Leave it out: a session that is continued goes back into its own worktree.",
    ),
    (
        lambda given: given.session.fork_session and not _continues(given.session),
        "--fork-session needs --continue or --resume",
        "Say which session to copy.",
    ),
    (
        lambda given: bool(given.session.session_id) and _continues(given.session) and not given.session.fork_session,
        "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.",
        "Add --fork-session, or leave out --session-id.",
    ),
    (
        lambda given: bool(given.session.rewind_files or given.session.resume_at) and not _continues(given.session),
        "--rewind-files and --resume-session-at need --continue or --resume",
        "Say which session to go back in.",
    ),
    (
        lambda given: bool(given.session.drops_turn) and not given.session.resume_at,
        "--resume-drops-turn needs --resume-session-at",
        "Say after which message the session goes on.",
    ),
    (
        lambda given: bool(given.session.resume_at) and not given.headless,
        "--resume-session-at is for headless runs",
        "Add -p, or go back with /rewind in the session.",
    ),
    (
        lambda given: given.session.resume == "" and given.headless,
        "--resume needs the ID of a session in a headless run",
        "`ccb ps HOST` lists them.",
    ),
)

_STREAM_RULES: tuple[Rule, ...] = (
    (
        lambda given: _stream_in(given.streams) and not _stream_out(given.streams),
        "Error: --input-format=stream-json requires output-format=stream-json.",
        "Add --output-format=stream-json.",
    ),
    (
        lambda given: _stream_out(given.streams) and not given.streams.verbose,
        "Error: When using --print, --output-format=stream-json requires --verbose",
        "Add --verbose.",
    ),
    (
        lambda given: given.streams.include_partial_messages and not _stream_out(given.streams),
        "Error: --include-partial-messages requires --print and --output-format=stream-json.",
        "Add -p and --output-format=stream-json.",
    ),
    (
        lambda given: given.streams.replay_user_messages and not _stream_in(given.streams),
        "Error: --replay-user-messages requires both --input-format=stream-json and --output-format=stream-json.",
        "Add both.",
    ),
    (
        lambda given: given.streams.permission_prompt_tool == "stdio" and not _stream_in(given.streams),
        "Error: --permission-prompt-tool stdio requires --input-format=stream-json.",
        "Without it, allow what is needed with --allowedTools or --permission-mode.",
    ),
    (
        lambda given: bool(given.streams.permission_prompt_tool) and not given.headless,
        "--permission-prompt-tool is for headless runs",
        "Add -p, or leave it out: ccb asks you.",
    ),
)


def _check_host(arguments: Arguments, kind: TransportKind) -> None:
    """Check that a connection over SSH has a host."""
    command = arguments.command
    if kind in (TransportKind.OPENSSH, TransportKind.WRAPPER) and arguments.connection.target is None:
        raise UsageError(f"ccb {command} needs a host", do=f"Write `ccb {command} [user@]host …`.")


def _check_commands(connection: ConnectionOptions, kind: TransportKind) -> None:
    """Check the container's name and the command of --transport."""
    if connection.container is not None:
        from ccb.tunnel.transports.container import container_name

        container_name(connection.container)
    if kind is TransportKind.COMMAND:
        from ccb.tunnel.transports.command_transport import words_of

        words_of(str(connection.transport), "--transport")


def _check_ssh_options(connection: ConnectionOptions, kind: TransportKind) -> None:
    """Refuse SSH options for a program that ccb cannot pass them to."""
    if kind not in (TransportKind.COMMAND, TransportKind.WRAPPER):
        return
    option = "--transport" if kind is TransportKind.COMMAND else "--ssh-command"
    user = connection.target.user if kind is TransportKind.COMMAND and connection.target else None
    for name, value in (*_ssh_options(connection), ("user@", user)):
        if value:
            raise UsageError(
                f"{name} is for ssh: it does not go with {option} '…'", do=f"Write it into the command of {option}."
            )


def _check_own_options(arguments: Arguments) -> None:
    """Refuse options that belong to other commands."""
    action = f"{arguments.command} {arguments.rest[0]}" if arguments.rest else ""
    for option in OPTIONS:
        if not option.commands or arguments.command in option.commands or action in option.commands:
            continue
        if arguments.value(option) != Arguments().value(option):
            owners = ", ".join(f"`ccb {command}`" for command in option.commands)
            raise UsageError(f"{option.names[0]} belongs to {owners}")


def _ssh_options(connection: ConnectionOptions) -> tuple[tuple[str, object], ...]:
    return ("-i", connection.identities), ("-P", connection.port), ("-o", connection.ssh_options)
