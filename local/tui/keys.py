"""The keys and their help; chords."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from textual.app import App
from textual.timer import Timer

from ..terminal.keymap import BURST_S, DEFAULT_KEYS, HOLD_S, ID, Keymap
from .widgets.painting import call_once_after

KEYS = (
    ("{send}", "send; while the agent works, queued until its turn ends"),
    ("{steer}", "steer: the working agent gets this with its next tool results; else lay the text aside, or back"),
    ("{newline}, \\ and Enter", "new line"),
    ("Up, Down, Ctrl+P, Ctrl+N", "earlier prompts, from the first and last line of the input"),
    ("Ctrl+K, Ctrl+U, Ctrl+W, Alt+D; Ctrl+Y", "cut to the end, to the start, a word back, a word on; insert it"),
    ("Alt+B, Alt+F", "to the word before, to the word behind"),
    ("{history}", "search the prompts of this directory; again for the next one, Enter takes it, Esc goes back"),
    ("Up", "while nothing is typed: take the newest prompt back that waits for the agent"),
    ("{queue}", "the prompts that wait for the agent, as /queue"),
    (
        "{queue-edit!}, {queue-steer!}, {queue-up!}, {queue-down!}, {queue-drop!}",
        "on a prompt that waits: edit it, let it steer, move it up or down, drop it",
    ),
    (
        "Down or Tab, Enter",
        "while nothing is typed: mark a sub-agent in sight (Up and Down: another one), show its conversation, live",
    ),
    (
        "Down or Tab, then {port-open}; {port-forward}; {port-ignore}",
        "while nothing is typed: mark the offer of a port; open it in the browser, forward it, never offer it here",
    ),
    ("{background}", "let the running command go on in the background"),
    ("{interrupt}", "interrupt the agent; while it is idle: close the file of /open, or end the newest copy"),
    ("{interrupt}, {interrupt}", "while the agent is idle: clear the input; an empty one: go back to a prompt"),
    ("{open}", "open the file that /open has fetched, with the laptop's viewer; also /open alone"),
    ("/ and Tab", "the commands that fit what is typed; Up and Down choose, Tab or Enter completes, Esc closes"),
    ("@", "name a file or directory on the host; the list works as that of the commands"),
    ("paste or drop a file", "an image or a text of this laptop goes along with the prompt"),
    ("{paste}", "the image in the laptop's clipboard goes along with the prompt, as /paste; Backspace removes it"),
    ("!", "at the start: run a shell command on the host; the agent reads what it printed with your next prompt"),
    ("#", "at the start: keep this line for every agent in the CLAUDE.md of the project"),
    ("{approval-tab}, {approval}", "go to the waiting approval and mark yes; Enter gives it, Esc goes back"),
    (
        "{answer-once}; {answer-session}; {answer-always}; {answer-deny}",
        "on an approval, or while nothing is typed: mark yes once, in this session, always here; no. Arrows mark, too",
    ),
    ("{answer-reads}", "on an approval: yes, and always here what docker, kubectl, systemctl and others only read"),
    ("{answer-caged}", "on an approval: yes, and from now on commands run in the cage without asking"),
    ("{answer-rule}", "on an approval, before Enter: edit the rule before you grant it"),
    ("{next-question}, {previous-question}", "on an approval: the next of the questions that wait, the one before"),
    (
        "1-9 or arrows, then Enter",
        "on a question of the agent: an option, own words or no answer; Space ticks, Esc goes back",
    ),
    ("Esc", "with vim's keys (/vim): from insert to normal mode; there, Esc interrupts the agent"),
    ("{editor}, Ctrl+X Ctrl+E", "write the prompt in your editor (VISUAL, EDITOR)"),
    ("{editor}", "on a plan: change it before you approve it"),
    ("{session-rename!}, {session-delete!}", "in the list of sessions: rename one, delete one"),
    ("{model-take}", "in the list of models: take the marked one"),
    (
        "{task-open}; {task-stop}",
        "in the list of tasks (/tasks): all output of a command, or the conversation of a sub-agent; stop it",
    ),
    ("{rule-add}; {rule-remove}", "in the list of rules: add one; remove one of yours"),
    (
        "{view-search}; {view-next}, {view-previous}; {view-start!}, {view-end!}; {view-copy}; {view-pager}",
        "on a page (/transcript, /diff): search; next, before; start, end; copy the entry; the page in your PAGER",
    ),
    ("{view-fold}, {view-unfold-all}, {view-fold-all}", "on the page of /diff: fold a file, unfold all, fold all"),
    ("Space, Up, Down, PgUp, PgDn, Home, End", "on an approval: scroll"),
    ("{mode}", "next mode: ask, accept edits, plan, caged"),
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
    ("{help}; ? at an empty input", "show the keys and commands"),
)
"""The keys by their ids, or as they are where nothing changes them, and what they do."""


def key_sections(keymap: Keymap) -> list[tuple[str, list[tuple[str, str]]]]:
    found: dict[str, str] = {}
    for key, does in KEYS:
        for key_id, _ in ID.findall(key):
            found.setdefault(key_id, does)
    rows = [(f"{key_id}: {keymap.names(key_id)}", found[key_id]) for key_id in DEFAULT_KEYS]
    return [('Change them in the settings: "keys": {"details": "Ctrl+Y"}', rows)]


class LoneChord:
    """A chord that counts if no key came just before it or just after: a terminal sends Alt+T as Esc and t."""

    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._last = 0.0
        self._is_burst = False
        self._held: Timer | None = None

    def key_came(self, at: float) -> None:
        self._is_burst, self._last = at - self._last < BURST_S, at
        if self._held is not None:
            self._held.stop()
            self._held = None

    def pressed(self, action: Callable[[], object]) -> None:
        """Call `action` once it is clear that the last key was the chord."""
        if not self._is_burst:
            self._held = call_once_after(self._app, HOLD_S, action)
