"""What is answered without the worker, and the commands that only the screen has."""

from __future__ import annotations

import shlex
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import one_line
from ccb.tunnel.transports.pipe import THIS_MACHINE
from ccb.tunnel.wire.dataclass import dataclass

from ..command_line.transport_choice import shown_host
from ..commands.config import setting_lines
from ..config.log import write_report
from ..config.policy import ledger_folder
from ..config.settings import settings_path
from ..config.settings_loading import load_settings
from ..files.copying import CopyOrder, get_order, put_order
from ..terminal.stdio import in_thread
from ..transcript.blocks import Level
from .registry import Choices, Copying, Live, OnScreen, OpenNext, Reply, ReplyRow, Rows, Text, command, everywhere, view
from .session_api import Place, SessionApi

if TYPE_CHECKING:
    from ..doctor.doctor_findings import Finding

_MAX_SAID = 80
_MAX_ANSWERS = 9


keys = view("keys", "list the keys with their ids, by which the setting `keys` changes them")

_MARKS = {"ok": "✓", "warn": "!", "block": "✗", "info": "·"}
_WORDS = {"ok": "ok:", "warn": "warning:", "block": "problem:", "info": "note:"}
_WHERE = {"laptop": "This laptop", "connection": "The connection", "host": "The host"}


@everywhere("doctor", "examine this laptop and the host; each finding with what helps")
async def doctor(api: SessionApi, _: str) -> Reply:
    return Live(_findings(api))


async def _findings(api: SessionApi) -> AsyncIterator[Rows]:
    from ..doctor import doctor
    from ..doctor.doctor_findings import summary

    yield Rows([ReplyRow("Examining …")], title=f"Doctor: this laptop and {api.info.host}")
    found: list[Finding] = []
    stopped = ""
    try:
        async for finding in doctor.attached_findings(api.laptop.sessions, api.environ):
            found.append(finding)
            yield Rows(_finding_rows(found, api.place), title=f"Doctor: {len(found)} findings …")
    except CcbError as error:
        stopped = f"The doctor did not come to an end: {error.what}"
    bad = [sum(each.state.value == name for each in found) for name in ("block", "warn")]
    yield Rows(_finding_rows(found, api.place), after=stopped, title=f"Doctor: {summary(*bad)}")


def _finding_rows(found: list[Finding], place: Place) -> list[ReplyRow]:
    marks = _MARKS if place is Place.SCREEN else _WORDS
    rows = []
    for each in found:
        fix = f"\n→ {each.fix}" if each.fix and each.state.value != "ok" else ""
        section = _WHERE.get(each.where, each.where)
        rows.append(ReplyRow(f"{marks[each.state.value]} {each.name}", f"{each.found}{fix}", section=section))
    return rows


@everywhere(
    "config [edit]", "show the settings of this laptop with their origin, or open the file", choices={"edit": ""}
)
async def config(api: SessionApi, argument: str) -> Reply:
    if argument == "edit" and api.place is Place.SCREEN:
        return OnScreen()
    settings = await in_thread(lambda: load_settings(api.environ))
    rows = [ReplyRow(name, f"{value}\n{origin}", section="Set") for name, value, origin in setting_lines(settings)]
    rows = rows or [ReplyRow("nothing", "No setting is set: all have their defaults.", section="Set")]
    path = settings_path(api.environ)
    if api.place is Place.SCREEN:
        does = f"opens {path} in your editor; it counts from the next run on"
        rows.append(ReplyRow("/config edit", does, section="Change"))
    return Rows(rows, title="Settings of this laptop")


_MAX_PROVIDER = 24  # characters; no key is shorter


@everywhere("login [PROVIDER]", "give this session another key of its model, or of a provider, from now on")
async def login(api: SessionApi, provider: str) -> Reply:
    log_in, words = api.laptop.log_in, provider.split()[:1]
    said = ""
    if len("".join(words)) > _MAX_PROVIDER:
        what = "/login takes the name of a provider, and then asks for the key without showing it."
        return Text(f"{what} If that was a key: it is on this screen, and nowhere else.", Level.WARNING)
    if log_in is not None:
        async with api.lent():
            said = await log_in("".join(words), api.transcript.facts.model)
    line = shlex.join(["ccb", "auth", "login", *words])
    return Text(said or f"No key was given. `{line}` in another terminal of this machine stores one, too.")


@dataclass(frozen=True)
class RecentHost:
    """A host and a directory. `ago_s`: seconds since the last model call there."""

    host: str
    directory: str
    ago_s: float | None = None
    state: str = ""
    here: bool = False

    @property
    def command(self) -> str:
        if self.host == THIS_MACHINE:
            return f"ccb --local {shlex.quote(self.directory)}"
        return f"ccb ssh {shlex.quote(f'{self.host}:{self.directory}')}"


@dataclass(frozen=True)
class Hosts(Rows):
    hosts: Sequence[RecentHost] = ()


async def recent_hosts(api: SessionApi) -> list[RecentHost]:
    from ccb.tunnel.openssh.kept_connections import all_kept

    from ..ledger.call_ledger import read_ledger

    none: list[tuple[str, str, float]] = []
    places = await in_thread(lambda: read_ledger(ledger_folder(api.environ), lambda ledger: ledger.places(), none))
    kept = {each.host for each in await in_thread(lambda: all_kept(api.environ))}
    found = [RecentHost(api.info.host, api.info.path, state=api.client.state.value, here=True)]
    for key, directory, last in places:
        host = shown_host(key)
        if (host, directory) != (api.info.host, api.info.path):
            state = "connection kept" if host in kept else ""
            found.append(RecentHost(host, directory, max(0.0, time.time() - last), state))
    return found


async def _host_places(api: SessionApi) -> Choices:
    return {f"{one_line(each.host)}:{one_line(each.directory)}": "" for each in await recent_hosts(api)}


@everywhere(
    "hosts [HOST:PATH]", "the hosts of your last sessions: sessions, or a command", asked=_host_places, takes_text=True
)
async def hosts(api: SessionApi, sought: str) -> Reply:
    found = await recent_hosts(api)
    rows = [ReplyRow(one_line(each.command), "here" if each.here else each.state) for each in found]
    alone = "No other host: sessions leave their trace with their first answer." if len(found) == 1 else ""
    return Hosts(rows, after=alone, sought=sought, hosts=found)


@everywhere("bug", "write a report of a problem to a file, without prompts and secrets")
async def bug(api: SessionApi, _: str) -> Reply:
    hello = api.client.hello
    facts = {
        "worker": f"Python {hello.python.cell} on {hello.platform.cell}, "
        f"protocol capabilities {len(hello.capabilities)}",
        "journal": hello.storage,
        "connection": api.client.state.value,
        "model": api.transcript.facts.model,
        "permission mode": api.transcript.facts.mode,
        "sandbox": api.transcript.facts.sandbox,
        "terminal": api.terminal(),
    }
    problems = tuple(api.problems())
    try:
        path = await in_thread(lambda: write_report(api.environ, facts, problems))
    except OSError as error:
        return Text(f"No report was written: {error.strerror or error}.", Level.WARNING)
    contents = "It has versions, state and the last errors, no prompts, no answers and no secrets."
    return Text([f"The report is in {path}, on the laptop.", f"{contents} Read it before you send it."])


# What only the screen has.


theme = view("theme [NAME]", "show or change the colours, now and in later runs")
status_line = view(
    "statusline [COMMAND, off]", "show the first line of a command of yours in the status line", choices={"off": ""}
)
transcript = view(
    "transcript [pager]", "the whole conversation on a page: search, copy; or in your PAGER", choices={"pager": ""}
)
shell = view(
    "shell [N, send]",
    "open a shell on the host, or return to one; send quotes the last command in it",
    choices={"send": "put the last command in a shell and its output into the input"},
)
vim = view("vim", "edit the input with vim's keys, or no longer")
paste = view("paste", "let the image in the laptop's clipboard go along with the prompt (also Ctrl+V)")


def _answers(api: SessionApi) -> Choices:
    answers = [each.strip() for each in reversed(api.transcript.answers)][:_MAX_ANSWERS]
    return {str(place): one_line(text[: 4 * _MAX_SAID])[:_MAX_SAID] for place, text in enumerate(answers, 1)}


copy = view("copy [N]", "copy the last answer (or the Nth from the end) to the clipboard", choices=_answers)


@command("reconnect", "connect now, while the connection is lost (also Alt+R)")
async def reconnect(api: SessionApi, _: str) -> Reply:
    if api.place is Place.SCREEN:
        return OnScreen()
    api.client.retry()
    return Text()


_NO_CONNECTION = Text("There is no connection for files here.", Level.WARNING)


@command("get REMOTE [LOCAL]", "copy a file or folder of the host to the laptop; /get stop ends copies")
async def get(api: SessionApi, argument: str) -> Reply:
    return _start(api, argument, get_order)


@command("put LOCAL [REMOTE]", "copy a file or folder of the laptop to the host")
async def put(api: SessionApi, argument: str) -> Reply:
    return _start(api, argument, put_order)


def _start(api: SessionApi, argument: str, order_of: Callable[[str, str], CopyOrder]) -> Reply:
    transfers = api.laptop.transfers
    if transfers is None:
        return _NO_CONNECTION
    if argument == "stop" and transfers.cancel_all():
        return Text()
    return Copying(transfers.start(order_of(argument, api.client.hello.cwd.raw)))


@command("open PATH", "fetch a file of the host, and show it with the laptop's viewer by a key or by /open alone")
async def open_(api: SessionApi, argument: str) -> Reply:
    fetched = api.laptop.fetched
    if fetched is None:
        return _NO_CONNECTION
    return OpenNext() if not argument else Copying(fetched.fetch(argument, api.client.hello.cwd.raw), shown=True)
