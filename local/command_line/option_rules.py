"""Which options go together, and checks of tool names, in a fixed order."""

from __future__ import annotations

from collections.abc import Iterable

from ccb.tunnel.errors import UsageError
from ccb.tunnel.transports.command_transport import words_of
from ccb.tunnel.transports.container import container_name
from ccb.tunnel.wire.tool_traits import BUILT_IN, no_such_tool

from .arguments import OPTIONS, Arguments, ConnectionOptions
from .option_values import nearest, shortened
from .transport_choice import TransportKind, transport_kind


def unknown_tools(arguments: Arguments) -> Iterable[str]:
    """Return a sentence for each unknown tool. Raise UsageError for one in `--tools`, unless a program drives."""
    permissions, offered = arguments.permissions, arguments.sdk.tools or ()
    driven = arguments.streams.input_format == "stream-json"
    options = (("--allowedTools", permissions.allowed_tools), ("--disallowedTools", permissions.disallowed_tools))
    for option, names in (*options, ("--tools", offered)):
        for given in names:
            name = given.partition("(")[0] if option != "--tools" else given
            if not no_such_tool(name):
                continue
            near = nearest(name, BUILT_IN)
            if option == "--tools" and not driven:
                raise UsageError(
                    f"--tools {shortened(name)}: there is no tool of that name",
                    do=f"Did you mean {near[0]}?" if near else "`ccb help` says how --tools is written.",
                )
            meant = f" (did you mean {near[0]}?)" if near else ""
            yield f"{option} {shortened(given)}: there is no tool of that name{meant}"


def validate(arguments: Arguments) -> None:
    _check_connection(arguments)
    _check_owners(arguments)
    if arguments.headless and arguments.command not in ("", "ssh", "attach", "fleet"):
        raise UsageError(f"ccb {arguments.command} has no headless mode")
    own = _rules_of_sessions if arguments.command in ("", "ssh") else _rules_of_commands
    for wrong, error, what, do in (*own(arguments), *_rules_of_streams(arguments)):
        if wrong:
            raise error(what, do=do)


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
        raise UsageError("--local excludes --transport and --ssh-command", do="Give one of them.")
    if given.ssh_command is not None and given.transport not in (None, TransportKind.OPENSSH.value):
        raise UsageError("--ssh-command goes with --transport ssh only", do="Leave out --transport.")
    if kind in (TransportKind.OPENSSH, TransportKind.WRAPPER) and given.target is None:
        raise UsageError(f"ccb {command} needs a host", do=f"Write `ccb {command} [user@]host …`.")
    _check_container(given, arguments.directory)
    if kind is TransportKind.COMMAND:
        words_of(str(given.transport), "--transport")
        user = given.target.user if given.target else None
        _refuse_for_program(given, "--transport", user)
    elif kind is TransportKind.WRAPPER:
        _refuse_for_program(given, "--ssh-command", None)


def _check_container(given: ConnectionOptions, folder: str | None) -> None:
    if given.devcontainer and (given.container is not None or folder is None or "\n" in folder):
        what = "excludes --container" if given.container is not None else "needs the folder with devcontainer.json"
        raise UsageError(f"--devcontainer {what}", do="Write `ccb ssh HOST:/PATH --devcontainer`.")
    if given.container is not None:
        container_name(given.container)


def _refuse_for_program(connection: ConnectionOptions, option: str, user: str | None) -> None:
    for name, value in (*_ssh_options(connection), ("user@", user)):
        if value:
            do = f"Write it into the command of {option}."
            raise UsageError(f"{name} is for ssh: it does not go with {option} '…'", do=do)


def _check_owners(arguments: Arguments) -> None:
    action = f"{arguments.command} {arguments.rest[0]}" if arguments.rest else ""
    for option in OPTIONS:
        if not option.commands or arguments.command in option.commands or action in option.commands:
            continue
        if arguments.value(option) != Arguments().value(option):
            owners = ", ".join(f"`ccb {command}`" for command in option.commands)
            raise UsageError(f"{option.names[0]} belongs to {owners}")


Rule = tuple[object, type[UsageError], str, str]
"""Whether it is wrong, and the error: what it is, and what to do."""


def _rules_of_commands(arguments: Arguments) -> tuple[Rule, ...]:
    own, session = arguments.host_command, arguments.session
    return (
        (own.api_key_stdin and own.oauth_stdin, UsageError,
         "--api-key-stdin and --oauth-stdin cannot be used together", "Give one of them."),
        (arguments.command == "stop" and own.all and session.resume, UsageError,
         "an ID and --all cannot be used together", "Give one of them."),
        (own.with_files and own.no_files, UsageError,
         "--with-files and --no-files cannot be used together", "Give one of them."),
        (session.continue_latest or session.fork_session or session.session_id, UsageError,
         "--continue, --fork-session and --session-id belong to `ccb ssh`", "Write `ccb ssh HOST …`."),
    )  # fmt: skip


def _rules_of_sessions(arguments: Arguments) -> tuple[Rule, ...]:
    agent, permissions, session = arguments.agent, arguments.permissions, arguments.session
    return (
        (agent.init_only and (arguments.prompt is not None or session.continues), UsageError,
         "--init-only starts a new session without a prompt",
         "Leave out the prompt and --continue or --resume, or write --init."),
        (agent.remote_bin and agent.role is not None, UsageError, "--remote-bin and --agent cannot be used together",
         "Give one of them."),
        (agent.maintenance and (agent.init or agent.init_only), UsageError,
         "--maintenance and --init cannot be used together", "Give one of them."),
        (permissions.allow_net and permissions.sandbox in ("read-only", "off"), UsageError,
         "--allow-net belongs to --sandbox workspace", "Give --sandbox workspace, or leave out --allow-net."),
        (session.continue_latest and session.resume is not None, UsageError,
         "--continue and --resume cannot be used together", "Give one of them."),
        (session.worktree is not None and session.continues, UsageError, "--worktree is for a new session",
         "Leave it out: a session that is continued goes back into its own worktree."),
        (session.fork_session and not session.continues, UsageError, "--fork-session needs --continue or --resume",
         "Say which session to copy."),
        (session.session_id and session.continues and not session.fork_session, UsageError,
         "Error: --session-id can only be used with --continue or --resume if --fork-session is also specified.",
         "Add --fork-session, or leave out --session-id."),
        ((session.rewind_files or session.resume_at) and not session.continues, UsageError,
         "--rewind-files and --resume-session-at need --continue or --resume", "Say which session to go back in."),
        (session.drops_turn and not session.resume_at, UsageError, "--resume-drops-turn needs --resume-session-at",
         "Say after which message the session goes on."),
        (session.resume_at and not arguments.headless, UsageError, "--resume-session-at is for headless runs",
         "Add -p, or go back with /rewind in the session."),
        (session.resume == "" and not session.newest and arguments.headless, UsageError,
         "--resume needs the ID of a session in a headless run", "`ccb ps HOST` lists them."),
    )  # fmt: skip


def _rules_of_streams(arguments: Arguments) -> tuple[Rule, ...]:
    streams = arguments.streams
    json_out, json_in = streams.output_format == "stream-json", streams.input_format == "stream-json"
    return (
        (json_in and not json_out, UsageError,
         "Error: --input-format=stream-json requires output-format=stream-json.", "Add --output-format=stream-json."),
        (json_out and not streams.verbose, UsageError,
         "Error: When using --print, --output-format=stream-json requires --verbose", "Add --verbose."),
        (streams.include_partial_messages and not json_out, UsageError,
         "Error: --include-partial-messages requires --print and --output-format=stream-json.",
         "Add -p and --output-format=stream-json."),
        (streams.replay_user_messages and not json_in, UsageError,
         "Error: --replay-user-messages requires both --input-format=stream-json and --output-format=stream-json.",
         "Add both."),
        (streams.permission_prompt_tool == "stdio" and not json_in, UsageError,
         "Error: --permission-prompt-tool stdio requires --input-format=stream-json.",
         "Without it, allow what is needed with --allowedTools or --permission-mode."),
        (streams.permission_prompt_tool and not arguments.headless, UsageError,
         "--permission-prompt-tool is for headless runs", "Add -p, or leave it out: ccb asks you."),
    )  # fmt: skip
