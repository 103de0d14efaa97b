"""The slash commands of the REPL, all answered on the laptop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """`usage` as typed; `does` in a few words."""

    name: str
    usage: str
    does: str


COMMANDS = (
    Command("help", "/help", "this help"),
    Command("model", "/model [NAME]", "show or change the model (opus, sonnet, haiku, or an id)"),
    Command("mode", "/mode [MODE]", "show or change the mode: default, acceptEdits, plan, bypassPermissions"),
    Command("status", "/status", "host, session, worker and connection"),
    Command("cost", "/cost", "tokens and money of this session"),
    Command("theme", "/theme [NAME]", "show or change the colours: dark, light"),
    Command("copy", "/copy", "copy the last answer to the clipboard of this terminal"),
    Command("stop", "/stop", "end the session on the host: what runs there is killed"),
    Command("quit", "/quit", "leave; the session goes on on the host; /exit does the same"),
)

KEYS = (
    ("Enter", "send; queued while the agent works"),
    ("Ctrl+J, Shift+Enter", "new line"),
    ("Up, Down", "earlier prompts, at the edges of the input"),
    ("Esc", "interrupt the agent"),
    ("Tab, Alt+A", "answer the waiting approval: 1 once, 2 this session, 3 deny"),
    ("Up, Down, PgUp, PgDn, Home, End", "on an approval: scroll what it shows"),
    ("Shift+Tab", "permission mode: default, acceptEdits, plan"),
    ("Ctrl+O", "show or hide all of tool output and thinking"),
    ("PgUp, PgDn, wheel", "scroll; at a line of events that are not loaded: load them"),
    ("Alt+R, F5", "connect again now, or log in; also r while nothing is typed"),
    ("Alt+T, F8", "drive a session that another client drives; also t while nothing is typed"),
    ("Ctrl+C", "clear the input, then interrupt, then (twice) quit"),
    ("Ctrl+D", "leave when the input is empty; the work goes on on the host"),
)

_ALIASES = {"exit": "quit", "?": "help"}


@dataclass(frozen=True)
class Typed:
    """A slash command as typed; `command` is None when there is no such one."""

    name: str
    argument: str
    command: Command | None


def parse_command(text: str) -> Typed | None:
    """The slash command in `text`, or None when it is a prompt. A path such as `/etc/hosts is wrong` is a prompt."""
    if not text.startswith("/") or "\n" in text:
        return None
    word, _, argument = text[1:].partition(" ")
    if "/" in word or not word:
        return None
    name = _ALIASES.get(word, word)
    return Typed(name, argument.strip(), next((each for each in COMMANDS if each.name == name), None))


def help_markdown() -> str:
    """The text of /help."""
    lines = ["**Keys**", "", "| key | does |", "|---|---|"]
    lines += [f"| {key} | {does} |" for key, does in KEYS]
    lines += ["", "**Commands**", "", "| command | does |", "|---|---|"]
    lines += [f"| `{command.usage}` | {command.does} |" for command in COMMANDS]
    return "\n".join(lines)
