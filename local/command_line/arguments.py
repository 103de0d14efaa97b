"""The command line as a typed value: each option is declared once, as the field that holds its value."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Mapping
from dataclasses import field, fields, replace
from enum import Enum
from typing import Any, Literal

from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.known_agents import is_foreign

from .option_values import (
    EFFORTS,
    ReadValue,
    beta_features,
    one_of,
    read_count,
    read_forward,
    read_group_name,
    read_json_object,
    read_map,
    read_minutes,
    read_model,
    read_number,
    read_permission_tool,
    read_reverse,
    read_rules,
    read_session_id,
    read_sources,
    read_ssh_option,
    read_tokens,
    read_uuid,
    read_worktree_name,
)
from .target import Target, parse_port


class Group(Enum):
    """Options that belong together: the attribute of `Arguments` that holds them, and their heading."""

    SESSION = "session", "Session"
    PORTS = "ports", "Ports"
    AGENT = "agent", "Agent and model"
    PERMISSIONS = "permissions", "Permissions"
    SCREEN = "screen", "Terminal interface"
    STREAMS = "streams", "Without the terminal interface (headless)"
    CONNECTION = "connection", "Connection"
    HOST_COMMAND = "host_command", "Options of single commands"
    FLEET = "fleet", "Options of `ccb fleet`"
    SDK = "sdk", "For programs that drive ccb (SDKs)"
    GENERAL = "", "General"

    def __init__(self, attribute: str, title: str) -> None:
        self.attribute = attribute
        self.title = title


class OptionKind(Enum):
    ONE = "one"  # one value, or none for an option without a metavar
    VARIADIC = "variadic"  # every word up to the next option
    REPEAT = "repeat"  # one value, and the option may be given again
    OPTIONAL = "optional"  # the next word, if it is such a value


@dataclass(frozen=True)
class Option:
    """One option of the command line, whose value is the attribute `field` of `group`.

    `spellings` are all names, the preferred one first. `help` is one plain sentence. An option without `metavar` takes
    no value; with `choices`, it takes one of them. `commands` are the only commands that take the option, each alone or
    with its action (`auth login`); empty when the group decides (see `Subcommand`).

    A session takes the value as the field `wire` of `SessionOptions`, made by `to_wire`. Without the option, `setting`
    counts: an attribute of `Settings`, with dots inside a section. Lists of both are joined.
    """

    group: Group
    field: str
    spellings: str
    help: str
    metavar: str = ""
    kind: OptionKind = OptionKind.ONE
    choices: tuple[str, ...] = ()
    read: ReadValue = lambda value, _: value
    commands: tuple[str, ...] = ()
    setting: str = ""
    wire: str = ""
    to_wire: Callable[[Any], object] = lambda value: value

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.spellings.split())

    @property
    def shown(self) -> str:
        return f"{self.names[0]} <{self.metavar}>" if self.metavar else self.names[0]

    @property
    def takes_one(self) -> bool:
        return bool(self.metavar) and self.kind in (OptionKind.ONE, OptionKind.REPEAT)

    def value(self, text: str) -> str | int | float | tuple[str, ...]:
        """Read a value of this option. Raise UsageError."""
        return one_of(text, self.shown, self.choices) if self.choices else self.read(text, self.shown)


def option(spellings: str, help: str, metavar: str = "", *, commands: str = "", **more: Any) -> Any:
    """Return the field of an option. `commands` are divided by commas; `more`: its default, and fields of `Option`."""
    several = more.get("kind") in (OptionKind.VARIADIC, OptionKind.REPEAT)
    default = more.pop("default", () if several else None if metavar else False)
    own = tuple(filter(None, commands.split(", ")))
    declared = {"spellings": spellings, "help": help, "metavar": metavar, "commands": own, **more}
    return field(default=default, metadata=declared)


VARIADIC, REPEAT, OPTIONAL = OptionKind.VARIADIC, OptionKind.REPEAT, OptionKind.OPTIONAL

# fmt: off


@dataclass(frozen=True)
class ConnectionOptions:
    target: Target | None = None
    identities: tuple[str, ...] = option(
        "--identity -i", "Log in with this private key file; may be repeated.", "file", kind=REPEAT)
    port: int | None = option("--port -P", "Connect to this SSH port.", "port", read=parse_port)
    ssh_options: tuple[str, ...] = option(
        "-o", "Set an option of ssh_config (Name=value); may be repeated.", "option", kind=REPEAT, read=read_ssh_option)
    plain_login: bool = option(
        "--no-pipelined-login", "Log in step by step, as ssh does, also where one key alone was enough last time.")
    transport: str | None = option(
        "--transport", "Reach the host by asyncssh (built in, the default), by ssh (the OpenSSH client), or by a "
        "command that leads to a shell: 'docker exec -i NAME', 'kubectl exec -i POD --', 'srun --pty'; with a "
        "command, the host is only a name and may be left out.", "transport")
    ssh_command: str | None = option(
        "--ssh-command", "Run this program instead of ssh, for example 'gcloud compute ssh'; {host} and {command} "
        "mark where host and command go, otherwise they are appended.", "command")
    container: str | None = option(
        "--container", "Work in this container (docker, podman) of the host, as its user or as USER.", "[user@]name")
    devcontainer: bool = option(
        "--devcontainer", "Work in the dev container of the folder HOST:/PATH. If none runs, the devcontainer CLI of "
        "the host starts it, which runs the commands that devcontainer.json names.", commands="ssh")
    local: bool = option("--local", "Run the worker on this machine instead of the host, without SSH.")
    container_env: tuple[str, ...] = ()  # of the dev container: see `container_command`


@dataclass(frozen=True)
class SessionChoice:
    """Which session to open. `resume` "" lets the person choose, or takes the `newest` of the host; `worktree` "" is a
    new name. `begun`: a session of `session_id` that exists goes on; `in_job`: a job of a site keeps its daemon."""

    session_id: str | None = option("--session-id", "Give the new session this ID (a UUID).", "uuid", read=read_uuid)
    continue_latest: bool = option("--continue -c", "Continue the latest session of the directory.")
    resume: str | None = option(
        "--resume -r", "Continue the session with this ID or start of one; without an ID, choose from a list.",
        "id", kind=OPTIONAL, read=read_session_id)
    fork_session: bool = option(
        "--fork-session", "With --continue or --resume: continue in a copy, so that the session itself stays as it is.")
    reconnect_timeout: float | None = option(
        "--reconnect-timeout", "Give up reconnecting after this time (default: 24 h, headless 600 s; 0: at once).",
        "seconds", read=read_number("seconds"))
    resume_at: str | None = option(
        "--resume-session-at", "With --resume: continue after this message (a UUID), without what came later.",
        "uuid", read=read_uuid)
    rewind_files: str | None = option(
        "--rewind-files", "With --resume or --continue: put the files back to before this prompt (a UUID), and end.",
        "id")
    drops_turn: str | None = option(
        "--resume-drops-turn", "With --resume-session-at: refuse to leave out more than the turn of this prompt (a "
        "UUID).", "uuid", read=read_uuid)
    worktree: str | None = option(
        "--worktree -w", "Work in this git worktree below .claude/worktrees, on its own branch; without a name, in a "
        "new one.", "name", kind=OPTIONAL, read=read_worktree_name)
    newest: bool = False
    begun: bool = False
    in_job: bool = False

    @property
    def continues(self) -> bool:
        return self.continue_latest or self.resume is not None


@dataclass(frozen=True)
class AgentOptions:
    model: str | None = option("--model", "Use this model: opus, sonnet, haiku or a full id.", "model", read=read_model)
    append_system_prompt: str | None = option("--append-system-prompt", "Add this text to the system prompt.", "text")
    system_prompt: str | None = option("--system-prompt", "Use this text instead of the system prompt.", "text")
    max_turns: int | None = option(
        "--max-turns", "Stop after this many model calls for one prompt.", "n", read=read_count, wire="max_turns")
    record: bool = option("--record", "Keep model calls, whole, in files here (~/.local/state/ccb/recorded).")
    web: str | None = option(
        "--web", "Read web pages (WebFetch) in the network of the host (default) or of this machine: host or "
        "laptop.", "where", choices=("host", "laptop"), setting="web", wire="web")
    role: str | None = option(
        "--agent", "Work as this agent, built-in or your own; or let another program of the host work: claude, codex, "
        "copilot, gemini, goose, kimi, opencode, qwen, or the command line of one that speaks ACP.", "name",
        setting="agent", wire="role", to_wire=lambda name: "" if is_foreign(name) else name)
    remote_bin: str | None = option(
        "--remote-bin", "Let this program of the host work, which speaks stream-json as Claude Code does.", "path")
    group: str | None = option(
        "--group", "Let the agents of all sessions that this machine drives in the same group write to each other.",
        "name", read=read_group_name)
    channels: tuple[str, ...] = option(
        "--channel", "Let this MCP server put messages into the session, if you allow it; may be repeated.", "server",
        kind=REPEAT, wire="channels")
    init: bool = option("--init", "Run the Setup hooks (matcher init) before a new session starts.")
    init_only: bool = option(
        "--init-only", "Run the Setup hooks (matcher init) and the SessionStart hooks, and end without a prompt.")
    maintenance: bool = option("--maintenance", "Run the Setup hooks (matcher maintenance) before a session starts.")

    @property
    def setup(self) -> str:
        """Which Setup hooks a new session runs first: `init`, `maintenance` or "" for none."""
        return "maintenance" if self.maintenance else "init" if self.init or self.init_only else ""


@dataclass(frozen=True)
class PermissionOptions:
    permission_mode: str | None = option(
        "--permission-mode", "Set the permission mode: default, acceptEdits, plan, dontAsk (deny what would need a "
        "question) or bypassPermissions.", "mode",
        choices=("default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"))
    dangerously_skip_permissions: bool = option(
        "--dangerously-skip-permissions", "Run every tool without asking; only for a host that you can afford to lose.")
    allow_bypass: bool = option("--allow-dangerously-skip-permissions", "Let bypassPermissions be chosen later.")
    allowed_tools: tuple[str, ...] = option(
        "--allowedTools --allowed-tools --allow", "Allow tool calls that match these rules, for "
        "example `Bash(git *),Edit(src/**)`.", "rules", kind=VARIADIC, read=read_rules, setting="permissions.allow",
        wire="allowed_tools")
    disallowed_tools: tuple[str, ...] = option(
        "--disallowedTools --disallowed-tools --deny", "Deny tool calls that match these rules.", "rules",
        kind=VARIADIC, read=read_rules, setting="permissions.deny", wire="disallowed_tools")
    add_dirs: tuple[str, ...] = option(
        "--add-dir", "Let tools use these directories of the host too.", "dirs", kind=VARIADIC,
        setting="permissions.additionalDirectories", wire="add_dirs")
    sandbox: str | None = option(
        "--sandbox", "Set the cage of commands that run unasked: read-only (default), workspace or off.",
        "mode", choices=("read-only", "workspace", "off"), setting="sandbox", wire="sandbox")
    allow_net: bool = option(
        "--allow-net", "With --sandbox workspace: let commands use the network without a question.", wire="allow_net")
    trust: bool = option(
        "--trust", "Let what the files of the project switch on count in this run, without a question: settings with "
        "their hooks and rules, agents, commands, skills, MCP servers.")


@dataclass(frozen=True)
class SdkOptions:
    """What programs that drive ccb set beyond that. JSON values are kept as text; `tools` is None for all tools."""

    tools: tuple[str, ...] | None = option(
        "--tools", "Offer the model only these tools: names, `default` for all, or an empty value for none.",
        "names", kind=VARIADIC, read=read_rules, wire="tools", default=None,
        to_wire=lambda names: None if "default" in names else names)
    json_schema: str | None = option(
        "--json-schema", "End each turn with a value that fits this JSON schema; the result has it as "
        "structured_output.", "schema", read=read_json_object, wire="json_schema", to_wire=json.loads)
    agents: str | None = option(
        "--agents", "Define sub-agents: a JSON object with description, prompt, tools and model for each name.",
        "json", read=read_json_object, wire="agents", to_wire=json.loads)
    mcp_config: tuple[str, ...] = option(
        "--mcp-config", "Use these MCP servers: JSON texts, or files here, with an object mcpServers.",
        "file-or-json", kind=VARIADIC)
    strict_mcp_config: bool = option(
        "--strict-mcp-config", "Use only the MCP servers of --mcp-config.", wire="project_mcp", to_wire=operator.not_)
    setting_sources: str | None = option(
        "--setting-sources", "Read only these settings: some of user, project, local; empty for none.", "names",
        read=read_sources)
    bare: bool = option(
        "--bare", "Let nothing count but the command line: no settings, hooks, instruction files, commands and "
        "skills, of yours or of the project (as --setting-sources with an empty value).")
    settings: str | None = option(
        "--settings", "Add these settings: a JSON object, or a file that holds one.", "file-or-json")
    system_prompt_file: str | None = option(
        "--system-prompt-file", "Use the text of this file instead of the system prompt.", "file")
    append_system_prompt_file: str | None = option(
        "--append-system-prompt-file", "Add the text of this file to the end of the system prompt.", "file")
    max_budget_usd: float | None = option(
        "--max-budget-usd", "End a turn once this run has spent so many dollars on the model.", "dollars",
        read=read_number("dollars", positive=True), wire="max_budget_usd")
    fallback_model: str | None = option(
        "--fallback-model", "Use this model while the chosen one is overloaded.", "model", read=read_model)
    max_thinking_tokens: int | None = option(
        "--max-thinking-tokens", "Let the model think with at most this many tokens; 0 for no thinking.", "n",
        read=read_tokens)
    effort: str | None = option(
        "--effort", "How much effort the model spends: low, medium, high, xhigh or max.", "level",
        choices=EFFORTS, wire="effort")
    include_hook_events: bool = option(
        "--include-hook-events", "With stream-json: also print starts and answers of hooks.",
        wire="include_hook_events")
    betas: tuple[str, ...] = option(
        "--betas", "Switch on these beta features of the model API, such as context-1m-2025-08-07.", "names",
        kind=VARIADIC, read=read_rules, wire="betas", to_wire=beta_features)
    task_budget: int | None = option(
        "--task-budget", "Tell the model how many tokens it may take.", "tokens", read=read_tokens, wire="task_budget")
    thinking: str | None = option(
        "--thinking", "Let the model think as much as it wants (adaptive, enabled), or not at all (disabled).",
        "mode", choices=("adaptive", "enabled", "disabled"))
    thinking_display: str | None = option(
        "--thinking-display", "Get the model's thinking in full length, as a summary, or not at all, where the model "
        "offers that.", "mode", choices=("summarized", "omitted", "highlights"), wire="thinking_display")
    forget: bool = option("--no-session-persistence", "Remove the session from its host when it ends.", wire="forget")
    plugin_dirs: tuple[str, ...] = option(
        "--plugin-dir", "Load the plugin in this directory of the host: its commands, skills, agents, hooks and MCP "
        "servers; may be repeated.", "dir", kind=REPEAT, wire="plugin_dirs")
    debug_file: str | None = option("--debug-file", "Write the log of --debug to this file.", "file")
    mirror: bool = option(
        "--session-mirror", "With stream-json: also print the transcript, from which SDKs fill their session stores.")
    await_initialize: bool = option(
        "--await-initialize", "With stream-json: read the first request before the session starts; its MCP servers, "
        "settings and denied tools count as those of the command line.")
    initialize_fields: str | None = option(
        "--initialize-fields", "The fields of the first request that count so; ccb takes all that it finds.", "names")


@dataclass(frozen=True)
class ScreenOptions:
    plain: bool = option(
        "--plain", "Show the session as lines, without a full screen: for screen readers, simple terminals and logs.")
    no_mouse: bool = option("--no-mouse", "Leave the mouse to the terminal: it selects and scrolls as for any program.")


@dataclass(frozen=True)
class StdioOptions:
    print: bool = option("--print -p", "Print the answer and exit, without the terminal interface.")
    output_format: str = option(
        "--output-format", "Write text (default), json (one result) or stream-json (every message as a line) to "
        "stdout.", "format", choices=("text", "json", "stream-json"), default="text")
    input_format: str = option(
        "--input-format", "Read text (default) or stream-json (a message a line) from stdin.", "format",
        choices=("text", "stream-json"), default="text")
    verbose: bool = option("--verbose", "With json: print all messages, not only the result; stream-json requires it.")
    include_partial_messages: bool = option(
        "--include-partial-messages", "With stream-json: also print the raw events of the model's stream.")
    replay_user_messages: bool = option(
        "--replay-user-messages", "With stream-json in and out: print each user message when the agent takes it.",
        wire="replay_user_messages")
    permission_prompt_tool: str | None = option(
        "--permission-prompt-tool", "Let this decide what would ask a person: stdio (with stream-json in and out, "
        "questions on stdout and answers on stdin), or a tool of an MCP server (mcp__SERVER__TOOL).", "how",
        read=read_permission_tool)


@dataclass(frozen=True)
class PortOptions:
    forwards: tuple[str, ...] = option(
        "--forward", "Let 127.0.0.1:LOCAL of this machine (without it the same number) lead to this port of the host; "
        "may be repeated.", "[local:]port", kind=REPEAT, read=read_forward)
    reverses: tuple[str, ...] = option(
        "--reverse", "Let programs of the host reach this port of this machine at 127.0.0.1:PORT there; may be "
        "repeated.", "port", kind=REPEAT, read=read_reverse)


@dataclass(frozen=True)
class HostCommandOptions:
    view: bool = option("--view", "Only watch the session; another client drives it.", commands="attach")
    all: bool = option("--all", "Take all of them instead of one.", commands="stop, proxy revoke, auth logout")
    take_over_node: bool = option(
        "--take-over-node", "If the node of a cluster on which the session runs does not answer, let the session go on "
        "without it, from its journal.", commands="ssh, resume, attach")
    dry_run: bool = option("--dry-run", "Only list what would be removed.", commands="gc, clean")
    older_than: float | None = option(
        "--older-than", "Remove ended sessions older than this (default: 30).", "days",
        read=read_number("days"), commands="gc")
    yes: bool = option("--yes", "Do it without asking first.", commands="clean, trust")
    lines: int | None = option("--lines -n", "Show this many lines (else 200).", "n", read=read_count, commands="logs")
    json: bool = option(
        "--json", "Print one JSON object a line.",
        commands="ps, dash, ports, doctor, models, usage, audit, proxy list, auth status, fleet run, fleet status, "
        "fleet collect")
    follow: bool = option("--follow", "With --json: go on, and print each row that changes.", commands="dash")
    sender: str | None = option(
        "--sender", "Name who sends the message (default: your login on this machine).", "name", commands="send")
    maps: tuple[str, ...] = option(
        "--map", "Let the editor open LOCAL where the agent names REMOTE, a path on the host (a checkout, sshfs, NFS); "
        "may be repeated.", "remote=local", kind=REPEAT, read=read_map, commands="acp")
    revoke: bool = option("--revoke", 'Take back trust and rules of "always"; the host is not asked.', commands="trust")
    listen: str | None = option(
        "--listen", "Listen here instead of on a free port of 127.0.0.1; browsers must use this address. Beyond this "
        "machine it needs --tls-cert and --tls-key.", "address[:port]", commands="serve")
    tls_cert: str | None = option("--tls-cert", "Show browsers this certificate (PEM).", "file", commands="serve")
    tls_key: str | None = option("--tls-key", "The private key of that certificate (PEM).", "file", commands="serve")
    idle: float | None = option(
        "--idle", "End when no browser has been connected for this time (default: 30m; 0: never).", "time",
        read=read_minutes, commands="serve")
    recursive: bool = option(
        "--recursive", "Copy folders too, as scp does with it (also -r); they are always copied.", commands="cp")
    provider: str | None = option("--provider", "List only the models of this provider.", "provider", commands="models")
    man: bool = option("--man", "Print the manual page, as `man` reads it.", commands="help")
    origin: bool = option("--origin", "Print where each value comes from: source, file, line.", commands="config")
    check: bool = option("--check", "Ask the package index for the newest version.", commands="upgrade")
    env: tuple[str, ...] = option(
        "--env -e", "Set a variable of the server's command; may be repeated.", "name=value", kind=REPEAT,
        commands="mcp add")
    headers: tuple[str, ...] = option(
        "--header -H", "Send a header to the server's URL; may be repeated.", "name: value", kind=REPEAT,
        commands="mcp add")
    output: str | None = option("--output", "Write the session to this file.", "file", commands="export")
    with_files: bool = option(
        "--with-files", "Take the files of the directory along, also what is not committed; what git ignores stays.",
        commands="export, import, move")
    no_files: bool = option("--no-files", "Leave the files where they are.", commands="export, import, move")
    source: Literal["claude"] | None = option(
        "--from", "Read a transcript of this program (claude), not an export.", "program",
        choices=("claude",), commands="import")
    by: Literal["host", "model", "day", "session"] = option(
        "--by", "Print one line for each of these: host, model, day (default) or session.", "what",
        choices=("host", "model", "day", "session"), commands="usage", default="day")
    days: float | None = option(
        "--days", "Count only the last days.", "n", read=read_number("days", positive=True), commands="usage")
    on: str | None = option(
        "--on", "When to run: a calendar of systemd (`Mon..Fri 06:30`), or five fields of cron (`30 6 * * 1-5`) where "
        "that or launchd runs timers.", "calendar", commands="schedule add")
    notify: str | None = option(
        "--notify", "Run this after each run, with CCB_SCHEDULE and CCB_EXIT_CODE.", "command", commands="schedule add")
    account: str | None = option("--account", "Name the account.", "name", commands="auth login, auth logout")
    api_key_stdin: bool = option("--api-key-stdin", "Read the key from stdin; do not ask.", commands="auth login")
    oauth_stdin: bool = option(
        "--oauth-stdin", "Read a login from stdin (JSON): access_token, refresh_token, client_id, expires_in, "
        "token_url.", commands="auth login")
    bearer: bool = option("--bearer", "It is a token, sent in `Authorization: Bearer`.", commands="auth login")
    workspace: str = option(
        "--workspace", "Name Anthropic's workspace that the account uses.", "id", commands="auth login", default="")
    in_file: bool = option("--file", "Store it in a file, encrypted with a passphrase.", commands="auth login")


@dataclass(frozen=True)
class FleetOptions:
    """`account` names the fleet of a task in the ledger; `total_usd` is what all its tasks may spend."""

    jobs: int | None = option(
        "--jobs", "Run so many sessions at once (default: 50).", "n", read=read_count,
        commands="fleet run, fleet submit")
    host_usd: float | None = option(
        "--per-host-usd", "Spend at most so much on the model for each host; --max-budget-usd is for all of them.",
        "dollars", read=read_number("dollars", positive=True), commands="fleet run")
    inventories: tuple[str, ...] = option(
        "--inventory", "Take the hosts of this Ansible inventory; may be repeated.", "path", kind=REPEAT,
        commands="fleet run, dash")
    limit: str | None = option(
        "--limit", "Only these hosts of the inventory, a pattern of Ansible such as 'web:!web-2'.", "pattern",
        commands="fleet run, dash")
    name: str | None = option(
        "--name", "Name the fleet; without it, the time is its name.", "name", commands="fleet run, fleet submit")
    resume_failed: bool = option(
        "--resume-failed", "Go on with the tasks of a fleet that have failed, or have not ended.",
        commands="fleet run, fleet collect")
    slurm: str | None = option(
        "--slurm", "Submit to the Slurm of this login node; the sessions work in /PATH, which the nodes share.",
        "login:/path", commands="fleet submit")
    prompts: str | None = option(
        "--prompts", 'Take a task from each line of this file: {"prompt": "…", "directory": "…", "settings": {…}}.',
        "file", commands="fleet submit")
    sbatch: str | None = option(
        "--sbatch", "Give sbatch these options: --sbatch='-p gpu --time=60'.", "options", commands="fleet submit")
    kubernetes: str | None = option(
        "--kubernetes", "Submit to this context of kubectl.", "context", commands="fleet submit")
    path: str | None = option("--path", "Work in this directory of the pods.", "/path", commands="fleet submit")
    job: str | None = option("--job", "Run the tasks in the first container of this Job of Kubernetes, JSON or YAML.",
        "file", commands="fleet submit")
    account: str = ""
    total_usd: float | None = None


# fmt: on


@dataclass(frozen=True)
class Arguments:
    """One parsed command line. `command` is "" for a session on this machine; `rest` are the words of some commands.
    `copy` is for `ccb cp`: whether it goes to the host, the path on this machine, and that on the host."""

    command: str = ""
    directory: str | None = None
    prompt: str | None = None
    rest: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    debug: bool = option("--debug", "Write a detailed log file; it has no secrets, prompts or contents of files.")
    help: bool = option("--help -h", "Show this help.")
    version: bool = option("--version -v", "Show the version.")
    connection: ConnectionOptions = field(default_factory=ConnectionOptions)
    session: SessionChoice = field(default_factory=SessionChoice)
    ports: PortOptions = field(default_factory=PortOptions)
    agent: AgentOptions = field(default_factory=AgentOptions)
    permissions: PermissionOptions = field(default_factory=PermissionOptions)
    screen: ScreenOptions = field(default_factory=ScreenOptions)
    streams: StdioOptions = field(default_factory=StdioOptions)
    host_command: HostCommandOptions = field(default_factory=HostCommandOptions)
    fleet: FleetOptions = field(default_factory=FleetOptions)
    sdk: SdkOptions = field(default_factory=SdkOptions)
    copy: tuple[bool, str, str] | None = None
    directory_is_current: bool = False

    @property
    def headless(self) -> bool:
        """Whether to run without the REPL: because of -p, or of an option that makes sense only without it."""
        streams = self.streams
        other_format = streams.output_format != "text" or streams.input_format != "text"
        return streams.print or other_format or bool(self.session.rewind_files)

    def value(self, option: Option) -> Any:
        attribute = option.group.attribute
        return getattr(getattr(self, attribute) if attribute else self, option.field)


_NO_OPTIONS = Arguments()
OPTIONS = tuple(
    Option(group=group, field=each.name, **each.metadata)
    for group in Group
    for each in fields(getattr(_NO_OPTIONS, group.attribute) if group.attribute else _NO_OPTIONS)
    if each.metadata
)
BY_NAME = {name: option for option in OPTIONS for name in option.names}


def arguments_from(values: Mapping[Option, object]) -> Arguments:
    arguments = Arguments()
    for each, value in values.items():
        attribute = each.group.attribute
        given: dict[str, Any] = {each.field: value}
        if attribute:
            given = {attribute: replace(getattr(arguments, attribute), **given)}
        arguments = replace(arguments, **given)
    if arguments.sdk.bare and arguments.sdk.setting_sources is None:
        return replace(arguments, sdk=replace(arguments.sdk, setting_sources="", strict_mcp_config=True))
    return arguments
