"""The connection on the screen: the banner above the composer, and the keys that reconnect or take over the session."""

from __future__ import annotations

import math
import time

from rich.cells import cell_len, set_cell_size
from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.dataclass import dataclass

from ...session.session_client import LinkChange, LinkState, SessionClient
from ...terminal.keymap import Keymap
from ..rendering.themes import Palette

BRIEF_S = 1.0  # seconds before a lost connection is shown: most drops are over by then
STUCK_S = 5.0  # age in seconds from which the person may give up a connection attempt for a new one
RETRY_KEY = "r"
_MARKS = {LinkState.NEEDS_PERSON: "!", LinkState.FENCED: "◇", LinkState.LOST: "✗"}
_MAX_LINES = 3
_MIN_REASON = 20
_LOST_BY_WRAPPING = 10  # cells at the ends of lines


@dataclass(frozen=True)
class BannerMessage:
    """The text of the banner: `head`, then the `reason` (which may be cut short), then a `key` and what it `does`."""

    head: str
    reason: str = ""
    key: str = ""
    does: str = ""


class ConnectionView:
    """The connection as it is (`state`) and as the person sees it (`shown`): a drop is shown BRIEF_S later."""

    def __init__(self, client: SessionClient, keymap: Keymap) -> None:
        self._client = client
        self._keymap = keymap
        self._change = LinkChange(client.state)
        self._down_at: float | None = None
        self._tried_at = time.monotonic()
        self._may_ask = False  # the attempt may ask the person, whose answer may take any time
        self._shown = LinkChange(client.state)
        self._has_driven = client.driving
        self._was_unanswered = False

    @property
    def state(self) -> LinkState:
        return self._change.state

    @property
    def shown(self) -> LinkState:
        return self._shown.state

    @property
    def unanswered_s(self) -> float:
        return self._client.unanswered_s if self.up else 0.0

    @property
    def round_trip_s(self) -> float | None:
        return self._client.round_trip_s if self.up else None

    @property
    def reason(self) -> str:
        return one_line(self._shown.reason)

    @property
    def up(self) -> bool:
        """Whether there is a connection, so that inputs arrive at once."""
        return self.state in (LinkState.CONNECTED, LinkState.FENCED)

    @property
    def watching(self) -> bool:
        """Whether another client drives the session, so that this terminal can send nothing."""
        return not self._client.driving and self.state not in (LinkState.LOST, LinkState.CLOSED)

    def changed(self, change: LinkChange, now: float) -> None:
        self._may_ask = self.state is LinkState.NEEDS_PERSON
        self._tried_at = now if change.retry_at is None else change.retry_at
        self._change = change
        if change.state is not LinkState.RECONNECTING:
            self._down_at = None
        elif self._down_at is None:
            self._down_at = now
        if change.state is LinkState.CONNECTED:
            self._has_driven = True
        self.settle(now)

    def settle(self, now: float) -> None:
        """Show the state if it has lasted long enough, or is worse than a drop, or follows a silence that was shown."""
        if (
            self._down_at is None
            or now - self._down_at >= BRIEF_S
            or self._shown.state not in (LinkState.CONNECTED, LinkState.FENCED)
            or self._was_unanswered
        ):
            self._shown = self._change
        if self.up:
            self._was_unanswered = self.unanswered_s > 0

    def only_watches_hint(self) -> str:
        return f"this terminal only watches: {self._keymap.name('take-back')} drives the session"

    def keys(self) -> frozenset[str]:
        retries = self.shown in (LinkState.RECONNECTING, LinkState.NEEDS_PERSON)
        return frozenset((RETRY_KEY,)) if retries else frozenset()

    def retry(self) -> str:
        """Connect now. Return a hint for the person."""
        if self.state not in (LinkState.RECONNECTING, LinkState.NEEDS_PERSON):
            return "connected" if self.up else ""
        self._client.retry()
        return "connecting"

    def take_back(self) -> str:
        if self.state in (LinkState.LOST, LinkState.CLOSED):
            return ""
        if self._client.driving:
            return "you drive this session"
        self._client.take_back()
        return "taking the session"

    def banner_message(self, now: float, *, typing: bool) -> BannerMessage | None:
        """Return the text of the banner, None for no banner. `typing`: letters are text, so it names the chord."""
        shown, reason = self._shown, self.reason
        retry = self._keymap.name("retry") if typing and not self.watching else RETRY_KEY
        if shown.state is LinkState.RECONNECTING:
            return self._reconnecting(now, retry)
        if shown.state is LinkState.NEEDS_PERSON:
            return BannerMessage("not connected", reason, retry, "logs in")
        if shown.state is LinkState.FENCED:
            takes = "takes it back" if self._has_driven else "takes it over"
            return BannerMessage("only watching", reason, self._keymap.name("take-back"), takes)
        if shown.state is not LinkState.LOST:
            return None
        if typing:
            return BannerMessage("lost", reason, self._keymap.name("quit"), "twice leaves")
        return BannerMessage("lost", reason)  # the composer names the key

    def _reconnecting(self, now: float, retry: str) -> BannerMessage:
        shown, age = self._shown, now - self._tried_at
        attempt = f"attempt {shown.attempt}" if shown.attempt else ""
        head, key, does = "reconnecting now", "", ""
        if age < 0:
            head, key, does = f"reconnecting in {math.ceil(-age)} s", retry, "connects now"
        elif age > STUCK_S:
            attempt = f"{attempt}, for {age:.0f} s" if attempt else f"for {age:.0f} s"
            key, does = "" if self._may_ask else retry, "tries again now"
        return BannerMessage(f"{head} ({attempt})" if attempt else head, self.reason, key, does)


def banner_text(message: BannerMessage, mark: str, tone: str, palette: Palette, width: int, lines: int) -> Text:
    """Draw the message in at most `lines` lines. Only the reason is cut; a key and what it does stay on one line."""
    text = Text.assemble((f"{mark} ", tone), (message.head, tone), overflow="fold")
    does = (message.key, f"bold {palette.accent}"), (f" {message.does}", palette.dim)
    tail = Text.assemble(*does) if message.key else Text()
    reason = f": {message.reason}" if message.reason else ""
    between = " · " if tail else ""
    if text.cell_len + cell_len(reason + between) + tail.cell_len > width:
        between = "\n  " if tail else ""
        left = max(_MIN_REASON, width * (lines - bool(tail)) - text.cell_len - _LOST_BY_WRAPPING)
        reason = reason if cell_len(reason) <= left else set_cell_size(reason, left - 1).rstrip() + "…"
    text.append(reason + between, style=palette.dim)
    return text.append_text(tail)


class Banner(Static):
    """One to three lines above the composer, shown only while something is wrong with the connection."""

    DEFAULT_CSS = """
    Banner { height: auto; max-height: 3; padding: 0 2; background: $background; display: none; }
    Banner.shown { display: block; }
    """

    _text: Text | None = None

    def show(self, connection: ConnectionView, now: float, palette: Palette, *, typing: bool) -> None:
        message = connection.banner_message(now, typing=typing)
        self.set_class(message is not None, "shown")
        if message is None:
            self._text = None
            return
        state = connection.shown
        tone = {LinkState.FENCED: palette.accent, LinkState.LOST: palette.bad}.get(state, palette.warn)
        lines = 2 if self.screen.has_class("-short") else _MAX_LINES
        width = max(20, self.app.size.width - 4)
        text = banner_text(message, _MARKS.get(state, "◌"), tone, palette, width, lines)
        if text != self._text:
            self._text = text
            self.update(text)
