"""The options of the command line as a table: names, kinds, help; parsed by `arguments`, printed by `help_text`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Kind(Enum):
    """What follows an option."""

    FLAG = "flag"
    VALUE = "value"
    VARIADIC = "variadic"  # every word up to the next option
    REPEAT = "repeat"  # one value, and the option may be given again
    OPTIONAL = "optional"  # a session ID when the next word looks like one


@dataclass(frozen=True)
class Option:
    """`names` are all spellings, the preferred one first; `field` is the attribute of `Arguments`."""

    names: tuple[str, ...]
    field: str
    kind: Kind
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The option as messages name it: `--output-format <format>`."""
        return f"{self.names[0]} <{self.metavar}>" if self.metavar else self.names[0]


OUTPUT_FORMATS = ("text", "json", "stream-json")
INPUT_FORMATS = ("text", "stream-json")
PERMISSION_MODES = ("default", "acceptEdits", "plan", "bypassPermissions")

OPTIONS = (
    Option(("--print", "-p"), "print", Kind.FLAG, "Headless: print the answer and exit."),
    Option(
        ("--output-format",), "output_format", Kind.VALUE, "Headless output: text (default), json, stream-json.",
        "format", OUTPUT_FORMATS,
    ),
    Option(
        ("--input-format",), "input_format", Kind.VALUE, "Headless input: text (default), stream-json.",
        "format", INPUT_FORMATS,
    ),
    Option(("--verbose",), "verbose", Kind.FLAG, "With json: all messages; needed for stream-json."),
    Option(
        ("--include-partial-messages",), "include_partial_messages", Kind.FLAG,
        "With stream-json: the raw events of the model as well.",
    ),
    Option(
        ("--replay-user-messages",), "replay_user_messages", Kind.FLAG,
        "With stream-json in and out: repeat each user message when it is taken.",
    ),
    Option(
        ("--permission-prompt-tool",), "permission_prompt_tool", Kind.VALUE,
        "With stream-json in and out: ask for permissions on stdout (stdio).", "how", ("stdio",),
    ),
    Option(("--model",), "model", Kind.VALUE, "The model: an alias (opus, sonnet, haiku) or a full name.", "model"),
    Option(
        ("--permission-mode",), "permission_mode", Kind.VALUE,
        "default, acceptEdits, plan or bypassPermissions.", "mode", PERMISSION_MODES,
    ),
    Option(
        ("--dangerously-skip-permissions",), "dangerously_skip_permissions", Kind.FLAG,
        "Never ask: only for hosts that may break.",
    ),
    Option(
        ("--allowedTools", "--allowed-tools"), "allowed_tools", Kind.VARIADIC,
        "Rules that allow without asking: \"Bash(git *),Edit(src/**)\".", "rules",
    ),
    Option(
        ("--disallowedTools", "--disallowed-tools"), "disallowed_tools", Kind.VARIADIC,
        "Rules that deny.", "rules",
    ),
    Option(("--append-system-prompt",), "append_system_prompt", Kind.VALUE, "Text added to the system prompt.", "text"),
    Option(("--system-prompt",), "system_prompt", Kind.VALUE, "Text instead of the system prompt.", "text"),
    Option(("--max-turns",), "max_turns", Kind.VALUE, "Most model calls for one prompt.", "n"),
    Option(("--session-id",), "session_id", Kind.VALUE, "The id of the new session (a UUID).", "uuid"),
    Option(("--continue", "-c"), "continue_latest", Kind.FLAG, "Go on with the latest session of that directory."),
    Option(
        ("--resume", "-r"), "resume", Kind.OPTIONAL,
        "Go on with a session: its ID or the start of it; without one, choose from a list.", "id",
    ),
    Option(("--fork-session",), "fork_session", Kind.FLAG, "With --continue or --resume: go on in a copy of it."),
    Option(
        ("--reconnect-timeout",), "reconnect_timeout", Kind.VALUE,
        "Give a lost connection up after so long (24 h; headless 600 s; 0: at once).", "seconds",
    ),
    Option(("--add-dir",), "add_dirs", Kind.VARIADIC, "More directories on the host that tools may use.", "dirs"),
    Option(("--debug",), "debug", Kind.FLAG, "Write a detailed log file; it holds no secret, no prompt and no file content."),
    Option(("--identity", "-i"), "identities", Kind.REPEAT, "A private key file for SSH.", "file"),
    Option(("--port", "-P"), "port", Kind.VALUE, "The SSH port.", "port"),
    Option(("-o",), "ssh_options", Kind.REPEAT, "An option of ssh_config: -o Name=value.", "option"),
    Option(
        ("--transport",), "transport", Kind.VALUE,
        "The way to the host: asyncssh (default), ssh (the OpenSSH client), or a command that leads to a shell: "
        "'docker exec -i NAME', 'kubectl exec -i POD --', 'srun --pty'. With a command the host is only a name and may be "
        "left out.", "way",
    ),
    Option(
        ("--ssh-command",), "ssh_command", Kind.VALUE,
        "A program in the place of ssh, as 'gcloud compute ssh'; {host} and {command} say where they go, else they are appended.",
        "command",
    ),
    Option(("--container",), "container", Kind.VALUE, "A container of the host, by its docker or podman.", "name"),
    Option(("--local",), "local", Kind.FLAG, "This machine instead of a host: the worker runs here, without SSH."),
    Option(("--view",), "view", Kind.FLAG, "With attach: watch, and leave the session to its driver."),
    Option(("--all",), "all", Kind.FLAG, "With stop: every session of the host."),
    Option(("--dry-run",), "dry_run", Kind.FLAG, "With gc and clean: only say what would be removed."),
    Option(("--older-than",), "older_than", Kind.VALUE, "With gc: remove ended sessions older than this (30).", "days"),
    Option(("--yes",), "yes", Kind.FLAG, "With clean: do not ask."),
    Option(("--lines", "-n"), "lines", Kind.VALUE, "With logs: how many lines (200).", "n"),
    Option(("--json",), "json", Kind.FLAG, "With ps and doctor: one JSON object a line."),
    Option(("--help", "-h"), "help", Kind.FLAG, "Show this help."),
    Option(("--version", "-v"), "version", Kind.FLAG, "Show the version."),
)  # fmt: skip

BY_NAME = {name: option for option in OPTIONS for name in option.names}
