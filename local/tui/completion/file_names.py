"""The files and directories on the host that a person names behind an `@`: asked for while they type."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.dataclass import dataclass

from ...session.client import FoundNames, SessionClient
from .history import holds_in_order
from .offers import Offer, Offers

_OPEN = re.compile(r'(?:^|(?<=[\s(\[]))@(?:"([^"\n]*)|([^\s"]*))\Z')  # as the worker reads a mention
_REST = re.compile(r'[^\s"]*"?')
_SPECIAL = "'\\"
_MAX_LINE = 1_000  # characters before the cursor in which an `@` is looked for
_FRESH_S = 2.0
_SLOW_S = 0.3
_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 1.0
_MAX_KEPT = 64


@dataclass(frozen=True)
class Mention:
    """A name that is being typed: `query` without `@` and quotes, from `start` to `end` of the text. `sign` is what
    stands in front of it, `local` says that it is a path on the laptop."""

    query: str
    start: int
    end: int
    sign: str = "@"
    local: bool = False


def mention_at(text: str, cursor: int) -> Mention | None:
    """Return the mention in which the cursor is, if it is in one."""
    first = max(text.rfind("\n", 0, cursor) + 1, cursor - _MAX_LINE)
    found = _OPEN.search(text[first:cursor])
    if found is None:
        return None
    quoted = found[1] is not None
    rest = _REST.match(text, cursor) if not quoted else re.compile(r'[^"\n]*"').match(text, cursor)
    return Mention(found[1] if quoted else found[2], first + found.start(), rest.end() if rest else cursor)


class FileNames:
    """Offers what the host has found. While an answer is on its way, what was found before is offered as far as it
    fits. `host` is its name to show; `changed` is called when there is something new to offer."""

    def __init__(self, client: SessionClient, host: str, changed: Callable[[], object]) -> None:
        self._client = client
        self._host = host
        self._changed = changed
        self._known: OrderedDict[str, tuple[float, FoundNames]] = OrderedDict()
        self._last: tuple[str, ...] = ()
        self._asking = ""
        self._note = ""

    def wanted(self, mention: Mention) -> bool:
        """Return whether the host must be asked about a mention."""
        since, found = self._known.get(mention.query, (0.0, None))
        return found is None or not found.settled or time.monotonic() - since > _FRESH_S

    async def ask(self, query: str) -> None:
        """Ask the host until it knows the whole answer. Cancel this when the person types on."""
        pause = _PAUSE_S
        while True:
            asked = asyncio.ensure_future(self._client.names(query))
            try:
                if not (await asyncio.wait([asked], timeout=_SLOW_S))[0]:
                    self._say(f"asking {self._host} …")
                found = await asked
            except CcbError:
                self._say(f"no connection to {self._host}: only what was found before")
                return
            finally:
                asked.cancel()
            if found is None:
                self._say("the worker of this session cannot list files: it is of an older version")
                return
            self._keep(query, found)
            self._say("the tree is too large to know all of it: ./ lists a directory" if found.cut else "")
            if found.settled:
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _keep(self, query: str, found: FoundNames) -> None:
        self._known[query] = time.monotonic(), found
        self._known.move_to_end(query)
        self._last = found.names
        while len(self._known) > _MAX_KEPT:
            self._known.popitem(last=False)

    def _say(self, note: str) -> None:
        self._note = note
        self._changed()

    def offers(self, mention: Mention) -> Offers | None:
        """Return what is known to fit. None if that is nothing, or what is typed already."""
        query = mention.query
        known = self._known.get(query)
        names = (
            known[1].names
            if known is not None
            else tuple(each for each in self._last if holds_in_order(each, query.lower()))
        )
        if names and names[0] == query and not query.endswith("/"):
            return None
        if not names and not self._note:
            return None
        return Offers([offer_of(each, mention) for each in names], f"{mention.sign}{mention.start}", self._note)


def offer_of(name: str, mention: Mention) -> Offer:
    """Return the offer that puts a name in place of what is typed."""
    quoted = any(char.isspace() or (char in _SPECIAL and not mention.sign) for char in name)
    directory = name.endswith("/")
    within = name if mention.sign else name.replace("\\", "\\\\")  # a command reads its words as a shell does
    insert = mention.sign + (f'"{within}"' if quoted else name)
    literal = mention.query.lower() in name.lower()
    return Offer(
        name,
        "",
        insert if directory else insert + " ",
        mention.start,
        mention.end,
        back=int(quoted and directory),
        enter=literal,
    )
