"""The commands of ccb, and the text of `ccb help`."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from ccb.tunnel.wire.dataclass import dataclass

from .arguments import OPTIONS, Group, Option

_USAGE_WIDTH = 46
_OPTION_WIDTH = 38
_MIN_TEXT = 20

_ABOUT = """\
`ccb help COMMAND` (or `ccb COMMAND --help`) shows one command with its options. The host comes before every \
other word that is not an option. Without -p the terminal interface starts and PROMPT is its first message; \
with -p the answer to PROMPT, and to what is piped in, is printed."""

PATHS = (
    "Paths: host:/srv/app, host:~/app, host:app (below the home directory), "
    "ssh://user@host:2222/srv/app, '[::1]:/srv/app'."
)
HOSTS = "HOST: [user@]host or ssh://[user@]host[:port], with a path for trust only; write --local for this machine."


@dataclass(frozen=True)
class Subcommand:
    """One command of `ccb`.

    `usage` are its forms, `summary` is one line for the overview, `description` a paragraph. It takes the options of
    `groups` except those named in `without`, its own options, and the general ones. Of a command that reads its words
    itself, each of `words` is an action ("" for a command without actions) with the least and the most words after it.
    """

    name: str
    usage: tuple[str, ...]
    summary: str
    description: str
    groups: tuple[Group, ...] = ()
    without: tuple[str, ...] = ()
    words: tuple[tuple[str, int, int], ...] = ()

    def takes(self, option: Option) -> bool:
        if option.commands:
            return self.name in {each.partition(" ")[0] for each in option.commands}
        if option.group is Group.GENERAL:
            return option.field != "version"
        return option.group in self.groups and option.names[0] not in self.without


_SESSION_GROUPS = (Group.SESSION, Group.AGENT, Group.SCREEN, Group.STREAMS, Group.SDK)

SUBCOMMANDS = (
    Subcommand("ssh", ("ccb ssh [user@]host[:/path] [DIR] [PROMPT]", "ccb ssh host --local [DIR] [PROMPT]"),
        "work on another machine", "Run an agent on another machine and use it from this terminal. Without -p the "
        "terminal interface starts and PROMPT is its first message. With -p the answer to PROMPT, and to what is piped "
        "in, is printed.", (*_SESSION_GROUPS, Group.CONNECTION)),
    Subcommand("", ("ccb [PATH] [PROMPT]",), "work in a directory of this machine",
        "Run an agent on this machine, in PATH or in the current directory. The first word is PATH if such a directory "
        "exists or if it is written like a path; write `--` before a prompt that could be taken for one.",
        _SESSION_GROUPS),
    Subcommand("auth",
        ("ccb auth login [PROVIDER] [--api-key-stdin]", "ccb auth status [PROVIDER]", "ccb auth logout [PROVIDER]"),
        "manage the model credentials of this machine", "Keep the credentials of model providers in the keyring of "
        "this machine: `login` checks a key with its provider and stores it, `status` says which credentials are used, "
        "where they are and when they end, `logout` removes a stored one. PROVIDER is written as in front of a model; "
        "without it, `login` and `logout` take anthropic, `status` takes all.",
        words=(("login", 0, 1), ("status", 0, 1), ("logout", 0, 1))),
    Subcommand("config", ("ccb config show [--origin] [--settings JSON] [HOST:/PATH]",),
        "show the settings of this machine", "Print each setting that is set on this machine, and what is kept of "
        'projects: trust, and rules of "always". With HOST:/PATH, also what the project there sets. With --settings, '
        "these settings count too.", (Group.CONNECTION,), words=(("show", 0, 1),)),
    Subcommand("mcp",
        ("ccb mcp add NAME -- COMMAND [ARG]...", "ccb mcp add NAME URL", "ccb mcp list|get|remove|test|login|logout"),
        "manage the MCP servers of this machine", "Manage the MCP servers of your settings. They run on this machine, "
        "and agents on any host use their tools: `add` adds one, `list` and `get` show them, `remove` removes one, "
        "`test` starts one and lists its tools, `login` logs in at one with OAuth in the browser, `logout` forgets "
        "that login.",
        words=(("add", 2, 999), ("list", 0, 0), ("get", 1, 1), ("remove", 1, 1), ("test", 1, 1),
               ("login", 1, 1), ("logout", 1, 1))),
    Subcommand("cp", ("ccb cp HOST:PATH LOCAL", "ccb cp LOCAL HOST:PATH"),
        "copy a file or a folder from a host, or to it", "Copy a file or a folder with all that is in it. A target "
        "that is a directory gets the source under its own name. After a lost connection, or when the same command is "
        "given again, a copy goes on where it broke off. What arrives is checked (SHA-256) and gets its name when it "
        "is complete. Links are not followed and not copied. Write ./a:b for a file of this machine with a colon in "
        "its name.", (Group.CONNECTION,)),
    Subcommand("models", ("ccb models [--provider NAME] [--json]",), "list the models that can be chosen",
        "Print the models that --model takes, as their providers list them: window and longest answer in tokens, "
        "prices in dollars for a million tokens, and what they can do. Lists are kept for a day, and longer while a "
        "provider does not answer.", words=(("", 0, 0),)),
    Subcommand("usage", ("ccb usage [--by host|model|day|session] [--days N] [--json]",),
        "show what model calls have used and cost", "Print the tokens and the cost of the model calls that this "
        "machine has passed on, for each day, host, model or session. The figures are those of the provider, read on "
        "this machine.", words=(("", 0, 0),)),
    Subcommand("audit", ("ccb audit SESSION [--json]",),
        "show what a session asked of models, wanted to run, and was allowed", "Print what this machine has seen of a "
        "session: what its models were asked, which tools they wanted to run, what was decided here, and what came "
        "back. SESSION is its ID, or the beginning of it (`ccb usage --by session` lists them).", words=(("", 1, 1),)),
    Subcommand("proxy", ("ccb proxy list [--json]", "ccb proxy revoke SESSION|--all"),
        "show which sessions call models through this machine, and end that", "Show the sessions that may call models "
        "through this machine now (`list`), or let one call no models any more (`revoke`): calls under way end with "
        "the next byte. In the REPL, /revoke does the same.", words=(("list", 0, 0), ("revoke", 0, 1))),
    Subcommand("ps", ("ccb ps [HOST] [--json]",), "list the sessions of a host (default: this machine)",
        "List the sessions of a host, or of this machine: ID, state, age, time since last use, memory, driver, "
        "directory and title.", (Group.CONNECTION,)),
    Subcommand("attach", ("ccb attach HOST [ID] [--view]",), "take over a running session, or watch it",
        "Continue a session that runs on the host: the one with this ID, the only one, or one chosen from a list. The "
        "terminal that drove the session is notified and can take it back. With --view the session is only watched.",
        (Group.CONNECTION, *_SESSION_GROUPS), ("--session-id", "--continue", "--resume", "--fork-session")),
    Subcommand("logs", ("ccb logs HOST ID [-n LINES]",), "show what a session did",
        "Show the last lines of what a session did and of its worker's log.", (Group.CONNECTION,)),
    Subcommand("stop", ("ccb stop HOST ID", "ccb stop HOST --all"), "end the worker of a session, or of all sessions",
        "End the worker of a session and every process it started. The session stays and can be resumed.",
        (Group.CONNECTION,)),
    Subcommand("gc", ("ccb gc HOST [--dry-run] [--older-than DAYS]",), "remove what is no longer needed on a host",
        "Remove what dead workers left behind, bundles that nothing uses, and old sessions. Each removal is listed.",
        (Group.CONNECTION,)),
    Subcommand("clean", ("ccb clean HOST [--dry-run] [--yes]",), "remove ccb from a host",
        "Stop and remove every session and everything else that ccb keeps on the host. Asks first.",
        (Group.CONNECTION,)),
    Subcommand("trust", ("ccb trust", "ccb trust HOST[:/PATH] [--yes]", "ccb trust HOST[:/PATH] --revoke"),
        "show, give or take back the trust in a project on a host", "Without HOST, list what is kept of projects: "
        'trust, and rules of "always". With HOST, show all that the project in PATH would switch on, and ask whether '
        "it may. With --revoke, forget it.", (Group.CONNECTION,)),
    Subcommand("disconnect", ("ccb disconnect [HOST]",), "end the SSH connections that are kept",
        "End the SSH connection to HOST that the setting keepConnection keeps on this machine; without HOST, end all "
        "of them. Sessions that run over it connect again."),
    Subcommand("doctor", ("ccb doctor [HOST] [--json]",), "find out what stands in the way of a session",
        "Check this machine, the connection and the host, and print each finding with its evidence and a fix. Without "
        "HOST, check this machine only. The exit code is 1 if a finding would stop a session.", (Group.CONNECTION,)),
    Subcommand("help", ("ccb help [COMMAND]",), "show this help, or that of one command",
        "Show the commands and options of ccb, or those of one command. `ccb COMMAND --help` does the same."),
)  # fmt: skip

OWN_WORDS = tuple(each.name for each in SUBCOMMANDS if each.words)
"""The commands whose words are no host: actions, names."""

COMMANDS = tuple(each.name for each in SUBCOMMANDS if each.name)
HOST_COMMANDS = tuple(name for name in COMMANDS if name not in ("ssh", "help", *OWN_WORDS))


def options_of(command: Subcommand) -> list[Option]:
    return sorted((option for option in OPTIONS if command.takes(option)), key=lambda option: not option.commands)


def help_text(width: int = 100, command: str = "") -> str:
    one = next((each for each in SUBCOMMANDS if command and each.name == command), None)
    if one is not None and one.name != "help":
        usage = "\n       ".join(one.usage)
        footer = "" if one.words else f"\n{PATHS if command == 'ssh' else HOSTS}\n"
        options = _grouped(options_of(one), width, command)
        return f"Usage: {usage}\n\n{textwrap.fill(one.description, width)}\n\n{options}\n{footer}"
    lines = []
    for each in SUBCOMMANDS:
        *before, last = each.usage
        lines += [*(f"  {form}" for form in before), f"  {last:<{_USAGE_WIDTH - 2}}  {each.summary}"]
    usage = "\n".join(lines)
    return f"Usage:\n{usage}\n\n{textwrap.fill(_ABOUT, width)}\n\n{_grouped(OPTIONS, width)}\n\n{PATHS}\n"


def _grouped(options: Iterable[Option], width: int, command: str = "") -> str:
    parts: dict[str, list[str]] = {}
    for option in options:
        parts.setdefault(option.group.title, []).extend(_option_lines(option, width, command))
    return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in parts.items())


def _option_lines(option: Option, width: int, command: str) -> list[str]:
    left = "  " + ", ".join(sorted(option.names, key=len)) + (f" <{option.metavar}>" if option.metavar else "")
    names = [each for each in option.commands if not command or each.startswith(f"{command} ")]
    text = option.help
    if names:
        owners = " and ".join(each for each in (", ".join(names[:-1]), names[-1]) if each)
        text = f"With {owners}: {text[:1].lower()}{text[1:]}"
    wrapped = textwrap.wrap(text, max(_MIN_TEXT, width - _OPTION_WIDTH))
    before = [left] if len(left) > _OPTION_WIDTH - 2 else []
    first = f"{'' if before else left:<{_OPTION_WIDTH}}{wrapped[0]}"
    return [*before, first, *(" " * _OPTION_WIDTH + line for line in wrapped[1:])]
