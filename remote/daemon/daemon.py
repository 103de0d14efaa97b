"""The daemon of one session: accepts clients, grants epochs, ends when nobody needs it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time

from ccb import __version__
from ccb.tunnel.wire import (
    Applied,
    Attach,
    Attached,
    Credit,
    Data,
    End,
    Fenced,
    Fetch,
    FrameError,
    Head,
    Input,
    Json,
    Refused,
    SessionOptions,
    Snapshot,
    Stop,
    encode_frame,
)
from ccb.tunnel.wire.records import DriverRecord, WorkerRecord

from ..journal.journal import Journal, JournalError
from ..journal.summary import JournalSummary
from ..session.inputs import TooManyInputs
from ..session.session import Session
from ..sessions.fencing import write_lease
from ..sessions.identity import own_identity
from ..sessions.paths import SessionPaths
from ..sessions.refusal import Refusal
from ..sessions.registry import created_at
from ..sessions.session_files import log_to
from ..sessions.sockets import stranger
from ..sessions.summary import SummaryFile
from ..system.host import LocalHost
from ..system.process import stop_marked
from ..system.threads import Threads
from ..tools.registry import close_context, make_context
from .assembly import SessionHost, begin_session, resume_session
from .clients import Client, farewell, fence
from .hello import hello_frame, read_lease
from .model_streams import Calls, ModelLink
from .pages import Pages
from .start import Launch
from .upkeep import keep_reachable

log = logging.getLogger(__name__)

GRACE_S = 24 * 3600.0
"""How long a session works or waits for an answer without any client."""

IDLE_S = 30 * 60.0
"""How long the worker of a session stays that has no client and nothing to do; the journal stays."""

_TRY_AGAIN_S = 1.0  # for inputs that found no room
_UNUSED_S = 20.0  # a session that nobody ever asked anything
_LOOK_S = 5.0
_GOODBYE_S = 10.0  # for clients to take the last events


def run_daemon(launch: Launch, first: socket.socket) -> int:
    """Serve until the session ends. Return the exit status. `first` is a client that has its hello."""
    log_to(launch.where.file("daemon.log"))
    try:
        return asyncio.run(_serve(launch, first))
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        log.error("%s: no more processes are allowed here", error)  # at the latest when the event loop is closed
        _refuse(first, Refused("no_processes", str(error), {}))
        return 1
    except JournalError as error:  # before anybody was attached
        log.error("the session cannot be taken up: %s", error)
        _refuse(first, Refused("no_storage", str(error), {"tried": [launch.where.state]}))
        return 1


def _refuse(client: socket.socket, frame: Refused) -> None:
    """The answer to the attach of the first client, when there is no session to attach to."""
    with contextlib.suppress(OSError):
        client.settimeout(1)
        client.sendall(b"".join(encode_frame(frame)))


async def _serve(launch: Launch, first: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Threads())
    await loop.run_in_executor(None, int)  # the first thread, while there can be one
    grace_s = GRACE_S if launch.grace_s is None else launch.grace_s
    daemon = Daemon(launch.where, launch.facts, grace_s, IDLE_S if launch.idle_s is None else launch.idle_s)
    loop.add_signal_handler(signal.SIGINT, daemon.stop)  # `ccb stop`
    loop.add_signal_handler(signal.SIGTERM, daemon.leave)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    await daemon.run(launch.listener, first)
    return 0


class Daemon:
    """Owner of the session and of the connections to it."""

    def __init__(
        self, where: SessionPaths, facts: dict[str, object], grace_s: float = GRACE_S, idle_s: float = IDLE_S
    ) -> None:
        self.journal = Journal(where.file("journal.jsonl"))
        self._where = where
        self._facts = facts
        self._grace_s = grace_s
        self._idle_s = min(idle_s, grace_s) if where.state else grace_s  # nobody could take it up again
        self._epoch, self._driver_name = read_lease(where.state)
        self._done = True  # the last driver said so, or nobody has driven here yet
        self._finisher: Client | None = None
        self._clients: set[Client] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pages = Pages(self.journal, lambda: self._epoch)
        self._driver: Client | None = None
        self._calls = Calls()
        self._stopping = asyncio.Event()
        self._stopped = False  # as somebody wanted, so it is over for its clients too
        self._ending = False
        self._changed = asyncio.Event()
        self._alone_since = self._busy_until = time.monotonic()
        self._session: Session | None = None  # until a driver begins it
        self._begun = asyncio.Event()
        token = "" if where.state else str(facts["session"])  # known to who finds what a killed worker has left
        self._context = make_context(str(facts["cwd"]), where.file("outputs"), token)
        self._summary = SummaryFile(
            where.state,
            {
                "session": facts["session"],
                "cwd": os.path.realpath(self._context.cwd),
                "created": created_at(where.state),
                "socket": where.socket,
                **own_identity(),
                **self._identity(),
            },
        )
        if not where.state:
            facts["summary"] = self._summary.fields
        self._left_behind = ""
        if self.journal.seq:
            session, self._left_behind = resume_session(self._host())
            session.log.emit(WorkerRecord(**self._identity()))
            self._summary.update(created=session.log.summary.created or self._summary.fields["created"])
            self._has_begun(session)
            self.changed()

    def _host(self) -> SessionHost:
        return SessionHost(str(self._facts["session"]), self.journal, self, self._calls, self._context, __version__)

    def _has_begun(self, session: Session) -> None:
        self._session = session
        self._begun.set()

    @property
    def _state(self) -> str:
        return self._session.state if self._session is not None else "idle"

    def changed(self) -> None:
        """Watchers of the session."""
        known = self._session.log.summary if self._session is not None else JournalSummary()
        self._summary.update(
            state=self._state,
            updated=round(time.time(), 1),
            prompt=known.prompt,
            prompts=known.prompts,
            driver=self._driver_name,
            away=self._driver is None,
            viewers=sum(1 for client in self._clients if client.role == "viewer"),
            **({} if self._where.state else {"bytes": self.journal.size}),
        )

    def _identity(self) -> Json:
        """For the journal: which worker goes on from here, and the mark of the processes it starts."""
        host = self._context.host
        mark = host.session if isinstance(host, LocalHost) else None
        return {"pid": os.getpid(), "bundle": self._facts["bundle"], "mark": mark}

    def stop(self) -> None:
        """End the session now."""
        self._stopped = True
        self._stopping.set()

    def leave(self) -> None:
        """End this worker, as when the host goes down: its clients come back, and the next one goes on from the journal."""
        self._stopping.set()

    async def run(self, listener: socket.socket, first: socket.socket) -> None:
        """Serve until the session ends, then leave nothing behind."""
        loop = asyncio.get_running_loop()
        first.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=first)
        self._add(reader, writer, None)
        listener.setblocking(False)
        server = await asyncio.start_unix_server(self._accept, sock=listener)
        if self._left_behind:  # by a worker that was killed: what it had started must not go on beside us
            await stop_marked(self._left_behind)
            self._context.spill.sweep()
        turns = loop.create_task(self._turns())
        watch = loop.create_task(self._watch())
        stop = loop.create_task(self._stopping.wait())
        broken = loop.create_task(self.journal.broken.wait())
        upkeep = loop.create_task(keep_reachable(self._where, self._accept))
        try:
            await asyncio.wait([turns, watch, stop, broken], return_when=asyncio.FIRST_COMPLETED)
            self._stopped = self._stopped or (turns.done() and turns.exception() is None)
        finally:
            self._ending = True
            if self._session is not None:
                self._session.broker.suspend()
            server.close()
            for task in (tasks := (turns, watch, stop, broken, upkeep)):
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.error("the session ended in a bug", exc_info=ended)
            await self._pages.close()
            await close_context(self._context)
            await self.journal.close()
            await self._dismiss()
            if self._session is not None:
                self._summary.update(state="ended", driver="", viewers=0)
                self._summary.remove_owner()
                if self._stopped:  # who comes late finds that nobody drives
                    write_lease(self._where.file("epoch"), self._epoch, "")

    async def _turns(self) -> None:
        """Run turns until a driver has said that the session may end after them, and nobody else is attached."""
        await self._begun.wait()
        while self._session is not None:
            await self._session.turns.run()
            finisher, self._finisher = self._finisher, None
            if not any(client.role for client in self._clients if client is not finisher):
                return
            if self._driver is None or self._driver is finisher:
                self._done = True  # when the others have left, too: one whose connection is dead leaves late
            if finisher in self._clients:
                self.detached(finisher, done=True)
                farewell(finisher, "the session goes on for the others")
            self._session.turns.go_on()

    async def _dismiss(self) -> None:
        for client in self._clients:
            if self._stopped and client.role:
                farewell(client, "the session has ended")
            else:
                client.close("the worker has ended")
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=_GOODBYE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if why := stranger(writer.get_extra_info("socket"), self._where.socket):
            log.warning("%s has connected, and was sent away", why)
            writer.close()
            return
        seq = self.journal.durable
        greeting = hello_frame(self._facts, epoch=self._epoch, seq=seq, state=self._state, driver=self._driver_name)
        self._add(reader, writer, greeting)

    def _add(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: Json | None) -> None:
        client = Client(self, reader, writer, greeting)
        self._clients.add(client)
        task = asyncio.get_running_loop().create_task(client.run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._changed.set()

    async def _watch(self) -> None:
        """Returns when nobody needs the session any more."""
        while True:
            self._changed.clear()
            if self._clients:
                await self._changed.wait()
                continue
            left = self._due() - time.monotonic()
            if left <= 0:
                log.info("no client for %.0f s: the worker ends", time.monotonic() - self._alone_since)
                return
            # what the session does changes its patience, and nobody tells
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), min(left, _LOOK_S))

    def _due(self) -> float:
        """The monotonic second at which a worker without clients ends, as things stand."""
        session, alone = self._session, self._alone_since
        if session is None:
            return alone  # never begun: nothing to come back to
        if session.state != "idle" or self._context.shells.busy:
            self._busy_until = time.monotonic()
            return alone + self._grace_s
        if self._done:
            return alone
        idle_s = self._idle_s if session.has_input else min(_UNUSED_S, self._idle_s)
        return min(max(alone, self._busy_until) + idle_s, alone + self._grace_s)

    def attached(self, client: Client, frame: Attach) -> None:
        """Grant or refuse; see Attach."""
        if self._ending:
            client.close("the worker is ending")
            return
        if frame.have > self.journal.seq:
            text = "the laptop has seen event %d, the journal ends at %d" % (frame.have, self.journal.seq)
            client.close(text, Refused("bad_attach", text))
            return
        if frame.role == "driver" and not self._grant(client, frame):
            return
        role = "driver" if frame.role == "driver" else "viewer"
        client.control(Attached(self._epoch, role, self.journal.durable, self._driver_name))
        client.admit(role, self._epoch, self._skip(client, frame))
        if self._session is not None and self._session.options.partial_messages:
            for key, body in self._session.log.partial.bodies():
                client.progress(self.journal.seq, key, body)
        who = str(frame.options.get("client", ""))
        if frame.nonce and (who or client.role == "driver"):  # a viewer without a name has asked for nothing
            client.line = ModelLink(client.epoch, who, frame.nonce, client.control, client.bulk)
        if client.role == "driver":
            self._driver = client
            if self._session is not None:
                self._session.broker.ask_driver_again()
        if client.line is not None:
            (self._calls.attach if client.role == "driver" else self._calls.back)(client.line)
        self.changed()

    def _skip(self, client: Client, frame: Attach) -> int:
        """The event after which the client is sent everything; it is told what it has to know of those it is not sent."""
        start = self.journal.tail_start(frame.tail) if frame.tail else 0
        if start <= frame.have or self._session is None:
            return frame.have
        client.control(Snapshot(self._epoch, start, self._session.snapshot(start)))
        return start

    def fetch(self, client: Client, frame: Fetch) -> None:
        """A client asks for earlier events."""
        self._pages.fetch(client, frame)

    def _grant(self, client: Client, frame: Attach) -> bool:
        if frame.epoch <= self._epoch:
            client.close("fenced", Fenced(self._epoch, self._driver.name if self._driver else ""))
            return False
        try:
            options = SessionOptions.from_json(frame.options)
            session = self._session
            if session is not None:
                given = frame.options if set(frame.options) - {"client"} else session.launch_of(options.client)
                if given is not None:
                    session.relaunch(given)
            else:
                facts = {"cwd": self._facts["cwd"], **self._identity()}
                self._has_begun(begin_session(self._host(), options, facts))
            write_lease(self._where.file("epoch"), frame.epoch, options.client)
        except Refusal as refusal:
            client.close(refusal.message, Refused(refusal.code, refusal.message, refusal.data))
            return False
        except (FrameError, ValueError) as error:
            client.close(str(error), Refused("bad_attach", str(error)))
            return False
        except (JournalError, OSError) as error:
            client.close(str(error), Refused("no_storage", str(error), {"tried": [self._where.state]}))
            return False
        client.name = self._driver_name = options.client
        self._epoch = frame.epoch
        self._done = False
        if session is not None:
            with contextlib.suppress(JournalError):  # the driver will see for itself that nothing can be written
                session.log.emit(DriverRecord(client.name, frame.epoch))
                self.journal.flush_soon()
        fence(self._driver, self._clients, self._epoch, client.name)
        return True

    def received(self, client: Client, frame: Input | Head | Data | End | Credit | Stop) -> None:
        """A frame of the driver."""
        if isinstance(frame, Input):
            if not self._ending:  # what is not confirmed comes again
                self._take_input(client, frame)
        elif isinstance(frame, Stop):
            if frame.finish:
                self._finisher = client
                if self._session is not None:
                    self._session.turns.finish()
            else:
                self.stop()
        elif client.line is not None:
            self._calls.handle(client.line, frame)

    def _take_input(self, client: Client, frame: Input) -> None:
        """Apply an input, or keep it until there is room for it. Prompts stay in their order; what ends a turn overtakes them."""
        if (client.late and frame.body.get("type") == "user") or not self._applied(client, frame):
            client.late.append(frame)
            if len(client.late) == 1:
                asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._take_late, client)

    def _take_late(self, client: Client) -> None:
        late, client.late = client.late, []
        for frame in late if client is self._driver else ():
            self.received(client, frame)

    def _applied(self, client: Client, frame: Input) -> bool:
        """Whether an input is settled: applied, or refused aloud."""
        session = self._session
        assert session is not None, "a driver has begun it"
        try:
            client.applied_after(session.take_input(frame.id, frame.body), frame.id)
        except TooManyInputs:
            return False
        except JournalError as error:
            if not session.refuse_input(frame.body, error):
                return False
            client.control(Applied(self._epoch, frame.id))
        return True

    def detached(self, client: Client, *, done: bool) -> None:
        """A client leaves, as it says itself; with `done` the worker may end when it has nothing to do."""
        if client.line is not None:
            self._calls.forget(client.line)
        if self._driver is not client:
            return
        self._done = done and bool(self._where.state)  # from memory nobody could take it up again
        self._driver_name = ""
        self.changed()
        write_lease(self._where.file("epoch"), self._epoch, "")
        fence(None, self._clients, self._epoch, "")

    def reads(self, client: Client) -> bool:
        """Whether a client reads an answer of the model."""
        return client.line is not None and self._calls.uses(client.line)

    def stuck(self, client: Client) -> None:
        """One that does not drive reads an answer and does not move: who drives asks again."""
        if client.line is not None:
            self._calls.withdraw(client.line)

    def left(self, client: Client) -> None:
        """A connection is over."""
        self._clients.discard(client)
        if self._driver is client:
            self._driver = None
        if client.line is not None:
            self._calls.detach(client.line)
        if client.role and not any(each.role for each in self._clients):  # who only asks does not keep it alive
            self._alone_since = time.monotonic()
        if client.role:
            self.changed()
        self._changed.set()

    def progress(self, key: str, body: Json, *, driver_only: bool = False) -> None:
        """Watchers of the session."""
        for client in self._clients:
            if client is self._driver or not driver_only:
                client.progress(self.journal.seq, key, body)
