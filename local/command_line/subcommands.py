"""The commands of ccb, and the text of `ccb help`."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

import ccb
from ccb.tunnel.wire.dataclass import dataclass

from .arguments import BY_NAME, OPTIONS, Group, Option

_DOCS = Path(ccb.__file__).with_name("docs")
_FOLDERS = ("guide", "reference")
_OPTION_WIDTH = 38
_OVERVIEW_WIDTH = 30
_MIN_TEXT = 20
_SHORT = re.compile(r" ?[;:,.(].*", re.DOTALL)
_USUAL = (
    *("--continue", "--resume", "--model", "--agent", "--permission-mode", "--allowedTools"),
    *("--print", "--help", "--version"),
)
"""The options in the overview, each with the start of its sentence."""

_ABOUT = """\
With -p, the answer to PROMPT and to what is piped in is printed; without it, the terminal interface starts. The \
host comes before every other word that is not an option; a prompt that looks like a command is written after --."""

_MORE = """\
`ccb help ssh` has all options of a session, `ccb help COMMAND` (or `ccb COMMAND --help`) those of a command, and \
`ccb help sdk` those for programs that drive ccb. `ccb help TOPIC` shows a page of the guide: """

PATHS = (
    "Paths: host:/srv/app, host:~/app, host:app (below the home directory), "
    "ssh://user@host:2222/srv/app, '[::1]:/srv/app'."
)
HOSTS = "HOST: [user@]host or ssh://[user@]host[:port]; write --local for this machine."


@dataclass(frozen=True)
class Subcommand:
    """One command of `ccb`.

    `usage` are its forms, `summary` is a line for the overview, `description` a paragraph; `alias` is another name. It
    takes the options of `groups` except those named in `without`, its own options, and the general ones. Of a command
    that reads its words itself, each of `words` is an action ("" for a command without actions) with the least and the
    most words after it.
    """

    name: str
    usage: tuple[str, ...]
    summary: str
    description: str
    groups: tuple[Group, ...] = ()
    without: tuple[str, ...] = ()
    words: tuple[tuple[str, int, int], ...] = ()
    alias: str = ""

    def takes(self, option: Option) -> bool:
        if option.commands:
            return self.name in {each.partition(" ")[0] for each in option.commands}
        if option.group is Group.GENERAL:
            return option.field != "version"
        return option.group in self.groups and option.names[0] not in self.without


_SESSION_GROUPS = (Group.SESSION, Group.PORTS, Group.AGENT, Group.PERMISSIONS, Group.SCREEN, Group.STREAMS, Group.SDK)
_NEW_SESSION = ("--session-id", "--worktree", "--init", "--init-only", "--maintenance")
_GOING_BACK = ("--resume-session-at", "--rewind-files", "--resume-drops-turn")
_WHICH_SESSION = ("--continue", "--resume", "--fork-session", *_NEW_SESSION)

SUBCOMMANDS = (
    Subcommand("ssh", ("ccb ssh [user@]host[:/path] [DIR] [PROMPT]", "ccb ssh host --local [DIR] [PROMPT]"),
        "work on another machine", "Run an agent on another machine and use it from this terminal. Without -p the "
        "terminal interface starts and PROMPT is its first message. With -p the answer to PROMPT, and to what is piped "
        "in, is printed.", (*_SESSION_GROUPS, Group.CONNECTION)),
    Subcommand("", ("ccb [PATH] [PROMPT]",), "work in a directory of this machine",
        "Run an agent on this machine, in PATH or in the current directory. The first word is PATH if such a directory "
        "exists or if it is written like a path; write `--` before a prompt that could be taken for one.",
        _SESSION_GROUPS),
    Subcommand("resume", ("ccb resume [PATH] [ID]", "ccb resume HOST[:/PATH] [ID]"),
        "go on with the last session here, or on a host", "Continue a session: the one with this ID, else the last one "
        "used in PATH (without it, in the current directory), or the last one of HOST.",
        (*_SESSION_GROUPS, Group.CONNECTION), tuple(each for each in _WHICH_SESSION if each != "--fork-session")),
    Subcommand("acp", ("ccb acp HOST[:/PATH]", "ccb acp"), "let an editor drive sessions (ACP)",
        "Serve the Agent Client Protocol (v1) on stdin and stdout, for an editor that starts this command. Its "
        "sessions run in PATH on the host or, without HOST, on this machine. The working directory of the editor "
        "stands for PATH. A session lives on when the editor ends; `ccb attach` goes on with it in a terminal.",
        (Group.CONNECTION, Group.AGENT, Group.PERMISSIONS), ("--init", "--init-only", "--maintenance")),
    Subcommand("auth",
        ("ccb auth login [PROVIDER] [--api-key-stdin]", "ccb auth status [PROVIDER]", "ccb auth logout [PROVIDER]"),
        "manage the model credentials of this machine", "Keep the credentials of model providers in the keyring of "
        "this machine: `login` checks a key with its provider and stores it, `status` says which credentials are used, "
        "where they are and when they end, `logout` removes a stored one. PROVIDER is written as in front of a model; "
        "without it, `login` and `logout` take anthropic, `status` takes all.",
        words=(("login", 0, 1), ("status", 0, 1), ("logout", 0, 1))),
    Subcommand("config",
        ("ccb config show [--origin] [--settings JSON] [HOST:/PATH]", "ccb config get KEY [--origin]",
         "ccb config set KEY VALUE", "ccb config unset KEY", "ccb config edit", "ccb config schema"),
        "show and change the settings of this machine", "With `show`, print each setting that is set here, and "
        'what is kept of projects: trust, and rules of "always"; with HOST:/PATH, also what the project there sets. '
        "With --settings, these settings count too. `get` prints the value of one setting that is in force, set or "
        "not: a text as it is, everything else as JSON. `set` writes a value, JSON or a text, into your settings file "
        "and keeps the rest of it as it is; `unset`, or the value null, removes one. KEY has dots: permissions.allow. "
        "`edit` opens the file in your editor and checks it afterwards. `schema` prints a JSON schema for editors.",
        (Group.CONNECTION,),
        words=(("show", 0, 1), ("get", 1, 1), ("set", 2, 2), ("unset", 1, 1), ("edit", 0, 0), ("schema", 0, 0))),
    Subcommand("mcp",
        ("ccb mcp add NAME -- COMMAND [ARG]...", "ccb mcp add NAME URL", "ccb mcp list|get|remove|test|login|logout"),
        "manage the MCP servers of this machine", "Manage the MCP servers of your settings. They run on this machine, "
        "and agents on any host use their tools: `add` adds one, `list` and `get` show them, `remove` removes one, "
        "`test` starts one and lists its tools, `login` logs in at one with OAuth in the browser, `logout` forgets "
        "that login.",
        words=(("add", 2, 999), ("list", 0, 0), ("get", 1, 1), ("remove", 1, 1), ("test", 1, 1),
               ("login", 1, 1), ("logout", 1, 1))),
    Subcommand("shell", ("ccb shell HOST[:/PATH] [N]", "ccb shell --local [N]"),
        "open a shell on a host, or return to one", "Open your login shell on the host, in PATH, or return to the one "
        "that was left there. Like a session it stays when the connection is lost, and what is typed meanwhile arrives "
        "later. Ctrl+] leaves it, exit ends it. With N there are several, from 1 to 8. The agent of the session does "
        "not see it, and no model is called.",
        (Group.CONNECTION,)),
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
        "show what a session asked, ran and was allowed", "Print what this machine has seen of a "
        "session: what its models were asked, which tools they wanted to run, what was decided here, and what came "
        "back. SESSION is its ID, or the beginning of it (`ccb usage --by session` lists them).", words=(("", 1, 1),)),
    Subcommand("proxy", ("ccb proxy list [--json]", "ccb proxy revoke SESSION|--all", "ccb proxy serve"),
        "show and stop model calls through this machine", "Show the sessions that may call models "
        "through this machine now (`list`), or let one call no models any more (`revoke`): calls under way end with "
        "the next byte. In the REPL, /revoke does the same. `serve` drives all submitted fleets in the foreground, as "
        "`ccb fleet collect` does one, also those to come.",
        words=(("list", 0, 0), ("revoke", 0, 1), ("serve", 0, 0))),
    Subcommand("ps", ("ccb ps [HOST] [--json]", "ccb sessions [HOST] [--json]"),
        "list the sessions of a host, or of this machine", "List the sessions of a host, or of this machine, those "
        "that run and those that have ended: ID, state, age, time since last use, memory, driver, directory and "
        "title.", (Group.CONNECTION,), alias="sessions"),
    Subcommand("dash",
        ("ccb dash [HOST|'PATTERN'|@FILE]... [--json [--follow]]", "ccb dash --inventory PATH [--limit PATTERN]"),
        "watch the sessions of all hosts",
        "Show the sessions of many hosts on one screen, those that wait for you first: open one and come back, answer "
        "its question, start, name or stop one. Without words, the hosts are those of your past sessions. A pattern "
        "such as 'web-*' means hosts of ssh_config, @FILE one host a line. The options of the connection hold for each "
        "host.", (Group.CONNECTION,)),
    Subcommand("serve", ("ccb serve [dash|ssh|attach] [WORD]...",), "use ccb from a browser",
        "Show ccb in a browser, also on a phone: the screen of `ccb dash`, or the session of the command line behind "
        "`serve`, such as `ccb serve ssh HOST:/PATH`. It prints a link that lets one browser in; Enter makes another. "
        "The screen stays when the page is closed or loaded again, until no browser has been there for --idle."),
    Subcommand("fleet",
        ('ccb fleet run -p "PROMPT" HOST[:/PATH]|\'PATTERN\'|@FILE... [--jobs N] [--max-budget-usd N]',
         "ccb fleet run --resume-failed [NAME]",
         'ccb fleet submit --slurm LOGIN:/PATH --prompts FILE|-p "PROMPT" [--sbatch OPTIONS]',
         'ccb fleet submit --kubernetes CONTEXT --job FILE --path /PATH --prompts FILE|-p "PROMPT"',
         "ccb fleet status|collect|stop [NAME]",
         "ccb fleet logs NAME [HOST|NUMBER]"),
        "give many hosts one prompt, and one budget", "Run a headless session with the same prompt on each host, "
        "several at once, and print what came of them: a table on a terminal, else a line of JSON for each. Equal "
        "answers are printed once. All share one budget. A fleet is kept in files: if it was stopped, or this machine "
        "died, --resume-failed goes on in the same sessions. `status` shows it, `collect` waits for it and prints all "
        "answers, `logs` shows what one session did, `stop` ends it. Without NAME it is the newest one. `submit` "
        "lets Slurm or Kubernetes start the sessions, in one job; `collect` or `ccb proxy serve` then drives them from "
        "here.",
        (Group.CONNECTION, Group.AGENT, Group.PERMISSIONS, Group.SDK),
        ("--init-only", "--await-initialize", "--initialize-fields", "--session-mirror"),
        words=(("run", 0, 999), ("submit", 0, 0), ("status", 0, 1), ("collect", 0, 1), ("stop", 0, 1), ("logs", 1, 2))),
    Subcommand("attach", ("ccb attach HOST [ID] [--view]",), "take over a running session, or watch it",
        "Continue a session that runs on the host: the one with this ID, the only one, or one chosen from a list. The "
        "terminal that drove the session is notified and can take it back. With --view the session is only watched.",
        (Group.CONNECTION, *_SESSION_GROUPS), (*_WHICH_SESSION, *_GOING_BACK)),
    Subcommand("send", ("ccb send [HOST:]SESSION|TITLE [TEXT]",), "put a message into a session",
        "Put a message into a session that runs or sleeps: TEXT, or what is piped in. SESSION is an ID or the start of "
        "one; without HOST it is one that this machine has driven, or is here. The agent is told that the message is "
        "from another sender, and no question is answered by it. It is read at once if somebody drives the session, "
        "else when somebody does.", (Group.CONNECTION,)),
    Subcommand("ports", ("ccb ports HOST[:/PATH] [--json]", "ccb ports HOST[:/PATH] --forward [LOCAL:]PORT …"),
        "list or forward the ports of a session", "Print the ports on which programs of the session "
        "listen that runs in PATH, or of the only one that runs. With --forward or --reverse, keep them open until "
        "Ctrl+C, also over lost connections. The session is only watched, and no model credential is needed.",
        (Group.CONNECTION, Group.PORTS)),
    Subcommand("logs", ("ccb logs HOST [ID] [-n LINES]",), "show what a session did",
        "Show the last lines of what a session did and of its worker's log: the session with this ID, the only one "
        "that runs, or the only one.", (Group.CONNECTION,)),
    Subcommand("stop", ("ccb stop HOST [ID]", "ccb stop HOST --all"), "end the worker of a session, or of all sessions",
        "End the worker of a session and every process it started: the session with this ID, or the only one that "
        "runs. The session stays and can be resumed.",
        (Group.CONNECTION,)),
    Subcommand("export", ("ccb export HOST[:/PATH] [ID] [--output FILE] [--with-files]",),
        "write a session into a file", "Write a session into a file: what was said, the earlier versions of files, "
        "plan and outputs. Without ID, it is the latest session of PATH, or the only one of HOST. The session "
        "stays where it is. Without --output, the file is ccb-ID.tar in the current directory. With --with-files, the "
        "repository in its directory goes along, also what is not committed.", (Group.CONNECTION,)),
    Subcommand("import", ("ccb import FILE HOST:/PATH|PATH", "ccb import --from claude FILE HOST:/PATH|PATH"),
        "make a session of a file", "Make the session that `ccb export` wrote into FILE one of the host; it goes on in "
        "PATH, which must be there. With --from claude, FILE is a transcript of Claude Code "
        "(~/.claude/projects/*/*.jsonl). Import only files that you trust: the agent reads what they say.",
        (Group.CONNECTION,)),
    Subcommand("move", ("ccb move HOST[:/PATH] [ID] HOST2:/PATH|PATH", "ccb move --local [ID] HOST:/PATH"),
        "take a session to another machine", "Take a session to another machine, where it goes on in PATH, which must "
        "be there. It asks whether the files go along. On HOST it cannot be resumed any more. A move that was cut off "
        "ends when the same command is given again. Options of the connection are for HOST; for HOST2 its ssh_config "
        "counts.", (Group.CONNECTION,)),
    Subcommand("gc", ("ccb gc HOST [--dry-run] [--older-than DAYS]",), "remove what is no longer needed on a host",
        "Remove what dead workers left behind, bundles that nothing uses, and old sessions. Each removal is listed.",
        (Group.CONNECTION,)),
    Subcommand("clean", ("ccb clean HOST [--dry-run] [--yes]",), "remove ccb from a host",
        "Stop and remove every session and everything else that ccb keeps on the host. Asks first.",
        (Group.CONNECTION,)),
    Subcommand("trust", ("ccb trust", "ccb trust HOST[:/PATH] [--yes]", "ccb trust HOST[:/PATH] --revoke"),
        "show, give or take back the trust in a project", "Without HOST, list what is kept of projects: "
        'trust, and rules of "always". With HOST, show all that the project in PATH would switch on, and ask whether '
        "it may. With --revoke, forget it.", (Group.CONNECTION,)),
    Subcommand("disconnect", ("ccb disconnect [HOST]",), "end the SSH connections that are kept",
        "End the SSH connection to HOST that the setting keepConnection keeps on this machine; without HOST, end all "
        "of them. Sessions that run over it connect again."),
    Subcommand("doctor", ("ccb doctor [HOST] [--json]",), "find out what stands in the way of a session",
        "Check this machine, the connection and the host, and print each finding with its evidence and a fix. Without "
        "HOST, check this machine only. The exit code is 1 if a finding would stop a session.", (Group.CONNECTION,)),
    Subcommand("schedule",
        ("ccb schedule add NAME --on CALENDAR -- ssh HOST:/PATH -p PROMPT ...", "ccb schedule list",
         "ccb schedule run|remove NAME"),
        "run prompts on a host at set times", "Let the scheduler of this machine run ccb: user timers of systemd, "
        "launchd on macOS, else cron. `add` writes a timer for the command behind --, which needs a prompt and "
        "--max-budget-usd; `list` shows the timers, `run` runs one now as the scheduler does, `remove` removes it.",
        words=(("add", 2, 999), ("list", 0, 0), ("run", 1, 1), ("remove", 1, 1))),
    Subcommand("completion", ("ccb completion bash|zsh|fish",), "complete command lines in bash, zsh and fish",
        "Print the completion of a shell: commands, options and their values, hosts of ssh_config, "
        "sessions, models, and paths of a host over an SSH connection that is open already. `ccb help completion` says "
        "where to put it.", words=(("bash", 0, 0), ("zsh", 0, 0), ("fish", 0, 0))),
    Subcommand("upgrade", ("ccb upgrade [--check]",), "say how to upgrade ccb", "Print the command that upgrades ccb, "
        "by the way in which it was installed. With --check, first ask the package index of pip's configuration for "
        "the newest version. Nothing is changed, and ccb asks nobody by itself.", words=(("", 0, 0),)),
    Subcommand("help", ("ccb help [COMMAND|TOPIC]", "ccb help --man"),
        "show help on a command, or a page of the guide", "Show the commands and options of ccb, those of one command, "
        "or a page of the guide. With --man, print the manual page: `ccb help --man | man -l -` shows it."),
)  # fmt: skip

OWN_WORDS = tuple(each.name for each in SUBCOMMANDS if each.words)
"""The commands whose words are no host: actions, names."""

NAMES = {name: each.name for each in SUBCOMMANDS for name in (each.name, each.alias) if name}
"""The command that each first word means."""

COMMANDS = tuple(dict.fromkeys(NAMES.values()))
HOST_COMMANDS = tuple(name for name in COMMANDS if name not in ("ssh", "resume", "help", *OWN_WORDS))


def topics() -> list[str]:
    """Return what `ccb help` has more on: commands, and the pages that come with ccb."""
    return [*NAMES, *dict.fromkeys(each.stem for folder in _FOLDERS for each in sorted((_DOCS / folder).glob("*.md")))]


def manual_page() -> str:
    return (_DOCS / "ccb.1").read_text(encoding="utf-8")


def guide_page(topic: str) -> str:
    """Return the text of the guide and the reference on a topic."""
    found = [_DOCS / folder / f"{topic}.md" for folder in _FOLDERS] if topic else []
    return "\n".join(each.read_text(encoding="utf-8") for each in found if each.is_file())


def options_of(command: Subcommand) -> list[Option]:
    return sorted((option for option in OPTIONS if command.takes(option)), key=lambda option: not option.commands)


def help_text(width: int = 100, command: str = "") -> str:
    """Return the help of one command, of the options for SDKs (`sdk`), or the overview ("")."""
    command = NAMES.get(command, command)
    one = next((each for each in SUBCOMMANDS if command and each.name == command), None)
    if command == "sdk":
        title = "Options for programs that drive ccb, beside those of `ccb help ssh`."
        return f"{title}\n\n{_grouped((each for each in OPTIONS if each.group is Group.SDK), width)}\n"
    if one is None:
        return _overview(width) if not command else ""
    usage = "\n       ".join(one.usage)
    own = [each for each in options_of(one) if each.group is not Group.SDK]
    parts = [f"Usage: {usage}", textwrap.fill(one.description, width), _grouped(own, width, command)]
    return "\n\n".join([*parts, *(textwrap.fill(each, width) for each in _footers(one))]) + "\n"


def brief(option: Option) -> str:
    """Return the start of what an option does."""
    return _SHORT.sub("", option.help)


def _footers(command: Subcommand) -> list[str]:
    takes_host = any("HOST" in each for each in command.usage) and command.groups
    footers = [PATHS] if command.name in ("ssh", "resume", "cp", "shell") else [HOSTS] if takes_host else []
    if Group.SDK in command.groups:
        footers.append("`ccb help sdk` has the options for programs that drive ccb.")
    return footers


def _overview(width: int) -> str:
    """Return the usual options, and all commands; those with one form are shown with it."""
    lines = ["Usage:"]
    for each in SUBCOMMANDS:
        whole = each.name in ("", "ssh") or len(each.usage[0]) <= _OVERVIEW_WIDTH - 4
        lines += _entry(each.usage[0] if whole else f"ccb {each.name} …", each.summary, width, _OVERVIEW_WIDTH)
    lines += ["", textwrap.fill(_ABOUT, width), "", "Usual options:"]
    for name in _USUAL:
        option = BY_NAME[name]
        lines += _entry(_spelt(option, (name,)), f"{brief(option)}.", width, _OVERVIEW_WIDTH)
    pages = ", ".join(each for each in topics() if each not in NAMES)
    return "\n".join([*lines, "", textwrap.fill(f"{_MORE}{pages}.", width), ""])


def _spelt(option: Option, long: Iterable[str]) -> str:
    """Return names of an option, its letter and those of `long`, and its value."""
    names = ", ".join(sorted({*(name for name in option.names if len(name) == 2), *long}, key=len))
    return f"{names} <{option.metavar}>" if option.metavar else names


def _entry(left: str, right: str, width: int, column: int) -> list[str]:
    """Return two columns. A long text on the left has its own line."""
    left = f"  {left}"
    wrapped = textwrap.wrap(right, max(_MIN_TEXT, width - column))
    before = [left] if len(left) > column - 2 else []
    first = f"{'' if before else left:<{column}}{wrapped[0]}"
    return [*before, first, *(" " * column + line for line in wrapped[1:])]


def _grouped(options: Iterable[Option], width: int, command: str = "") -> str:
    parts: dict[str, list[str]] = {}
    for option in options:
        title = "Options" if option.commands else option.group.title
        parts.setdefault(title, []).extend(_option_lines(option, width, command))
    return "\n\n".join("\n".join([f"{title}:", *lines]) for title, lines in parts.items())


def _option_lines(option: Option, width: int, command: str) -> list[str]:
    names = [each for each in option.commands if each.startswith(f"{command} ")]
    text = option.help
    if names:
        owners = " and ".join(each for each in (", ".join(names[:-1]), names[-1]) if each)
        text = f"With {owners}: {text[:1].lower()}{text[1:]}"
    return _entry(_spelt(option, option.names), text, width, _OPTION_WIDTH)
