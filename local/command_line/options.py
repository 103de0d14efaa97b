"""Every option and every command, declared once.

`parser` makes argparse of the options, `help_text` and docs/reference/command-line.md say which command takes which,
and `connect/session_request` fills the options of a session from the rows with a field on the wire.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator

from .option_declaration import (
    Group,
    Option,
    OptionKind,
    Subcommand,
    beta_features,
    json_object,
    offered_tools,
    read_count,
    read_json_object,
    read_model,
    read_number,
    read_permission_tool,
    read_port,
    read_rules,
    read_session_id,
    read_sources,
    read_ssh_option,
    read_tokens,
    read_uuid,
    read_worktree_name,
)

OUTPUT_FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")
PERMISSION_MODES = ("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions")
SANDBOX_MODES = ("read-only", "workspace", "off")
EFFORTS = ("low", "medium", "high", "xhigh", "max")

VARIADIC, REPEAT, OPTIONAL = OptionKind.VARIADIC, OptionKind.REPEAT, OptionKind.OPTIONAL

OPTIONS = (
    Option("--continue -c", Group.SESSION, "Continue the latest session of the directory.", name="continue_latest"),
    Option(
        "--resume -r", Group.SESSION, "Continue the session with this ID, or the start of one; without an ID, choose "
        "from a list.", "id", kind=OPTIONAL, read=read_session_id,
    ),
    Option(
        "--worktree -w", Group.SESSION, "Work in a git worktree of this name below .claude/worktrees, on a branch of "
        "its own; without a name, in a new one.", "name", kind=OPTIONAL, read=read_worktree_name,
    ),
    Option(
        "--fork-session", Group.SESSION, "With --continue or --resume: continue in a copy, so that the original "
        "session stays as it is.",
    ),
    Option("--session-id", Group.SESSION, "Give the new session this ID (a UUID).", "uuid", read=read_uuid),
    Option(
        "--rewind-files", Group.SESSION, "With --resume or --continue: put the files back to before the prompt with "
        "this id, and end.", "id",
    ),
    Option(
        "--reconnect-timeout", Group.SESSION, "Give up reconnecting this long after the connection is lost (default: "
        "24 h, headless 600 s; 0: at once).", "seconds", read=read_number("seconds"),
    ),
    Option(
        "--model", Group.AGENT, "Use this model: an alias (opus, sonnet, haiku) or a full name.", "model",
        read=read_model,
    ),
    Option(
        "--permission-mode", Group.AGENT, "Set the permission mode: default, acceptEdits, plan, dontAsk (deny what "
        "would need a question) or bypassPermissions.", "mode", choices=PERMISSION_MODES,
    ),
    Option(
        "--dangerously-skip-permissions", Group.AGENT, "Run every tool without asking; use it only on a host that you "
        "can afford to lose.",
    ),
    Option(
        "--sandbox", Group.AGENT, "Set the cage of commands that run without a question: read-only (default), "
        "workspace or off.", "mode", choices=SANDBOX_MODES, setting="sandbox", wire="sandbox",
    ),
    Option(
        "--allow-net", Group.AGENT, "With --sandbox workspace: let commands use the network without a question.",
        wire="allow_net",
    ),
    Option(
        "--web", Group.AGENT, "Read web pages (WebFetch) in the network of the host (default) or of this machine: host "
        "or laptop.", "where", choices=("host", "laptop"), setting="web", wire="web",
    ),
    Option(
        "--record", Group.AGENT, "Keep the requests to models and their answers in files of this machine "
        "(~/.local/state/ccb/recorded).",
    ),
    Option(
        "--trust", Group.AGENT, "Let what the files of the project switch on count in this run, without a question: "
        "settings with their hooks and rules, agents, commands, skills, MCP servers.",
    ),
    Option(
        "--allowedTools --allowed-tools --allow", Group.AGENT, "Allow tool calls that match these rules without "
        "asking, for example `Bash(git *),Edit(src/**)`.", "rules", name="allowed_tools", kind=VARIADIC,
        read=read_rules, setting="permissions.allow", wire="allowed_tools",
    ),
    Option(
        "--disallowedTools --disallowed-tools --deny", Group.AGENT, "Deny tool calls that match these rules.",
        "rules", name="disallowed_tools", kind=VARIADIC,
        read=read_rules, setting="permissions.deny", wire="disallowed_tools",
    ),
    Option("--append-system-prompt", Group.AGENT, "Add this text to the end of the system prompt.", "text"),
    Option("--system-prompt", Group.AGENT, "Use this text instead of the system prompt.", "text"),
    Option(
        "--max-turns", Group.AGENT, "Stop after this many model calls for one prompt.", "n", read=read_count,
        wire="max_turns",
    ),
    Option(
        "--add-dir", Group.AGENT, "Let tools use these directories of the host as well.", "dirs", name="add_dirs",
        kind=VARIADIC, setting="permissions.additionalDirectories", wire="add_dirs",
    ),
    Option(
        "--plain", Group.SCREEN, "Show the session as lines, without a full screen: for screen readers, simple "
        "terminals and logs.",
    ),
    Option("--no-mouse", Group.SCREEN, "Leave the mouse to the terminal: it selects and scrolls as for any program."),
    Option("--print -p", Group.STREAMS, "Print the answer and exit, without the terminal interface."),
    Option(
        "--output-format", Group.STREAMS, "Write text (default), json (one result) or stream-json (every message as a "
        "line) to stdout.", "format", choices=OUTPUT_FORMATS,
    ),
    Option(
        "--input-format", Group.STREAMS, "Read text (default) or stream-json (one message a line) from stdin.",
        "format", choices=INPUT_FORMATS,
    ),
    Option(
        "--verbose", Group.STREAMS, "With json: print all messages instead of the result alone; stream-json requires "
        "it.",
    ),
    Option(
        "--include-partial-messages", Group.STREAMS, "With stream-json: also print the raw events of the model's "
        "stream as they arrive.",
    ),
    Option(
        "--replay-user-messages", Group.STREAMS, "With stream-json in and out: print each user message again when the "
        "agent takes it.", wire="replay_user_messages",
    ),
    Option(
        "--permission-prompt-tool", Group.STREAMS, "Let this decide what would ask a person: stdio (with stream-json "
        "in and out, questions on stdout and answers on stdin), or a tool of an MCP server (mcp__SERVER__TOOL).", "how",
        read=read_permission_tool,
    ),
    Option(
        "--identity -i", Group.CONNECTION, "Log in with this private key file; may be repeated.", "file",
        name="identities", kind=REPEAT,
    ),
    Option("--port -P", Group.CONNECTION, "Connect to this SSH port.", "port", read=read_port),
    Option(
        "-o", Group.CONNECTION, "Set an option of ssh_config (-o Name=value); may be repeated.", "option",
        name="ssh_options", kind=REPEAT, read=read_ssh_option,
    ),
    Option(
        "--no-pipelined-login", Group.CONNECTION, "Log in step by step, as ssh does, also where one key alone was "
        "enough for the last login.", name="plain_login",
    ),
    Option(
        "--transport", Group.CONNECTION, "Reach the host by asyncssh (built in, the default), by ssh (the OpenSSH "
        "client), or by a command that leads to a shell: 'docker exec -i NAME', 'kubectl exec -i POD --', 'srun "
        "--pty'; with a command, the host is only a name and may be left out.", "transport",
    ),
    Option(
        "--ssh-command", Group.CONNECTION, "Run this program instead of ssh, for example 'gcloud compute ssh'; {host} "
        "and {command} mark where host and command go, otherwise they are appended.", "command",
    ),
    Option(
        "--container", Group.CONNECTION, "Work in this container of the host, entered with its docker or podman.",
        "name",
    ),
    Option("--local", Group.CONNECTION, "Run the worker on this machine instead of the host, without SSH."),
    Option(
        "--view", Group.HOST_COMMAND, "Only watch the session, and leave it to the client that drives it.",
        commands=("attach",),
    ),
    Option(
        "--all", Group.HOST_COMMAND, "Take all: the sessions of the host, those of this machine (proxy revoke), or "
        "the accounts of the provider (auth logout).", commands=("stop", "proxy revoke", "auth logout"),
    ),
    Option("--dry-run", Group.HOST_COMMAND, "Only list what would be removed.", commands=("gc", "clean")),
    Option(
        "--older-than", Group.HOST_COMMAND, "Remove ended sessions that are older than this (default: 30).", "days",
        read=read_number("days"), commands=("gc",),
    ),
    Option(
        "--yes", Group.HOST_COMMAND, "Remove or trust everything without asking first.", commands=("clean", "trust"),
    ),
    Option(
        "--revoke", Group.HOST_COMMAND, 'Take trust and the rules of "always" back. The host is not asked.',
        commands=("trust",),
    ),
    Option(
        "--lines -n", Group.HOST_COMMAND, "Show this many lines (default: 200).", "n", read=read_count,
        commands=("logs",),
    ),
    Option(
        "--json", Group.HOST_COMMAND, "Print one JSON object a line.",
        commands=("ps", "doctor", "models", "usage", "audit", "proxy list", "auth status"),
    ),
    Option(
        "--by", Group.HOST_COMMAND, "Print one line for each of these: host, model, day (default) or session.", "what",
        choices=("host", "model", "day", "session"), commands=("usage",),
    ),
    Option(
        "--days", Group.HOST_COMMAND, "Count only the last days.", "n", read=read_number("days", positive=True),
        commands=("usage",),
    ),
    Option("--provider", Group.HOST_COMMAND, "List only the models of this provider.", "name", commands=("models",)),
    Option(
        "--origin", Group.HOST_COMMAND, "Print where each value comes from: source, file, line.", commands=("config",),
    ),
    Option(
        "--env -e", Group.HOST_COMMAND, "Set a variable for the server's command; may be repeated.", "name=value",
        kind=REPEAT, commands=("mcp add",),
    ),
    Option(
        "--header -H", Group.HOST_COMMAND, "Send a header to the server's URL; may be repeated.", "name: value",
        name="headers", kind=REPEAT, commands=("mcp add",),
    ),
    Option(
        "--account", Group.ACCOUNT, "Name the account (default: default).", "name",
        commands=("auth login", "auth logout"),
    ),
    Option(
        "--api-key-stdin", Group.ACCOUNT, "Read the key from stdin instead of asking for it.", commands=("auth login",),
    ),
    Option(
        "--oauth-stdin", Group.ACCOUNT, "Read a login from stdin, as JSON: access_token, refresh_token, client_id, "
        "expires_in, token_url.", commands=("auth login",),
    ),
    Option(
        "--bearer", Group.ACCOUNT, "It is a token, sent in `Authorization: Bearer`.", commands=("auth login",),
    ),
    Option(
        "--workspace", Group.ACCOUNT, "Name Anthropic's workspace that the account uses.", "id",
        commands=("auth login",),
    ),
    Option(
        "--file", Group.ACCOUNT, "Store it in a file that a passphrase encrypts, not in the keyring.", name="in_file",
        commands=("auth login",),
    ),
    Option(
        "--recursive", Group.HOST_COMMAND, "Copy folders too. They are always copied; this is for hands that are used "
        "to scp (-r does the same).", commands=("cp",),
    ),
    Option(
        "--debug", Group.GENERAL, "Write a detailed log file; it contains no secrets, no prompts and no file contents.",
    ),
    Option(
        "--tools", Group.SDK, "Offer the model only these tools: names, `default` for all, or an empty value for none.",
        "names", kind=VARIADIC, read=read_rules, wire="tools", to_wire=offered_tools,
    ),
    Option(
        "--json-schema", Group.SDK, "End each turn with a value that fits this JSON schema; the result has it as "
        "structured_output.", "schema", read=read_json_object, wire="json_schema", to_wire=json_object,
    ),
    Option(
        "--agents", Group.SDK, "Define sub-agents: a JSON object with description, prompt, tools and model for each "
        "name.", "json", read=read_json_object, wire="agents", to_wire=json_object,
    ),
    Option(
        "--agent", Group.AGENT, "Work as this agent, built-in or your own: with its prompt, its tools and its model.",
        "name", name="role", setting="agent", wire="role",
    ),
    Option("--init", Group.AGENT, "Run the Setup hooks (matcher init) before a new session starts."),
    Option(
        "--init-only", Group.AGENT, "Run the Setup hooks (matcher init) and the SessionStart hooks, and end without a "
        "prompt.",
    ),
    Option("--maintenance", Group.AGENT, "Run the Setup hooks (matcher maintenance) before a new session starts."),
    Option(
        "--mcp-config", Group.SDK, "Use these MCP servers: JSON texts, or JSON files of this machine, with an object "
        "mcpServers.", "json", kind=VARIADIC,
    ),
    Option(
        "--strict-mcp-config", Group.SDK, "Use only the MCP servers of --mcp-config.",
        wire="project_mcp", to_wire=operator.not_,
    ),
    Option(
        "--setting-sources", Group.SDK, "Read only these settings: a list of user, project and local; an empty value "
        "reads none.", "names", read=read_sources,
    ),
    Option(
        "--bare", Group.SDK, "Let nothing count but the command line: no settings, hooks, instruction files, commands "
        "and skills, of yours or of the project (as --setting-sources with an empty value).",
    ),
    Option("--settings", Group.SDK, "Add these settings: a JSON object, or the path of a file that holds one.", "json"),
    Option("--system-prompt-file", Group.SDK, "Use the text of this file instead of the system prompt.", "file"),
    Option(
        "--append-system-prompt-file", Group.SDK, "Add the text of this file to the end of the system prompt.",
        "file",
    ),
    Option(
        "--max-budget-usd", Group.SDK, "End a turn once this run has spent so many dollars on the model.", "dollars",
        read=read_number("dollars", positive=True), wire="max_budget_usd",
    ),
    Option(
        "--fallback-model", Group.SDK, "Use this model while the chosen one is overloaded.", "model", read=read_model,
    ),
    Option(
        "--max-thinking-tokens", Group.SDK, "Let the model think with at most this many tokens; 0 turns thinking off.",
        "n", read=read_tokens,
    ),
    Option(
        "--effort", Group.SDK, "Set how much effort the model spends: low, medium, high, xhigh or max.", "level",
        choices=EFFORTS, wire="effort",
    ),
    Option(
        "--include-hook-events", Group.SDK, "With stream-json: also print when hooks start and what they answer.",
        wire="include_hook_events",
    ),
    Option(
        "--allow-dangerously-skip-permissions", Group.AGENT, "Let the person or a program choose the permission mode "
        "bypassPermissions later.", name="allow_bypass",
    ),
    Option(
        "--resume-session-at", Group.SESSION, "With --resume: continue after this message (its UUID) and leave out "
        "what came later.", "uuid", name="resume_at", read=read_uuid,
    ),
    Option(
        "--betas", Group.SDK, "Switch on these beta features of the model API, such as context-1m-2025-08-07.",
        "names", kind=VARIADIC, read=read_rules, wire="betas", to_wire=beta_features,
    ),
    Option(
        "--task-budget", Group.SDK, "Tell the model how many tokens its task may take.", "tokens", read=read_tokens,
        wire="task_budget",
    ),
    Option(
        "--thinking", Group.SDK, "Let the model think as much as it wants (adaptive, enabled), or not at all "
        "(disabled).", "mode", choices=("adaptive", "enabled", "disabled"),
    ),
    Option(
        "--thinking-display", Group.SDK, "Get the model's thinking in full length, as a summary, or not at all, where "
        "the model offers that.", "mode", choices=("summarized", "omitted", "highlights"), wire="thinking_display",
    ),
    Option(
        "--no-session-persistence", Group.SDK, "Remove the session from its host when it ends.", name="forget",
        wire="forget",
    ),
    Option(
        "--session-mirror", Group.SDK, "With stream-json: also print a copy of the transcript, from which SDKs fill "
        "their session stores.", name="mirror",
    ),
    Option(
        "--plugin-dir", Group.SDK, "Load the plugin in this directory of the host: its commands, skills, agents, hooks "
        "and MCP servers; may be repeated.", "dir", name="plugin_dirs", kind=REPEAT, wire="plugin_dirs",
    ),
    Option("--debug-file", Group.SDK, "Write the log of --debug to this file.", "file"),
    Option(
        "--await-initialize", Group.SDK, "With stream-json: read the first request before the session starts; its MCP "
        "servers, settings and denied tools count as those of the command line.",
    ),
    Option(
        "--initialize-fields", Group.SDK, "The fields of the first request that count so; ccb takes all that it finds.",
        "names",
    ),
    Option(
        "--resume-drops-turn", Group.SESSION, "With --resume-session-at: refuse to go back if more than the turn of "
        "this prompt (its UUID) would be left out.", "uuid", name="drops_turn", read=read_uuid,
    ),
    Option("--help -h", Group.GENERAL, "Show this help."),
    Option("--version -v", Group.GENERAL, "Show the version."),
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
        ("ccb auth login [PROVIDER] [--api-key-stdin]", "ccb auth status [PROVIDER]", "ccb auth logout [PROVIDER]"),
        "manage the model credentials of this machine",
        "Keep the credentials of model providers in the keyring of this machine: `login` checks a key with its "
        "provider and stores it, `status` says which credentials are used, where they are and when they end, `logout` "
        "removes a stored one. PROVIDER is written as in front of a model; without it, `login` and `logout` take "
        "anthropic, `status` takes all.",
        words=(("login", 0, 1), ("status", 0, 1), ("logout", 0, 1)),
    ),
    Subcommand(
        "config",
        ("ccb config show [--origin] [--settings JSON] [HOST:/PATH]",),
        "show the settings of this machine",
        "Print each setting that is set on this machine, and what is kept of projects: trust, and rules of \"always\". "
        "With HOST:/PATH, also what the project there sets. With --settings, these settings count too.",
        (Group.CONNECTION,),
        words=(("show", 0, 1),),
    ),
    Subcommand(
        "mcp",
        ("ccb mcp add NAME -- COMMAND [ARG]...", "ccb mcp add NAME URL", "ccb mcp list|get|remove|test|login|logout"),
        "manage the MCP servers of this machine",
        "Manage the MCP servers of your settings. They run on this machine, and agents on any host use their tools: "
        "`add` adds one, `list` and `get` show them, `remove` removes one, `test` starts one and lists its tools, "
        "`login` logs in at one with OAuth in the browser, `logout` forgets that login.",
        words=(
            ("add", 2, 999), ("list", 0, 0), ("get", 1, 1), ("remove", 1, 1), ("test", 1, 1), ("login", 1, 1),
            ("logout", 1, 1),
        ),
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
        "Print the models that --model takes, as their providers list them: window and longest answer in tokens, "
        "prices in dollars for a million tokens, and what they can do. Lists are kept for a day, and longer while a "
        "provider does not answer.",
        words=(("", 0, 0),),
    ),
    Subcommand(
        "usage",
        ("ccb usage [--by host|model|day|session] [--days N] [--json]",),
        "show what model calls have used and cost",
        "Print the tokens and the cost of the model calls that this machine has passed on, for each day, host, model "
        "or session. The figures are those of the provider, read on this machine.",
        words=(("", 0, 0),),
    ),
    Subcommand(
        "audit",
        ("ccb audit SESSION [--json]",),
        "show what a session asked of models, wanted to run, and was allowed",
        "Print what this machine has seen of a session: what its models were asked, which tools they wanted to run, "
        "what was decided here, and what came back. SESSION is its ID, or the beginning of it (`ccb usage --by "
        "session` lists them).",
        words=(("", 1, 1),),
    ),
    Subcommand(
        "proxy",
        ("ccb proxy list [--json]", "ccb proxy revoke SESSION|--all"),
        "show which sessions call models through this machine, and end that",
        "Show the sessions that may call models through this machine now (`list`), or let one call no models any more "
        "(`revoke`): calls under way end with the next byte. In the REPL, /revoke does the same.",
        words=(("list", 0, 0), ("revoke", 0, 1)),
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

OWN_WORDS = tuple(each.name for each in SUBCOMMANDS if each.words)
"""The commands whose words are no host: actions, names."""

COMMANDS = tuple(each.name for each in SUBCOMMANDS if each.name)
HOST_COMMANDS = tuple(name for name in COMMANDS if name not in ("ssh", "help", *OWN_WORDS))


def options_of(command: Subcommand) -> Iterator[Option]:
    """Return the options that a command takes, its own first."""
    taken = [option for option in OPTIONS if command.takes(option)]
    yield from (option for option in taken if option.commands)
    yield from (option for option in taken if not option.commands)
