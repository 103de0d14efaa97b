"""What a line means that a person has typed. Alone, because the first frame of the REPL loads it."""

from __future__ import annotations

import re

from ccb.tunnel.wire.dataclass import dataclass


@dataclass(frozen=True)
class TypedCommand:
    name: str
    argument: str


def parse_command(text: str) -> TypedCommand | None:
    """Return the slash command in `text`, or None for a prompt such as `/etc/hosts is wrong`."""
    if text == "?":
        text = "/help"
    if not text.startswith("/") or "\n" in text:
        return None
    word, _, argument = text[1:].partition(" ")
    return None if "/" in word or not word else TypedCommand(word, argument.strip())


_FULL_SCREEN = re.compile(
    r"alsamixer|bashtop|btm|btop|btop\+\+|cfdisk|cmus|dstat|emacs|fzf|gitui|glances|gotop|htop|iftop|iotop|irssi|"
    r"joe|k9s|lazydocker|lazygit|less|links|lnav|lynx|man|mc|micro|more|most|mutt|nano|ncdu|neomutt|nethogs|nmtui|"
    r"nnn|nvim|nvtop|pico|pudb|ranger|screen|tig|tmux|top|vi|view|vim|vimdiff|visidata|vd|w3m|weechat|yazi|zellij"
)
"""Programs that need a terminal whatever their arguments are."""
_IN_FRONT = re.compile(r"(?:\w+=\S*|sudo|command|exec|env|time)\s+")


def for_terminal(text: str) -> str:
    """Return the command of a line that runs on a terminal of the person, "" for one that the agent sees."""
    if text.startswith("!!"):
        return text[2:].strip()
    command = words = text[1:].strip()
    while found := _IN_FRONT.match(words):
        words = words[found.end() :]
    return command if _FULL_SCREEN.fullmatch(words.partition(" ")[0].rpartition("/")[2]) else ""


def refusal(text: str) -> list[str]:
    """Return why an input is not sent, or nothing. A blank in front makes it an ordinary prompt."""
    if text.startswith("!") and not text.lstrip("!").strip():
        why = "! at the start runs a command on the host, and no command follows it"
    elif text.startswith("#") and ("\n" in text or not text[1:].strip()):
        why = "# at the start keeps a note for the agent in CLAUDE.md, which is one line"
    else:
        return []
    instead = f"To send this to the agent as it is, put a space in front of the {text[0]}."
    return [f"Nothing was sent: {why}.", instead]
