"""/new, /branch, /resume, /rewind, /move, /stop, /quit: another session, the past of this one, and its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire import client_requests as requests
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.arguments import Arguments
from ..transcript.blocks import Level
from ..transcript.notices import path_in
from .about_session import PastPrompt, PastPrompts, RewindPreview
from .registry import NOTHING, Choices, Leave, OnScreen, Reply, ReplyRow, Rows, Switch, Text, command
from .session_api import NextSession, Place, SessionApi

if TYPE_CHECKING:
    from ..connect.session_rows import SessionRow

_MAX_PROMPT = 200
_MAX_SAID = 80
_LEAST_ID, _SHORT_ID = 4, 8


@command("new", "begin a new session here; this one stays on the host", aliases=("clear",))
async def new(api: SessionApi, _: str) -> Reply:
    if api.only_here:
        return Text(api.only_here, Level.WARNING)
    return Switch(NextSession("", api.transcript.facts.model, api.transcript.facts.mode))


@command("branch", "go on in a copy of this session; this one stays on the host as it is now")
async def branch(api: SessionApi, _: str) -> Reply:
    if api.only_here:
        return Text(api.only_here, Level.WARNING)
    if api.client.hello.storage == "memory":
        return Text("This session is in memory only, and cannot be copied.", Level.WARNING)
    return Switch(NextSession(api.client.hello.session, copied=True))


@dataclass(frozen=True)
class Sessions(Rows):
    listed: Sequence[SessionRow] = ()


async def _session_ids(api: SessionApi) -> Choices:
    rows = await _listed(api)
    hello = api.client.hello
    return {
        row.session[:_SHORT_ID]: one_line(" · ".join(_said(row, hello.cwd.raw))[: 4 * _MAX_SAID])[:_MAX_SAID]
        for row in rows
        if row.session != hello.session
    }


async def _listed(api: SessionApi) -> list[SessionRow]:
    from ..connect.session_rows import with_prompts

    return with_prompts(await api.laptop.sessions.listed()) if api.laptop.sessions is not None else []


def _said(row: SessionRow, cwd: str) -> list[str]:
    """Return the title of a session, and its directory if that is not `cwd`."""
    return [row.prompt.cell[:_MAX_PROMPT] or "(commands only)", *([row.cwd.cell] if row.cwd.raw != cwd else [])]


@command(
    "resume [TEXT]",
    "go on with another session of this host: a list, or the ID of one",
    aliases=("sessions",),
    asked=_session_ids,
    takes_text=True,
)
async def resume(api: SessionApi, sought: str) -> Reply:
    if api.only_here or api.laptop.sessions is None:
        return Text(api.only_here, Level.WARNING)
    listed, here = await _listed(api), api.client.hello.session
    named = _named(listed, sought, by_number=api.place is not Place.SCREEN)
    if len(named) == 1 and named[0].session != here:
        return Switch(NextSession(named[0].session))
    if sought and api.place is not Place.SCREEN:
        why = f"{one_line(sought)} is not the number or the ID of a session: /resume lists them."
        return Text("This is the session that you are in." if named else why, Level.WARNING)
    rows = []
    for row in listed:
        mark = " (this one)" if row.session == here else ""
        title, *where = _said(row, api.client.hello.cwd.raw)
        facts = ", ".join([row.state, *where, row.session[:_SHORT_ID]])
        rows.append(ReplyRow(f"{title} ({facts}){mark}", choose="" if mark else f"/resume {row.session}"))
    return Sessions(rows, "There is no session.", "/resume N goes on with one.", sought=sought, listed=listed)


def _named(listed: Sequence[SessionRow], sought: str, *, by_number: bool) -> list[SessionRow]:
    if by_number and sought.isdigit() and 0 < int(sought) <= len(listed):
        return [listed[int(sought) - 1]]
    return [row for row in listed if len(sought) >= _LEAST_ID and row.session.startswith(sought.lower())]


# Going back.


def summary_line(part: str, point: PastPrompt) -> str:
    """Return the line that sums up the conversation `from` a prompt on, or what is before it (`up-to`)."""
    return f"/compact --{part} {one_line(point.id)[:_SHORT_ID]}"


@command("rewind [N]", "go back to before a prompt: files, conversation, or both; or sum up what is after or before it")
async def rewind(api: SessionApi, argument: str) -> Reply:
    if not argument and api.place is Place.SCREEN:
        return OnScreen()
    past = await api.read(Request(requests.REWIND_POINTS, None), PastPrompts)
    points = past.points
    number, _, scope = argument.partition(" ")
    if not number:
        rows = []
        for place, each in enumerate(points, 1):
            files = f" ({each.files} file{'s' if each.files != 1 else ''} changed since)" if each.files else ""
            rows.append(ReplyRow(f"{one_line(each.text)[:_MAX_PROMPT]}{files}", choose=f"/rewind {place}"))
        return Rows(rows, none="There is no prompt to go back to yet.", after="/rewind N says what going back changes.")
    if not number.isdigit() or not 0 < int(number) <= len(points):
        return Text(f"There is no prompt {one_line(number)[:20]}: /rewind lists them.", Level.WARNING)
    chosen = points[int(number) - 1]
    point = chosen.id
    if scope.strip() not in ("files", "conversation", "both"):
        lines = await _what_changes(api, point, number)
        if past.summaries:
            summed_up = f"{summary_line('from', chosen)}, what is before it: {summary_line('up-to', chosen)}"
            lines.append(f"To sum up this prompt and what follows: {summed_up}")
        return Text(lines)
    if scope.strip() == "files":
        await api.request(Request(requests.REWIND_FILES, requests.FileRewind(point)))
        return NOTHING
    back = requests.ConversationRewind(point, files=scope.strip() == "both")
    done = await api.read(Request(requests.REWIND_CONVERSATION, back), RewindPreview)
    return Text(["The prompt was:", *done.prompt.split("\n")]) if done.prompt else NOTHING


async def _what_changes(api: SessionApi, point: str, number: str) -> list[str]:
    preview = await api.read(Request(requests.REWIND_FILES, requests.FileRewind(point, dry_run=True)), RewindPreview)
    lines = []
    for each in preview.files:
        why = f", not possible: {one_line(each.why)}" if each.why else ""
        why += ", changed by something else since" if each.changedElsewhere else ""
        path = path_in(api.transcript.notices.cwd, each.path)
        lines.append(f"{one_line(each.does)} {path}, +{each.insertions} -{each.deletions}{why}")
    ways = ", ".join(f"/rewind {number} {scope}" for scope in ("files", "conversation", "both"))
    return [*(lines or ["No file would change."]), f"To go back to before this prompt: {ways}"]


@command("move HOST:/PATH", "take this session to another machine, or to a path on this one", takes_text=True)
async def move(api: SessionApi, place: str) -> Reply:
    from ..command_line.parser import arguments_at

    why = "Wait until the agent is done, or interrupt it." if api.transcript.running else api.only_here
    if not why and api.client.hello.storage == "memory":
        why = "This session is in memory only, and cannot move."
    if why:
        return Text(why, Level.WARNING)
    arguments_at(Arguments(command="move"), place.strip())
    return Leave(moves_to=place.strip())


@command("stop", "end the session on the host; what runs there is killed")
async def stop(api: SessionApi, _: str) -> Reply:
    return Leave(stops=True)


@command("quit", "leave; the session keeps running on the host", aliases=("exit",))
async def quit_(api: SessionApi, _: str) -> Reply:
    return Leave()
