"""Every option, declared once.

`scanner` parses values with them, `validation` and `help_text` read from them which command takes which option, and
docs/reference/command-line.md is generated from them.
"""

from __future__ import annotations

from collections.abc import Iterator

from .option_declaration import (
    Group,
    Option,
    OptionKind,
    Subcommand,
    read_count,
    read_duration,
    read_model,
    read_permission_tool,
    read_port,
    read_session_id,
    read_ssh_option,
    read_uuid,
    read_worktree_name,
)
from .sdk_options import SDK_OPTIONS

OUTPUT_FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")

_FLAG, _VALUE = OptionKind.FLAG, OptionKind.VALUE

SCREEN_OPTIONS = (
    Option(
        ("--plain",), Group.SCREEN, "plain", _FLAG,
        "Show the session as lines, without a full screen: for screen readers, simple terminals and logs.",
    ),
    Option(
        ("--no-mouse",), Group.SCREEN, "no_mouse", _FLAG,
        "Leave the mouse to the terminal: it selects and scrolls as for any program.",
    ),
)  # fmt: skip

STREAM_OPTIONS = (
    Option(
        ("--print", "-p"), Group.STREAMS, "print", _FLAG,
        "Print the answer and exit, without the terminal interface.",
    ),
    Option(
        ("--output-format",), Group.STREAMS, "output_format", _VALUE,
        "Write text (default), json (one result) or stream-json (every message as a line) to stdout.",
        "format", OUTPUT_FORMATS,
    ),
    Option(
        ("--input-format",), Group.STREAMS, "input_format", _VALUE,
        "Read text (default) or stream-json (one message a line) from stdin.", "format", INPUT_FORMATS,
    ),
    Option(
        ("--verbose",), Group.STREAMS, "verbose", _FLAG,
        "With json: print all messages instead of the result alone; stream-json requires it.",
    ),
    Option(
        ("--include-partial-messages",), Group.STREAMS, "include_partial_messages", _FLAG,
        "With stream-json: also print the raw events of the model's stream as they arrive.",
    ),
    Option(
        ("--replay-user-messages",), Group.STREAMS, "replay_user_messages", _FLAG,
        "With stream-json in and out: print each user message again when the agent takes it.",
    ),
    Option(
        ("--permission-prompt-tool",), Group.STREAMS, "permission_prompt_tool", _VALUE,
        "Let this decide what would ask a person: stdio (with stream-json in and out, questions on stdout and answers "
        "on stdin), or a tool of an MCP server (mcp__SERVER__TOOL).", "how", read=read_permission_tool,
    ),
)  # fmt: skip


PERMISSION_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")
SANDBOX_MODES = ("read-only", "workspace", "off")

_OPTIONS_FLAG, _OPTIONS_VALUE, _VARIADIC = OptionKind.FLAG, OptionKind.VALUE, OptionKind.VARIADIC

OPTIONS = (
    Option(
        ("--continue", "-c"), Group.SESSION, "continue_latest", _OPTIONS_FLAG,
        "Continue the latest session of the directory.",
    ),
    Option(
        ("--resume", "-r"), Group.SESSION, "resume", OptionKind.OPTIONAL,
        "Continue the session with this ID, or the start of one; without an ID, choose from a list.",
        "id", read=read_session_id,
    ),
    Option(
        ("--worktree", "-w"), Group.SESSION, "worktree", OptionKind.OPTIONAL,
        "Work in a git worktree of this name below .claude/worktrees, on a branch of its own; without a name, in a new "
        "one.",
        "name", read=read_worktree_name,
    ),
    Option(
        ("--fork-session",), Group.SESSION, "fork_session", _OPTIONS_FLAG,
        "With --continue or --resume: continue in a copy, so that the original session stays as it is.",
    ),
    Option(
        ("--session-id",), Group.SESSION, "session_id", _OPTIONS_VALUE,
        "Give the new session this ID (a UUID).", "uuid", read=read_uuid,
    ),
    Option(
        ("--rewind-files",), Group.SESSION, "rewind_files", _OPTIONS_VALUE,
        "With --resume or --continue: put the files back to before the prompt with this id, and end.", "id",
    ),
    Option(
        ("--reconnect-timeout",), Group.SESSION, "reconnect_timeout", _OPTIONS_VALUE,
        "Give up reconnecting this long after the connection is lost (default: 24 h, headless 600 s; 0: at once).",
        "seconds", read=read_duration("seconds"),
    ),
    Option(
        ("--model",), Group.AGENT, "model", _OPTIONS_VALUE,
        "Use this model: an alias (opus, sonnet, haiku) or a full name.", "model", read=read_model,
    ),
    Option(
        ("--permission-mode",), Group.AGENT, "permission_mode", _OPTIONS_VALUE,
        "Set the permission mode: default, acceptEdits, plan, dontAsk (deny what would need a question) or "
        "bypassPermissions.", "mode", PERMISSION_MODES,
    ),
    Option(
        ("--dangerously-skip-permissions",), Group.AGENT, "dangerously_skip_permissions", _OPTIONS_FLAG,
        "Run every tool without asking; use it only on a host that you can afford to lose.",
    ),
    Option(
        ("--sandbox",), Group.AGENT, "sandbox", _OPTIONS_VALUE,
        "Set the cage of commands that run without a question: read-only (default), workspace or off.",
        "mode", SANDBOX_MODES,
    ),
    Option(
        ("--allow-net",), Group.AGENT, "allow_net", _OPTIONS_FLAG,
        "With --sandbox workspace: let commands use the network without a question.",
    ),
    Option(
        ("--web",), Group.AGENT, "web", _OPTIONS_VALUE,
        "Read web pages (WebFetch) in the network of the host (default) or of this machine: host or laptop.",
        "where", ("host", "laptop"),
    ),
    Option(
        ("--record",), Group.AGENT, "record", _OPTIONS_FLAG,
        "Keep the requests to models and their answers in files of this machine (~/.local/state/ccb/recorded).",
    ),
    Option(
        ("--trust",), Group.AGENT, "trust", _OPTIONS_FLAG,
        "Let what the files of the project switch on count in this run, without a question: settings with their hooks "
        "and rules, agents, commands, skills, MCP servers.",
    ),
    Option(
        ("--allowedTools", "--allowed-tools", "--allow"), Group.AGENT, "allowed_tools", _VARIADIC,
        "Allow tool calls that match these rules without asking, for example `Bash(git *),Edit(src/**)`.", "rules",
    ),
    Option(
        ("--disallowedTools", "--disallowed-tools", "--deny"), Group.AGENT, "disallowed_tools", _VARIADIC,
        "Deny tool calls that match these rules.", "rules",
    ),
    Option(
        ("--append-system-prompt",), Group.AGENT, "append_system_prompt", _OPTIONS_VALUE,
        "Add this text to the end of the system prompt.", "text",
    ),
    Option(
        ("--system-prompt",), Group.AGENT, "system_prompt", _OPTIONS_VALUE,
        "Use this text instead of the system prompt.", "text",
    ),
    Option(
        ("--max-turns",), Group.AGENT, "max_turns", _OPTIONS_VALUE,
        "Stop after this many model calls for one prompt.", "n", read=read_count,
    ),
    Option(
        ("--add-dir",), Group.AGENT, "add_dirs", _VARIADIC,
        "Let tools use these directories of the host as well.", "dirs",
    ),
    *SCREEN_OPTIONS,
    *STREAM_OPTIONS,
    Option(
        ("--identity", "-i"), Group.CONNECTION, "identities", OptionKind.REPEAT,
        "Log in with this private key file; may be repeated.", "file",
    ),
    Option(
        ("--port", "-P"), Group.CONNECTION, "port", _OPTIONS_VALUE,
        "Connect to this SSH port.", "port", read=read_port,
    ),
    Option(
        ("-o",), Group.CONNECTION, "ssh_options", OptionKind.REPEAT,
        "Set an option of ssh_config (-o Name=value); may be repeated.", "option", read=read_ssh_option,
    ),
    Option(
        ("--no-pipelined-login",), Group.CONNECTION, "plain_login", _OPTIONS_FLAG,
        "Log in step by step, as ssh does, also where one key alone was enough for the last login.",
    ),
    Option(
        ("--transport",), Group.CONNECTION, "transport", _OPTIONS_VALUE,
        "Reach the host by asyncssh (built in, the default), by ssh (the OpenSSH client), or by a command that leads "
        "to a shell: 'docker exec -i NAME', 'kubectl exec -i POD --', 'srun --pty'; with a command, the host is only a "
        "name and may be left out.", "transport",
    ),
    Option(
        ("--ssh-command",), Group.CONNECTION, "ssh_command", _OPTIONS_VALUE,
        "Run this program instead of ssh, for example 'gcloud compute ssh'; {host} and {command} mark where host and "
        "command go, otherwise they are appended.", "command",
    ),
    Option(
        ("--container",), Group.CONNECTION, "container", _OPTIONS_VALUE,
        "Work in this container of the host, entered with its docker or podman.", "name",
    ),
    Option(
        ("--local",), Group.CONNECTION, "local", _OPTIONS_FLAG,
        "Run the worker on this machine instead of the host, without SSH.",
    ),
    Option(
        ("--view",), Group.HOST_COMMAND, "view", _OPTIONS_FLAG,
        "Only watch the session, and leave it to the client that drives it.", commands=("attach",),
    ),
    Option(
        ("--all",), Group.HOST_COMMAND, "all", _OPTIONS_FLAG,
        "Stop every session of the host.", commands=("stop",),
    ),
    Option(
        ("--dry-run",), Group.HOST_COMMAND, "dry_run", _OPTIONS_FLAG,
        "Only list what would be removed.", commands=("gc", "clean"),
    ),
    Option(
        ("--older-than",), Group.HOST_COMMAND, "older_than", _OPTIONS_VALUE,
        "Remove ended sessions that are older than this (default: 30).",
        "days", read=read_duration("days"), commands=("gc",),
    ),
    Option(
        ("--yes",), Group.HOST_COMMAND, "yes", _OPTIONS_FLAG,
        "Remove or trust everything without asking first.", commands=("clean", "trust"),
    ),
    Option(
        ("--revoke",), Group.HOST_COMMAND, "revoke", _OPTIONS_FLAG,
        "Take trust and the rules of \"always\" back. The host is not asked.", commands=("trust",),
    ),
    Option(
        ("--lines", "-n"), Group.HOST_COMMAND, "lines", _OPTIONS_VALUE,
        "Show this many lines (default: 200).", "n", read=read_count, commands=("logs",),
    ),
    Option(
        ("--json",), Group.HOST_COMMAND, "json", _OPTIONS_FLAG,
        "Print one JSON object a line.", commands=("ps", "doctor"),
    ),
    Option(
        ("--recursive",), Group.HOST_COMMAND, "recursive", _OPTIONS_FLAG,
        "Copy folders too. They are always copied; this is for hands that are used to scp (-r does the same).",
        commands=("cp",),
    ),
    Option(
        ("--debug",), Group.GENERAL, "debug", _OPTIONS_FLAG,
        "Write a detailed log file; it contains no secrets, no prompts and no file contents.",
    ),
    *SDK_OPTIONS,
    Option(("--help", "-h"), Group.GENERAL, "help", _OPTIONS_FLAG, "Show this help."),
    Option(("--version", "-v"), Group.GENERAL, "version", _OPTIONS_FLAG, "Show the version."),
)  # fmt: skip

BY_NAME = {name: option for option in OPTIONS for name in option.names}

_SESSION_GROUPS = (Group.SESSION, Group.AGENT, Group.SCREEN, Group.STREAMS, Group.SDK)

SUBCOMMANDS = (
    Subcommand(
        "ssh",
        ("ccb ssh [user@]host[:/path] [DIR] [PROMPT]", "ccb ssh host --local [DIR] [PROMPT]"),
        "work on another machine",
        "Run an agent on another machine and use it from this terminal. Without -p the terminal interface starts and "
        "PROMPT is its first message. With -p the answer to PROMPT, and to what is piped in, is printed.",
        (*_SESSION_GROUPS, Group.CONNECTION),
    ),
    Subcommand(
        "",
        ("ccb [PATH] [PROMPT]",),
        "work in a directory of this machine",
        "Run an agent on this machine, in PATH or in the current directory. The first word is PATH if such a directory "
        "exists or if it is written like a path; write `--` before a prompt that could be taken for one.",
        _SESSION_GROUPS,
    ),
    Subcommand(
        "auth",
        ("ccb auth login [--api-key-stdin]", "ccb auth status", "ccb auth logout"),
        "manage the model credential of this machine",
        "Keep the API key of the model in the keyring of this machine: `login` checks a key and stores it, `status` "
        "says which credential is used, `logout` removes the stored key.",
    ),
    Subcommand(
        "config",
        ("ccb config show [--origin] [--settings JSON] [HOST:/PATH]",),
        "show the settings of this machine",
        "Print each setting that is set on this machine, and what is kept of projects: trust, and rules of \"always\". "
        "With HOST:/PATH, also what the project there sets. With --origin, say where each comes from.",
    ),
    Subcommand(
        "mcp",
        ("ccb mcp add NAME -- COMMAND [ARG]...", "ccb mcp add NAME URL", "ccb mcp list|get|remove|test|login|logout"),
        "manage the MCP servers of this machine",
        "Manage the MCP servers of your settings. They run on this machine, and agents on any host use their tools: "
        "`add` adds one, `list` and `get` show them, `remove` removes one, `test` starts one and lists its tools.",
    ),
    Subcommand(
        "cp",
        ("ccb cp HOST:PATH LOCAL", "ccb cp LOCAL HOST:PATH"),
        "copy a file or a folder from a host, or to it",
        "Copy a file or a folder with all that is in it. A target that is a directory gets the source under its own "
        "name. After a lost connection, or when the same command is given again, a copy goes on where it broke off. "
        "What arrives is checked (SHA-256) and gets its name when it is complete. Links are not followed and not "
        "copied. Write ./a:b for a file of this machine with a colon in its name.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "models",
        ("ccb models [--provider NAME] [--json]",),
        "list the models that can be chosen",
        "Print the models that --model takes, as their providers list them: window, longest answer, prices, and what "
        "they can do. The lists are kept on this machine.",
    ),
    Subcommand(
        "usage",
        ("ccb usage [--by host|model|day|session] [--days N] [--json]",),
        "show what model calls have used and cost",
        "Print the tokens and the cost of the model calls that this machine has passed on, for each day, host, model "
        "or session. The figures are those of the provider, read on this machine.",
    ),
    Subcommand(
        "audit",
        ("ccb audit SESSION [--json]",),
        "show what a session asked of models, wanted to run, and was allowed",
        "Print what this machine has seen of a session: what its models were asked, which tools they wanted to run, "
        "what was decided here, and what came back. SESSION is its ID, or the beginning of it.",
    ),
    Subcommand(
        "proxy",
        ("ccb proxy list [--json]", "ccb proxy revoke SESSION|--all"),
        "show which sessions call models through this machine, and end that",
        "Show the sessions that may call models through this machine now (`list`), or let one call no models any more "
        "(`revoke`): calls under way end with the next byte. In the REPL, /revoke does the same.",
    ),
    Subcommand(
        "ps",
        ("ccb ps [HOST] [--json]",),
        "list the sessions of a host (default: this machine)",
        "List the sessions of a host, or of this machine: ID, state, age, time since last use, memory, driver, "
        "directory and last prompt.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "attach",
        ("ccb attach HOST [ID] [--view]",),
        "take over a running session, or watch it",
        "Continue a session that runs on the host: the one with this ID, the only one, or one chosen from a list. The "
        "terminal that drove the session is notified and can take it back. With --view the session is only watched.",
        (Group.CONNECTION, *_SESSION_GROUPS),
        ("--session-id", "--continue", "--resume", "--fork-session"),
    ),
    Subcommand(
        "logs",
        ("ccb logs HOST ID [-n LINES]",),
        "show what a session did",
        "Show the last lines of what a session did and of its worker's log.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "stop",
        ("ccb stop HOST ID", "ccb stop HOST --all"),
        "end the worker of a session, or of all sessions",
        "End the worker of a session and every process it started. The session stays and can be resumed.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "gc",
        ("ccb gc HOST [--dry-run] [--older-than DAYS]",),
        "remove what is no longer needed on a host",
        "Remove what dead workers left behind, bundles that nothing uses, and old sessions. Each removal is listed.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "clean",
        ("ccb clean HOST [--dry-run] [--yes]",),
        "remove ccb from a host",
        "Stop and remove every session and everything else that ccb keeps on the host. Asks first.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "trust",
        ("ccb trust", "ccb trust HOST[:/PATH] [--yes]", "ccb trust HOST[:/PATH] --revoke"),
        "show, give or take back the trust in a project on a host",
        "Without HOST, list what is kept of projects: trust, and rules of \"always\". With HOST, show all that the "
        "project in PATH would switch on, and ask whether it may. With --revoke, forget it.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "disconnect",
        ("ccb disconnect [HOST]",),
        "end the SSH connections that are kept",
        "End the SSH connection to HOST that the setting keepConnection keeps on this machine; without HOST, end all "
        "of them. Sessions that run over it connect again.",
    ),
    Subcommand(
        "doctor",
        ("ccb doctor [HOST] [--json]",),
        "find out what stands in the way of a session",
        "Check this machine, the connection and the host, and print each finding with its evidence and a fix. Without "
        "HOST, check this machine only. The exit code is 1 if a finding would stop a session.",
        (Group.CONNECTION,),
    ),
    Subcommand(
        "help",
        ("ccb help [COMMAND]",),
        "show this help, or that of one command",
        "Show the commands and options of ccb, or those of one command. `ccb COMMAND --help` does the same.",
    ),
)  # fmt: skip

OWN_WORDS = ("audit", "auth", "config", "mcp", "models", "proxy", "usage")
"""The commands that read the words after them themselves."""

HOST_COMMANDS = ("cp", "ps", "attach", "logs", "stop", "gc", "clean", "trust", "disconnect", "doctor")
COMMANDS = ("ssh", *OWN_WORDS, "help", *HOST_COMMANDS)


def options_of(command: Subcommand) -> Iterator[Option]:
    """Return the options that a command takes, its own first."""
    taken = [option for option in OPTIONS if command.takes(option)]
    yield from (option for option in taken if option.commands)
    yield from (option for option in taken if not option.commands)
