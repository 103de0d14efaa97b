"""Prints the replies of slash commands as lines: lists with numbers to choose, and how copies go."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from pydantic import ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.control_protocol import RequestFailed

from ..files.copying import Transfer, outcome, progress_line
from ..files.fetched_files import FetchedFile
from ..slash_commands.registry import Copying, LaptopCommand, Leave, Live, OpenNext, Reply, ReplyRow, Rows, Switch, Text
from ..slash_commands.session_api import SessionApi

_EVERY_S = 10.0
_COLUMNS = 78
_HELP = """\
Type a prompt and press Enter. A line that ends with a backslash goes on in the next one.
! COMMAND runs a command on the host. Ctrl+C interrupts the agent; pressed while it is idle, it leaves.
After a list, a number alone chooses one of its rows. Other commands are the agent's own."""


class LineReplies:
    def __init__(self, api: SessionApi, write: Callable[[str], None]) -> None:
        self._api = api
        self._write = write
        self._offered: Sequence[str] = ()  # the command lines of the rows that were printed last
        self._telling: set[asyncio.Task[None]] = set()

    @property
    def busy(self) -> bool:
        return bool(self._telling)

    def cancel_newest(self) -> bool:
        transfers = self._api.laptop.transfers
        return transfers is not None and transfers.cancel_newest() is not None

    async def close(self) -> None:
        telling = list(self._telling)
        for each in telling:
            each.cancel()
        await asyncio.gather(*telling, return_exceptions=True)

    def meant(self, line: str) -> str:
        """Return the command line of the row whose number was typed right below its list, and any other line as it
        is."""
        offered, self._offered = self._offered, ()
        number = int(line) if line.isdigit() and len(line) < 4 else 0
        return (offered[number - 1] if 0 < number <= len(offered) else "") or line

    async def answer(self, command: LaptopCommand, argument: str) -> Switch | Leave | None:
        """Run a command, and print its reply. Return the reply if the person leaves with it."""
        if command.name == "help":
            for line in _HELP.split("\n"):
                self._write(line)
        try:
            reply = await command.run(self._api, argument)
            if isinstance(reply, Switch | Leave):
                return reply
            await self._print(reply)
        except CcbError as error:
            self._say(f"error: {error.what}. {error.do}".rstrip())
        except RequestFailed as error:
            self._say(f"error: {HostText(str(error))}")
        except ValidationError:
            self._say("error: the worker's answer cannot be read")
        return None

    async def _print(self, reply: Reply) -> None:
        match reply:
            case Text() if reply.text:
                self._api.transcript.notice(reply.lines, reply.level)
            case Rows():
                self._print_rows(reply)
            case Live(updates=updates):
                printed: list[ReplyRow] = []
                async for rows in updates:
                    self._print_list([each for each in rows.rows if each not in printed])
                    printed = [*rows.rows]
                    last = rows
                self._say(last.after or last.title)
            case Copying():
                self._start(self._tell(reply))
            case OpenNext():
                self._start(self._open())

    def _print_rows(self, reply: Rows) -> None:
        if not reply.rows:
            self._say(reply.none)
            return
        numbers = not reply.title
        self._offered = [each.choose for each in reply.rows] if numbers else ()
        self._print_list(reply.rows, numbers=numbers)
        if reply.after:
            self._say(reply.after)

    def _print_list(self, rows: Sequence[ReplyRow], *, numbers: bool = False) -> None:
        for number, row in enumerate(rows, 1):
            first, *more = row.line.split("\n")
            for line in (f"{number}: {first}" if numbers else first, *(f"  {each}" for each in more)):
                self._write(line)

    def _say(self, text: str) -> None:
        self._write(f"ccb: {text}")

    # Files.

    def _start(self, telling: Awaitable[None]) -> None:
        task = asyncio.ensure_future(telling)
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, copying: Copying) -> None:
        transfer = copying.transfer
        self._say(f"copying {transfer.name}; Ctrl+C breaks it off while the agent is idle")
        while not (await asyncio.wait({transfer.task}, timeout=_EVERY_S))[0]:
            self._say(progress_line(transfer.name, transfer.progress, _COLUMNS))
        found = await self._ended(transfer, shown=copying.shown)
        if found is None:
            self._say(f"{transfer.name}: broken off; the same command goes on where it ended")
        elif isinstance(found, CcbError):
            self._say(f"error: {found.what}. {found.do}")
        elif isinstance(found, FetchedFile):
            self._offer(found)
        else:
            first, *more = transfer.done_text(found)
            for line in (f"ccb: {first}", *more):
                self._write(line)

    async def _ended(self, transfer: Transfer, *, shown: bool) -> FetchedFile | str | CcbError | None:
        fetched = self._api.laptop.fetched
        return await (fetched.arrived(transfer) if shown and fetched is not None else outcome(transfer))

    async def _open(self) -> None:
        fetched = self._api.laptop.fetched
        file = fetched.take_first() if fetched is not None else None
        if fetched is None or file is None:
            self._say("no file waits to be opened: /open PATH fetches one of the host")
            return
        try:
            self._say(await fetched.open_file(file))
        except CcbError as error:
            self._say(f"error: {error.what}. {error.do}")
        if fetched.offered:
            self._offer(fetched.offered[0])

    def _offer(self, file: FetchedFile) -> None:
        fetched = self._api.laptop.fetched
        assert fetched is not None
        before = fetched.offered.index(file) if file in fetched.offered else 0
        way = f"/open alone opens it{f' with {fetched.viewer}' if fetched.viewer else ''}"
        self._say(f"{file.text}; {way}{f', after the {before} before it' if before else ''}")
