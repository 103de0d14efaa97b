"""Which options go together, and checks of tool names, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable

from ccb.tunnel.errors import UsageError

from .arguments import OPTIONS, Arguments, ConnectionOptions
from .option_declaration import shortened
from .transport_choice import TransportKind, transport_kind

_GIVE_ONE = "Give one of them."


def unknown_tools(arguments: Arguments) -> Iterable[str]:
    """Return a sentence for each name that no tool has. Raise UsageError for one in `--tools`, unless a program
    drives."""
    agent, offered = arguments.agent, arguments.sdk.tools or ()
    driven = arguments.streams.input_format == "stream-json"
    options = (("--allowedTools", agent.allowed_tools), ("--disallowedTools", agent.disallowed_tools))
    for option, names in (*options, ("--tools", offered)):
        for given in names:
            name = given.partition("(")[0] if option != "--tools" else given
            if not no_such_tool(name):
                continue
            import difflib

            from ccb.tunnel.wire.tool_traits import BUILT_IN

            near = difflib.get_close_matches(name, BUILT_IN, n=1, cutoff=0.6)
            if option == "--tools" and not driven:
                raise UsageError(
                    f"--tools {shortened(name)}: there is no tool of that name",
                    do=f"Did you mean {near[0]}?" if near else "`ccb help` says how --tools is written.",
                )
            meant = f" (did you mean {near[0]}?)" if near else ""
            yield f"{option} {shortened(given)}: there is no tool of that name{meant}"


def no_such_tool(name: str) -> str:
    from ccb.tunnel.wire.tool_traits import no_such_tool as told  # most starts name no tools

    return told(shortened(name))


def validate(arguments: Arguments) -> None:
    command, account = arguments.command, arguments.account
    if account.api_key_stdin and account.oauth_stdin:
        raise UsageError("--api-key-stdin and --oauth-stdin cannot be used together", do=_GIVE_ONE)
    if command == "stop" and arguments.host_command.all and arguments.session.resume:
        raise UsageError("an ID and --all cannot be used together", do=_GIVE_ONE)
    _check_connection(arguments)
    _check_owners(arguments)
    if command in ("", "ssh"):
        continues = arguments.session.continue_latest or arguments.session.resume is not None
        _check_session(arguments, continues=continues)
        _check_going_back(arguments, continues=continues)
    else:
        _check_host_command(arguments)
    _check_streams(arguments)


def refuse_ssh_options(connection: ConnectionOptions, instead: str) -> None:
    """Raise UsageError for SSH options without a host. `instead` is a command line with a host, for the hint."""
    for name, given in _ssh_options(connection):
        if given:
            raise UsageError(f"{name} needs a host", do=f"Write `{instead}`, or leave it out.")


def _ssh_options(connection: ConnectionOptions) -> tuple[tuple[str, object], ...]:
    return ("-i", connection.identities), ("-P", connection.port), ("-o", connection.ssh_options)


def _check_connection(arguments: Arguments) -> None:
    command, given, kind = arguments.command, arguments.connection, transport_kind(arguments.connection)
    ways = (given.transport, given.ssh_command)
    if not command and (*ways, given.container) != (None, None, None):
        raise UsageError("--transport, --ssh-command and --container belong to `ccb ssh`", do="Write `ccb ssh HOST …`.")
    if given.local and ways != (None, None):
        raise UsageError("--local excludes --transport and --ssh-command", do=_GIVE_ONE)
    if given.ssh_command is not None and given.transport not in (None, TransportKind.OPENSSH.value):
        raise UsageError("--ssh-command goes with --transport ssh only", do="Leave out --transport.")
    if kind in (TransportKind.OPENSSH, TransportKind.WRAPPER) and given.target is None:
        raise UsageError(f"ccb {command} needs a host", do=f"Write `ccb {command} [user@]host …`.")
    if given.container is not None:
        from ccb.tunnel.transports.container import container_name

        container_name(given.container)
    if kind is TransportKind.COMMAND:
        from ccb.tunnel.transports.command_transport import words_of

        words_of(str(given.transport), "--transport")
        user = given.target.user if given.target else None
        _refuse_for_program(given, "--transport", user)
    elif kind is TransportKind.WRAPPER:
        _refuse_for_program(given, "--ssh-command", None)


def _refuse_for_program(connection: ConnectionOptions, option: str, user: str | None) -> None:
    for name, value in (*_ssh_options(connection), ("user@", user)):
        if value:
            raise UsageError(
                f"{name} is for ssh: it does not go with {option} '…'", do=f"Write it into the command of {option}."
            )


def _check_owners(arguments: Arguments) -> None:
    action = f"{arguments.command} {arguments.rest[0]}" if arguments.rest else ""
    for option in OPTIONS:
        if not option.commands or arguments.command in option.commands or action in option.commands:
            continue
        if arguments.value(option) != Arguments().value(option):
            owners = ", ".join(f"`ccb {command}`" for command in option.commands)
            raise UsageError(f"{option.names[0]} belongs to {owners}")


def _check_host_command(arguments: Arguments) -> None:
    command, session = arguments.command, arguments.session
    if command != "attach" and arguments.headless:
        raise UsageError(f"ccb {command} has no headless mode")
    if session.continue_latest or session.fork_session or session.session_id:
        raise UsageError("--continue, --fork-session and --session-id belong to `ccb ssh`")


def _check_session(arguments: Arguments, *, continues: bool) -> None:
    session, agent = arguments.session, arguments.agent
    if agent.init_only and (arguments.prompt is not None or continues):
        raise UsageError(
            "--init-only starts a new session without a prompt",
            do="Leave out the prompt and --continue or --resume, or write --init.",
        )
    if agent.maintenance and (agent.init or agent.init_only):
        raise UsageError("--maintenance and --init cannot be used together", do=_GIVE_ONE)
    if agent.allow_net and agent.sandbox in ("read-only", "off"):
        raise UsageError(
            "--allow-net belongs to --sandbox workspace", do="Give --sandbox workspace, or leave out --allow-net."
        )
    if session.continue_latest and session.resume is not None:
        raise UsageError("--continue and --resume cannot be used together", do=_GIVE_ONE)
    if session.worktree is not None and continues:
        raise UsageError(
            "--worktree is for a new session",
            do="Leave it out: a session that is continued goes back into its own worktree.",
        )


def _check_going_back(arguments: Arguments, *, continues: bool) -> None:
    session = arguments.session
    if session.fork_session and not continues:
        raise UsageError("--fork-session needs --continue or --resume", do="Say which session to copy.")
    if session.session_id and continues and not session.fork_session:
        raise UsageError(
            "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.",
            do="Add --fork-session, or leave out --session-id.",
        )
    if (session.rewind_files or session.resume_at) and not continues:
        raise UsageError(
            "--rewind-files and --resume-session-at need --continue or --resume", do="Say which session to go back in."
        )
    if session.drops_turn and not session.resume_at:
        raise UsageError(
            "--resume-drops-turn needs --resume-session-at", do="Say after which message the session goes on."
        )
    if session.resume_at and not arguments.headless:
        raise UsageError(
            "--resume-session-at is for headless runs", do="Add -p, or go back with /rewind in the session."
        )
    if session.resume == "" and arguments.headless:
        raise UsageError("--resume needs the ID of a session in a headless run", do="`ccb ps HOST` lists them.")


def _check_streams(arguments: Arguments) -> None:
    streams = arguments.streams
    json_out, json_in = streams.output_format == "stream-json", streams.input_format == "stream-json"
    if json_in and not json_out:
        raise UsageError(
            "Error: --input-format=stream-json requires output-format=stream-json.",
            do="Add --output-format=stream-json.",
        )
    if json_out and not streams.verbose:
        raise UsageError(
            "Error: When using --print, --output-format=stream-json requires --verbose", do="Add --verbose."
        )
    if streams.include_partial_messages and not json_out:
        raise UsageError(
            "Error: --include-partial-messages requires --print and --output-format=stream-json.",
            do="Add -p and --output-format=stream-json.",
        )
    if streams.replay_user_messages and not json_in:
        raise UsageError(
            "Error: --replay-user-messages requires both --input-format=stream-json and --output-format=stream-json.",
            do="Add both.",
        )
    if streams.permission_prompt_tool == "stdio" and not json_in:
        raise UsageError(
            "Error: --permission-prompt-tool stdio requires --input-format=stream-json.",
            do="Without it, allow what is needed with --allowedTools or --permission-mode.",
        )
    if streams.permission_prompt_tool and not arguments.headless:
        raise UsageError("--permission-prompt-tool is for headless runs", do="Add -p, or leave it out: ccb asks you.")
