"""The connection as the person sees it: a banner above the composer and the two keys that change it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line

from ...session.client import LinkChange, LinkState, SessionClient
from ..theme.palette import Look

BRIEF_S = 1.0
"""Seconds for which a lost connection is not shown: most drops are over by then."""

STUCK_S = 5.0
"""Age in seconds from which an attempt is given up for a new one when the person asks for it;
see `local.session.retry_schedule`."""

RETRY_KEY = "r"
TAKE_KEY = "t"
_CHORDS = {RETRY_KEY: "Alt+R", TAKE_KEY: "Alt+T"}
_MARKS = {LinkState.NEEDS_PERSON: "!", LinkState.FENCED: "◇", LinkState.LOST: "✗"}
_MOST_LINES = 3
_SHORTEST_REASON = 20
_LOST_BY_WRAPPING = 10  # cells at the ends of lines


@dataclass(frozen=True)
class Sentence:
    """What the banner says: `head`, the `reason` (which may be cut short), then a `key` and what it `does`."""

    head: str
    reason: str = ""
    key: str = ""
    does: str = ""


class Connection:
    """What is known of the connection. `shown` lags behind a drop by BRIEF_S. All times are monotonic seconds."""

    def __init__(self, client: SessionClient) -> None:
        self._client = client
        self._change = LinkChange(client.state)
        self._down_at: float | None = None
        self._tried_at = time.monotonic()
        self._asking = False  # the attempt may ask the person, and takes as long as that takes
        self._shown = LinkChange(client.state)
        self._drove = client.driving

    @property
    def state(self) -> LinkState:
        """The connection now."""
        return self._change.state

    @property
    def shown(self) -> LinkState:
        """The connection as it is shown."""
        return self._shown.state

    @property
    def shown_up(self) -> bool:
        """Whether it is shown that what is sent arrives at once."""
        return self.shown in (LinkState.CONNECTED, LinkState.FENCED)

    @property
    def reason(self) -> str:
        """Why it is as it is shown, on one line."""
        return one_line(self._shown.reason)

    @property
    def up(self) -> bool:
        """Whether what is sent arrives at once."""
        return self.state in (LinkState.CONNECTED, LinkState.FENCED)

    @property
    def watching(self) -> bool:
        """Whether nothing that is typed here counts, though the session goes on."""
        return not self._client.driving and self.state not in (LinkState.LOST, LinkState.CLOSED)

    def changed(self, change: LinkChange, now: float) -> None:
        """The connection has changed."""
        self._asking = self.state is LinkState.NEEDS_PERSON
        self._tried_at = now if change.retry_at is None else change.retry_at
        self._change = change
        if change.state is not LinkState.RECONNECTING:
            self._down_at = None
        elif self._down_at is None:
            self._down_at = now
        if change.state is LinkState.CONNECTED:
            self._drove = True
        self.settle(now)

    def settle(self, now: float) -> None:
        """Show what has lasted long enough; what is more than a drop is shown at once."""
        if (
            self._down_at is None
            or now - self._down_at >= BRIEF_S
            or self._shown.state not in (LinkState.CONNECTED, LinkState.FENCED)
        ):
            self._shown = self._change

    def watches(self) -> str:
        """What to tell a person who wants to do what only a driver can."""
        key = TAKE_KEY if TAKE_KEY in self.keys() else _CHORDS[TAKE_KEY]
        return f"this terminal only watches: {key} drives the session"

    def keys(self) -> frozenset[str]:
        """The letters that do something now."""
        if self.shown in (LinkState.RECONNECTING, LinkState.NEEDS_PERSON):
            return frozenset((RETRY_KEY,))
        return frozenset((TAKE_KEY,)) if self.shown is LinkState.FENCED else frozenset()

    def retry(self) -> str:
        """Connect now; what to tell the person."""
        if self.state not in (LinkState.RECONNECTING, LinkState.NEEDS_PERSON):
            return "connected" if self.up else ""
        self._client.retry()
        return "connecting"

    def take_back(self) -> str:
        """Drive again; what to tell the person."""
        if self.state in (LinkState.LOST, LinkState.CLOSED):
            return ""
        if self._client.driving:
            return "you drive this session"
        self._client.take_back()
        return "taking the session"

    def sentence(self, now: float, *, typing: bool) -> Sentence | None:
        """What the banner says; None when there is nothing to say. `typing`: letters are text, so the chords are named."""
        shown = self._shown
        take, retry = (_CHORDS[key] if typing and not self.watching else key for key in (TAKE_KEY, RETRY_KEY))
        if shown.state is LinkState.RECONNECTING:
            return self._reconnecting(now, retry)
        if shown.state is LinkState.NEEDS_PERSON:
            return Sentence("not connected", self.reason, retry, "logs in")
        if shown.state is LinkState.FENCED:
            return Sentence("only watching", self.reason, take, "takes it back" if self._drove else "takes it over")
        if shown.state is LinkState.LOST:
            return Sentence("lost", self.reason, "Ctrl+D", "leaves")
        return None

    def _reconnecting(self, now: float, retry: str) -> Sentence:
        """The wait for an attempt, or the attempt; how old it is once it may hang."""
        shown, age = self._shown, now - self._tried_at
        attempt = f"attempt {shown.attempt}" if shown.attempt else ""
        if age < 0:
            head, key, does = f"reconnecting in {math.ceil(-age)} s", retry, "connects now"
        elif age > STUCK_S:
            attempt = f"{attempt}, for {age:.0f} s" if attempt else f"for {age:.0f} s"
            head, key, does = "reconnecting now", "" if self._asking else retry, "starts anew"
        else:
            head, key, does = "reconnecting now", "", ""
        return Sentence(f"{head} ({attempt})" if attempt else head, self.reason, key, does)


def banner_text(sentence: Sentence, mark: str, tone: str, look: Look, width: int, lines: int) -> Text:
    """The sentence in at most so many `lines` of `width` cells; only the reason is cut. What a key does stays together."""
    text = Text(overflow="fold")
    text.append(f"{mark} ", style=tone)
    text.append(sentence.head, style=tone)
    tail = Text()
    if sentence.key:
        tail.append(sentence.key, style=f"bold {look.accent}")
        tail.append(f" {sentence.does}", style=look.dim)
    reason = f": {sentence.reason}" if sentence.reason else ""
    between = " · " if tail else ""
    if text.cell_len + cell_len(reason + between) + tail.cell_len > width:
        between = "\n  " if tail else ""
        left = max(_SHORTEST_REASON, width * (lines - bool(tail)) - text.cell_len - _LOST_BY_WRAPPING)
        reason = reason if cell_len(reason) <= left else set_cell_size(reason, left - 1).rstrip() + "…"
    text.append(reason + between, style=look.dim)
    return text.append_text(tail)


class Banner(Static):
    """One to three lines, there only while there is something to say of the connection."""

    DEFAULT_CSS = """
    Banner { height: auto; max-height: 3; padding: 0 2; background: $background; display: none; }
    Banner.said { display: block; }
    """

    _text: Text | None = None

    def show(self, connection: Connection, now: float, look: Look, *, typing: bool) -> None:
        """Say how the connection is."""
        sentence = connection.sentence(now, typing=typing)
        self.set_class(sentence is not None, "said")
        if sentence is None:
            self._text = None
            return
        state = connection.shown
        tone = {LinkState.FENCED: look.accent, LinkState.LOST: look.bad}.get(state, look.warn)
        lines = 2 if self.screen.has_class("-short") else _MOST_LINES
        width = max(20, self.app.size.width - 4)
        text = banner_text(sentence, _MARKS.get(state, "◌"), tone, look, width, lines)
        if text != self._text:
            self._text = text
            self.update(text)
