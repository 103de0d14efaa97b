"""The slash commands and keys of the REPL, and the text of /help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ccb.tunnel.wire.client_requests import EFFORTS
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.model_facts import ALIASES

from ..terminal.keymap import DEFAULT_KEYS, ID, Keymap
from .composer.completion_offers import Candidate, Choices
from .rendering.themes import THEME_NAMES

Section = tuple[str, Sequence[tuple[str, str]]]
"""A heading of a panel, and its rows."""


@dataclass(frozen=True)
class ReplCommand:
    """A slash command. `usage` is what a person types, `does` explains it in a few words."""

    name: str
    usage: str
    does: str


COMMANDS = (
    ReplCommand("help", "/help [WORD]", "show this help, or what of it has a word"),
    ReplCommand("keys", "/keys", "list the keys with their ids, by which the setting `keys` changes them"),
    ReplCommand("model", "/model [NAME]", "choose a model from a list, or name one: opus, sonnet, haiku, an id"),
    ReplCommand("mode", "/mode [MODE]", "show or change the mode: default, acceptEdits, plan, bypassPermissions"),
    ReplCommand("effort", "/effort LEVEL", "set the effort: low, medium, high, xhigh, max, or default"),
    ReplCommand("thinking", "/thinking [on, off, N]", "let the model think, with at most N tokens"),
    ReplCommand("tasks", "/tasks [ID, stop ID]", "list what runs in the background, show its output, end it"),
    ReplCommand("queue", "/queue", "list the prompts that wait for the agent: edit, reorder, drop"),
    ReplCommand("mcp", "/mcp [reconnect NAME]", "list the MCP servers with their state, connect one again"),
    ReplCommand("new", "/new", "begin a new session here; this one stays on the host (also /clear)"),
    ReplCommand("resume", "/resume [TEXT]", "go on with another session of this host: a list, or the ID of one"),
    ReplCommand("rewind", "/rewind", "go back to before a prompt: files, conversation, or both"),
    ReplCommand("status", "/status", "show host, session, worker and connection"),
    ReplCommand("cost", "/cost", "show the tokens and the cost of this session"),
    ReplCommand("revoke", "/revoke", "let this session call no models any more; calls under way end at once"),
    ReplCommand("trust", "/trust [revoke]", 'show what is kept of this project: trust, "always"; take it back'),
    ReplCommand("theme", "/theme [NAME]", "show or change the colours, now and in later runs"),
    ReplCommand(
        "transcript", "/transcript [pager]", "the whole conversation on a page: search, copy; or in your PAGER"
    ),
    ReplCommand("vim", "/vim", "edit the input with vim's keys, or no longer"),
    ReplCommand("paste", "/paste", "let the image in the laptop's clipboard go along with the prompt (also Ctrl+V)"),
    ReplCommand("copy", "/copy [N]", "copy the last answer (or the Nth from the end) to the clipboard"),
    ReplCommand("diff", "/diff", "show what the agent has changed in this session, a file each, with the lines"),
    ReplCommand("permissions", "/permissions [RULE]", "the rules that allow, ask, deny: origin, add, remove"),
    ReplCommand("tools", "/tools [NAME]", "list the tools of the agent: what each may change, and where it runs"),
    ReplCommand("hosts", "/hosts [HOST:PATH]", "the hosts of your last sessions: sessions, or a command"),
    ReplCommand("doctor", "/doctor", "examine this laptop and the host; each finding with what helps"),
    ReplCommand("config", "/config [edit]", "show the settings of this laptop with their origin, or open the file"),
    ReplCommand("bug", "/bug", "write a report of a problem to a file, without prompts and secrets"),
    ReplCommand("rename", "/rename TITLE", "give this session a name for the lists"),
    ReplCommand("reconnect", "/reconnect", "connect now, while the connection is lost (also Alt+R)"),
    ReplCommand("export", "/export [FILE]", "write the whole session to a file on the laptop: FILE.md or FILE.json"),
    ReplCommand("get", "/get REMOTE [LOCAL]", "copy a file or folder of the host to the laptop; /get stop ends copies"),
    ReplCommand("put", "/put LOCAL [REMOTE]", "copy a file or folder of the laptop to the host"),
    ReplCommand("open", "/open PATH", "fetch a file of the host; a key then opens it with the laptop's viewer"),
    ReplCommand("stop", "/stop", "end the session on the host; what runs there is killed"),
    ReplCommand("quit", "/quit", "leave; the session keeps running on the host (also /exit)"),
)

_FIXED: Mapping[str, tuple[str, ...]] = {
    "model": tuple(ALIASES),
    "mode": ("default", "acceptEdits", "plan", "bypassPermissions"),
    "effort": (*EFFORTS, "default"),
    "thinking": ("on", "off"),
    "trust": ("revoke",),
    "transcript": ("pager",),
    "config": ("edit",),
    "theme": ("auto", *THEME_NAMES),
}
"""The arguments of commands that the list above the composer offers."""

_TAKE_TEXT = ("help", "hosts", "permissions", "resume", "tools")
"""The commands that also take other text than what is offered: Enter sends it."""

KEYS = (
    ("{send}", "send; while the agent works, queued until its turn ends"),
    ("{steer}", "steer: while the agent works, it gets this with its next tool results; else the next queued prompt"),
    ("{newline}", "new line"),
    ("Up, Down", "earlier prompts, from the first and last line of the input"),
    ("{history}", "search the prompts of this directory; again for the next one, Enter takes it, Esc goes back"),
    ("Up", "while nothing is typed: take the newest prompt back that waits for the agent"),
    ("{queue}", "the prompts that wait for the agent, as /queue"),
    (
        "{queue-edit!}, {queue-steer!}, {queue-up!}, {queue-down!}, {queue-drop!}",
        "on a prompt that waits: edit it, let it steer, move it up or down, drop it",
    ),
    ("{background}", "let the running command go on in the background"),
    ("{interrupt}", "interrupt the agent; while it is idle, put such a file away or break off the newest copy"),
    ("{interrupt}, {interrupt}", "while nothing is typed and the agent is idle: go back to an earlier prompt"),
    ("{open}", "open the file that /open has fetched, with the laptop's viewer; also /open alone"),
    ("/ and Tab", "the commands that fit what is typed; Up and Down choose, Tab or Enter completes, Esc closes"),
    ("@", "name a file or directory on the host; the list works as that of the commands"),
    ("paste or drop a file", "an image or a text of this laptop goes along with the prompt"),
    ("{paste}", "the image in the laptop's clipboard goes along with the prompt, as /paste; Backspace removes it"),
    ("!", "at the start: run a shell command on the host; the agent reads what it printed with your next prompt"),
    ("#", "at the start: keep this line for every agent in the CLAUDE.md of the project"),
    ("{approval-tab}, {approval}, click", "go to the waiting approval; Esc goes back"),
    (
        "{answer-once!}, {answer-session!}, {answer-deny!}, {answer-always!}",
        "on an approval, before Enter: once, this session, deny, always here; arrows mark, too",
    ),
    ("{answer-rule}", "on an approval, before Enter: edit the rule before you grant it"),
    ("{next-question}, {previous-question}", "on an approval: the next of the questions that wait, the one before"),
    (
        "1-9 or arrows, then Enter",
        "on a question of the agent: an option or own words; Space ticks, Esc declines",
    ),
    ("Esc", "with vim's keys (/vim): from insert to normal mode; there, Esc interrupts the agent"),
    ("{editor}, Ctrl+X Ctrl+E", "write the prompt in your editor (VISUAL, EDITOR)"),
    ("{editor}", "on a plan: change it before you approve it"),
    ("{session-rename!}, {session-delete!}", "in the list of sessions: rename one, delete one"),
    ("{model-take}", "in the list of models: take the marked one"),
    ("{rule-add}; {rule-remove}", "in the list of rules: add one; remove one of yours"),
    (
        "{view-search}; {view-next}, {view-previous}; {view-start!}, {view-end!}; {view-copy}; {view-pager}",
        "on a page (/transcript, /diff): search; next, before; start, end; copy the entry; the page in your PAGER",
    ),
    ("{view-fold}, {view-unfold-all}, {view-fold-all}", "on the page of /diff: fold a file, unfold all, fold all"),
    ("Space, Up, Down, PgUp, PgDn, Home, End", "on an approval: scroll"),
    ("{mode}", "next permission mode: default, acceptEdits, plan"),
    ("{todos}", "show all todos of the agent, or only the one in progress"),
    ("{details}, {details}", "the whole conversation on a page, as /transcript: / searches, n and N go on, Esc closes"),
    ("{details}", "show or hide all of tool output and thinking; on an approval: take the whole screen for it"),
    ("{page-up}, {page-down}, wheel", "scroll; load events that are not loaded"),
    ("drag", "select, which copies; with Shift held, most terminals select in their own way"),
    ("{retry}", "connect now, or log in; also r while nothing is typed"),
    ("{take-back}", "take over a session that another client drives"),
    ("{ladder}", "clear the input, then interrupt, then (twice) quit"),
    ("{quit}", "quit, if pressed twice"),
    ("{suspend}", "stop ccb and return to the shell, whose `fg` continues it; the agent keeps working"),
    ("{undo}", "undo in the input"),
    ("{leave}", "leave if the input is empty; the agent keeps working on the host"),
    ("{help}; ? and {send}", "show the keys and commands"),
)
"""The keys by their ids, or as they are where nothing changes them, and what they do."""

_ALIASES = {"exit": "quit", "?": "help", "clear": "new", "sessions": "resume"}

OWN_NAMES = frozenset((*(each.name for each in COMMANDS), *_ALIASES))
"""What a person may call the commands of the REPL. Commands of the worker with one of these names are not reached."""


@dataclass(frozen=True)
class TypedCommand:
    """A slash command as a person typed it. `command` is None if there is no such command."""

    name: str
    argument: str
    command: ReplCommand | None


def parse_command(text: str) -> TypedCommand | None:
    """Return the slash command in `text`, or None for a prompt. A question mark alone asks for help. A path such as
    `/etc/hosts is wrong` is a prompt."""
    if text == "?":
        text = "/help"
    if not text.startswith("/") or "\n" in text:
        return None
    word, _, argument = text[1:].partition(" ")
    if "/" in word or not word:
        return None
    name = _ALIASES.get(word, word)
    return TypedCommand(name, argument.strip(), next((each for each in COMMANDS if each.name == name), None))


def refusal(text: str) -> list[str]:
    """Return why an input is not sent, or nothing if nothing is wrong with it. A blank in front makes it an ordinary
    prompt."""
    if text.startswith("!") and not text[1:].strip():
        why = "! at the start runs a command on the host, and there is none"
    elif text.startswith("#") and ("\n" in text or not text[1:].strip()):
        why = "# at the start keeps a note for the agent in CLAUDE.md, which is one line"
    else:
        return []
    instead = f"To send this to the agent as it is, put a space in front of the {text[0]}."
    return [f"Nothing was sent: {why}.", instead]


def own_candidates(choices: Mapping[str, Choices]) -> list[Candidate]:
    """Return the commands of the REPL for the list above the composer. `choices` are arguments that change."""
    fixed: dict[str, Choices] = {name: dict.fromkeys(each, "") for name, each in _FIXED.items()}
    known = {**fixed, "help": {each.name: each.does for each in COMMANDS}, **choices}
    return [
        Candidate(
            each.name,
            each.usage.partition(" ")[2],
            each.does,
            choices=known.get(each.name, {}),
            takes_text=each.name in _TAKE_TEXT,
        )
        for each in COMMANDS
    ]


def help_sections(keymap: Keymap, of_worker: Sequence[Candidate] = ()) -> list[Section]:
    """Return what /help shows: the keys, the commands, and those that the agent's side knows (`of_worker`)."""
    keys = [(keymap.filled(key), does) for key, does in KEYS]
    sections: list[Section] = [("Keys", keys), ("Commands", [(command.usage, command.does) for command in COMMANDS])]
    others = [(f"/{each.name} {each.hint}".rstrip(), each.does) for each in of_worker if each.name not in OWN_NAMES]
    return [*sections, ("Commands of the project, skills, prompts", others)] if others else sections


def key_sections(keymap: Keymap) -> list[Section]:
    """Return what /keys shows: the keys that the setting `keys` may change, by their ids."""
    rows = [(f"{key_id}: {keymap.names(key_id)}", does) for key_id, does in key_ids().items()]
    return [('Change them in the settings: "keys": {"details": "Ctrl+Y"}', rows)]


def key_ids() -> dict[str, str]:
    """Return what the key of each id does."""
    found: dict[str, str] = {}
    for key, does in KEYS:
        for key_id, _ in ID.findall(key):
            found.setdefault(key_id, does)
    return {key_id: found[key_id] for key_id in DEFAULT_KEYS}
