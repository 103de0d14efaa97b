"""The attached clients of a session, who of them drives and who watches, and how long the daemon stays without any."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from ccb.tunnel.wire import frames
from ccb.tunnel.wire.control_protocol import CAN_USE_TOOL
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import DriverRecord, to_page
from ccb.tunnel.wire.messages import ControlRequest, ControlResponse, UserMessage, parse_message
from ccb.tunnel.wire.ndjson import FrameDecoder, dump, to_bytes
from ccb.tunnel.wire.outside_messages import COMMAND, TELL_SESSION
from ccb.tunnel.wire.session_options import SessionOptions

from ..permissions.modes import WORKSPACE
from ..session.session import Session
from ..session_store.client_outbox import ClientOutbox
from ..session_store.journal import Journal, NotKept
from ..session_store.refusal import HostRefusal
from ..session_store.session_files import DriverLease
from ..system.deadline import first_of, in_thread, within
from ..tools.tool_contract import ToolContext
from .client_channels import ClientChannels, ServeChannel
from .model_streams import ModelStreams, StreamLink
from .ports import PortWatch

if TYPE_CHECKING:
    from ..tools.search_process import NameFinder

log = logging.getLogger(__name__)

_TRY_AGAIN_S = 1.0  # until inputs that found no room are tried again
_GOODBYE_S = 10.0  # for clients to read the last events
PING_AFTER_S = 5.0  # seconds of silence after which a client is sent a ping
SILENT_S = 15.0  # seconds of silence after which a client is detached
_BATCH = 128 * 1024  # bytes written before the socket is waited for
_MAX_PAGE = 512 * 1024  # bytes
_MAX_PAGES = 32  # pages that one client may ask for before they are sent


class AttachedClient:
    """One connection. Frames that may change the session go to `take`, those of model calls to `calls`, also those of a
    viewer who made them as driver. `late` are inputs for which there was no room, and the stop behind them."""

    def __init__(
        self,
        journal: Journal,
        calls: ModelStreams,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        greeting: Json | None,
        output_of: Callable[[frames.ReadOutput], Json],
    ) -> None:
        self.name = ""
        self.outbox = ClientOutbox(journal)
        self.channels: ClientChannels | None = None
        self.model_link: StreamLink | None = None
        self.late: list[frames.Input | frames.Stop] = []  # at most as many as a laptop has unconfirmed
        self._journal, self._calls, self._reader = journal, calls, reader
        self._writer, self._greeting, self._output_of = writer, greeting, output_of
        writer.transport.set_write_buffer_limits(0)  # so that `drain` returns when everything has left this process
        self._pages: asyncio.Queue[frames.Fetch | frames.ReadOutput] = asyncio.Queue(_MAX_PAGES)
        self._heard = time.monotonic()

    async def run(self, take: Callable[[AttachedClient, frames.Frame], Awaitable[None]]) -> None:
        """Serve until the client leaves, falls silent or is closed."""
        try:
            for error in await first_of(self._read(take), self._write(), self._watch(), self._send_pages()):
                if not isinstance(error, ConnectionError):
                    log.error("client %s: %r", self.name, error)
        finally:
            self.outbox.close()
            self._writer.transport.abort()  # free the unsent bytes of a peer that reads nothing

    async def _read(self, take: Callable[[AttachedClient, frames.Frame], Awaitable[None]]) -> None:
        decoder = FrameDecoder()
        while True:
            data = await self._reader.read(65536)
            if not data:
                return
            self._heard = time.monotonic()
            try:
                for frame in decoder.feed(data):
                    if self._counts(frame):
                        await take(self, frame)
                    if isinstance(frame, frames.Detach):
                        return
            except frames.FrameError as error:
                log.error("the client sent something that is not a frame: %s", error.reason)
                text = "the laptop sent something that is not a frame: %s" % error.reason
                self.outbox.close(frames.Refused("bad_attach", text))
                await asyncio.sleep(1)  # time to write the refusal; the connection ends when either task ends
                return

    def _counts(self, frame: frames.Frame) -> bool:
        """Return whether a frame may change the session, by role and epoch. Act on the other frames."""
        role = self.outbox.role
        if isinstance(frame, frames.Attach):
            return not role
        if isinstance(frame, (frames.Detach, frames.FindNames)):
            return bool(role)
        if isinstance(frame, frames.Input) and role == "viewer":
            return frame.epoch == 0  # it is meant as a viewer's, and is not the late one of an earlier driver
        if isinstance(frame, (frames.Input, frames.Stop)):
            return role == "driver" and frame.epoch == self.outbox.epoch
        if isinstance(frame, frames.Ping):
            self.outbox.control(frames.Pong(self.outbox.epoch, frame.n))
        elif isinstance(frame, (frames.Fetch, frames.ReadOutput)) and role:
            if self._pages.full():
                log.warning("client %s asked for too many pages of events or output, and is detached", self.name)
                self.outbox.close()
            else:
                self._pages.put_nowait(frame)
        elif isinstance(frame, (frames.ChannelOpen, frames.ChannelData, frames.ChannelCredit, frames.ChannelEnd)):
            if self.channels is not None:
                self.channels.take(frame, self.outbox)
        elif (
            isinstance(frame, (frames.CallHead, frames.CallData, frames.CallEnd, frames.Credit))
            and self.model_link is not None
        ):
            self._calls.handle(self.model_link, frame)
        return False

    async def _send_pages(self) -> None:
        while True:
            frame = await self._pages.get()
            if isinstance(frame, frames.ReadOutput):
                body = self._output_of(frame)
                await self.outbox.bulk(frames.OutputRead(self.outbox.epoch, frame.request, body))
                continue
            size = min(frame.most, _MAX_PAGE)
            try:
                records = await in_thread(self._journal.page, frame.before, size)
            except OSError as error:
                log.error("earlier events cannot be read: %s", error)
                records = []
            await self.outbox.bulk(frames.Past(self.outbox.epoch, frame.request, to_page(records)))

    async def _watch(self) -> None:
        """Return when a client stays silent. A worker that was suspended first reads what arrived meanwhile."""
        step = PING_AFTER_S / 5
        asked, pings = 0.0, 0
        while True:
            before = time.monotonic()
            await asyncio.sleep(step)
            now = time.monotonic()
            if now - before > step + PING_AFTER_S:
                self._heard = max(self._heard, now - SILENT_S + PING_AFTER_S)
                asked = 0.0
            quiet = now - self._heard
            if quiet >= SILENT_S:
                log.info("client %s was silent for %.0f s and is detached", self.name, quiet)
                return
            if quiet >= PING_AFTER_S and now - asked >= PING_AFTER_S:
                asked, pings = now, pings + 1
                self.outbox.control(frames.Ping(self.outbox.epoch, pings))

    async def _write(self) -> None:
        if self._greeting is not None:
            self._writer.write(to_bytes(dump(self._greeting)) + b"\n")
        outbox = self.outbox
        while True:
            changed = self._journal.changed
            outbox.wake.clear()
            size = 0
            while size < _BATCH:
                line = outbox.next_line()
                if line is None:
                    break
                self._writer.write(line)
                size += len(line)
            if size:
                await self._writer.drain()
                continue
            if outbox.closing:
                await self._writer.drain()
                return
            await first_of(outbox.wake.wait(), changed.wait())


class AttachedClients:
    """Accepts clients, grants epochs, fences older drivers, and gives the session what the driver sends. `begin` makes
    the session of the first driver, and raises ValueError or NotKept."""

    def __init__(
        self,
        journal: Journal,
        context: ToolContext,
        lease: DriverLease,
        lifetime: Lifetime,
        calls: ModelStreams,
        begin: Callable[[SessionOptions], Session],
        changed: Callable[[], None],
        stop: Callable[[], None],
        channel_kinds: Mapping[str, ServeChannel],
        ports: PortWatch,
    ) -> None:
        self.driver: AttachedClient | None = None
        self.session: Session | None = None
        self.outboxes: set[ClientOutbox] = set()
        self._journal, self._context, self._lease, self._lifetime = journal, context, lease, lifetime
        self._calls, self._begin, self._changed, self._stop = calls, begin, changed, stop
        self._channel_kinds, self.ports = channel_kinds, ports
        self._channels: dict[object, ClientChannels] = {}  # by the name of their client
        self.names: NameFinder | None = None
        self._clients: dict[AttachedClient, asyncio.Task[None]] = {}
        self._finisher: AttachedClient | None = None  # the driver that asked the session to end after its turns
        self.ending = False  # the daemon is: attaches and inputs are refused

    def add(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, greeting: Json | None) -> None:
        """Serve a new connection. Send `greeting` as its hello; with None the client has it already."""
        client = AttachedClient(self._journal, self._calls, reader, writer, greeting, self._output_of)
        self.outboxes.add(client.outbox)
        serving = asyncio.get_running_loop().create_task(client.run(self._take))
        serving.add_done_callback(lambda _: self._left(client))
        self._clients[client] = serving
        self._lifetime.count(len(self._clients))

    async def _take(self, client: AttachedClient, frame: frames.Frame) -> None:
        if isinstance(frame, frames.Attach):
            if self.session is not None or frame.options.get("sandbox") == WORKSPACE:
                await self._know_cages()
            self._attach(client, frame)
            if client.channels is not None:
                client.channels.attached(client.outbox, frame.channels)
        elif isinstance(frame, frames.Detach):
            self._detach(client, done=frame.done)
        elif isinstance(frame, frames.FindNames):
            self._find_names(client, frame)
        elif isinstance(frame, frames.Input):
            if frame.body.get("type") == "control_request":
                await self._know_cages()
            self._take_input(client, frame)
        elif isinstance(frame, frames.Stop):
            self._take_stop(client, frame)

    async def _know_cages(self) -> None:
        """Ask which cages there are, before a frame that depends on it: that would hold all clients up."""
        if self._context.host.known_cages() is None:
            await in_thread(self._context.host.cages)

    def _attach(self, client: AttachedClient, frame: frames.Attach) -> None:
        if self.ending:
            client.outbox.close()
            return
        if frame.have > self._journal.seq:
            text = "the laptop has seen event %d, the journal ends at %d" % (frame.have, self._journal.seq)
            client.outbox.close(frames.Refused("bad_attach", text))
            return
        client.name = str(frame.options.get("client", ""))
        if frame.role == "driver" and not self._grant(client, frame):
            return
        role = "driver" if frame.role == "driver" else "viewer"
        client.outbox.control(frames.Attached(self._lease.epoch, role, self._journal.durable, self._lease.driver))
        client.outbox.admit(role, self._lease.epoch, self._skip(client, frame))
        session = self.session
        if session is not None and session.options.partial_messages:
            for key, body in session.log.partial.bodies():
                client.outbox.progress(self._journal.seq, key, body)
        name = client.name or client  # one without a name does not come back
        self._channels = {key: each for key, each in self._channels.items() if not each.idle}
        client.channels = self._channels.setdefault(name, ClientChannels(self._channel_kinds))
        # Also if there are none: a worker that was killed may have had some.
        client.outbox.control(frames.Listening(self._lease.epoch, self.ports.body))
        self._link_calls(client, frame)
        self._changed()

    def _link_calls(self, client: AttachedClient, frame: frames.Attach) -> None:
        """Let model calls use the client's link: all if it drives, else only those that it made as driver."""
        outbox, name = client.outbox, client.name
        drives = outbox.role == "driver"
        if frame.nonce and (name or drives):  # a viewer without a name cannot have made calls
            client.model_link = StreamLink(
                outbox.epoch, name, frame.nonce, outbox.control, outbox.bulk, deltas=frame.deltas, primed=frame.primed
            )
        if drives:
            self.driver = client
            if self.session is not None:
                self.session.broker.ask_driver_again()
                self.session.inputs.wake()
        if client.model_link is not None:
            (self._calls.attach if drives else self._calls.back)(client.model_link)

    def _skip(self, client: AttachedClient, frame: frames.Attach) -> int:
        """Return after which event the client is sent all. A snapshot replaces the earlier ones."""
        start = self._journal.tail_start(frame.tail) if frame.tail else 0
        if start <= frame.have or self.session is None:
            return frame.have
        client.outbox.control(frames.Snapshot(self._lease.epoch, start, self.session.snapshot(start)))
        return start

    def _grant(self, client: AttachedClient, frame: frames.Attach) -> bool:
        """Make the client the driver, or refuse it with the reason. Return whether it drives."""
        if frame.epoch <= self._lease.epoch:
            client.outbox.close(frames.Fenced(self._lease.epoch, self.driver.name if self.driver else ""))
            return False
        session = self.session  # None: the session begins with this driver
        try:
            options = SessionOptions.from_json(frame.options)
            if session is None:
                self.session = self._begin(options)
            else:
                given = frame.options if set(frame.options) - {"client"} else session.launches.of_client(options.client)
                if given is not None:
                    session.relaunch(given)
        except HostRefusal as refusal:
            client.outbox.close(frames.Refused(refusal.code, refusal.message, refusal.data))
            return False
        except (frames.FrameError, ValueError) as error:
            client.outbox.close(frames.Refused("bad_attach", str(error)))
            return False
        except (NotKept, OSError) as error:
            tried = [os.path.dirname(self._journal.path)]
            client.outbox.close(frames.Refused("no_storage", str(error), {"tried": tried}))
            return False
        if session is not None and self._finisher is not None:  # an earlier driver; if it comes back it asks again
            self._finisher = None
            session.turns.go_on()
        self._lease.grant(frame.epoch, options.client)
        self._lifetime.released = self._lifetime.waits = False
        if session is not None:
            with contextlib.suppress(NotKept):  # the next turn reports that nothing can be written
                session.log.emit(DriverRecord(client.name, frame.epoch))
                self._journal.flush_soon()
        if self.driver is not None:
            self.driver.outbox.role = "viewer"
        self._fence(client.name)
        return True

    def _fence(self, by: str) -> None:
        for outbox in self.outboxes:
            if outbox.role == "viewer":
                outbox.control(frames.Fenced(self._lease.epoch, by))

    def tell_ports(self) -> None:
        for outbox in self.outboxes:
            if outbox.role:
                outbox.control(frames.Listening(outbox.epoch, self.ports.body))

    def _find_names(self, client: AttachedClient, frame: frames.FindNames) -> None:
        if self.session is None or self.ending:
            return
        if self.names is None:
            from ..tools.search_process import NameFinder

            self.names = NameFinder(self._context.cwd, self._context.host)
        epoch, number = self._lease.epoch, frame.request
        self.names.find(
            client, frame.query, lambda found: client.outbox.control(frames.NamesFound(epoch, number, found))
        )

    def _output_of(self, frame: frames.ReadOutput) -> Json:
        task = self.session.tasks.get(frame.task_id) if self.session is not None else None
        if task is None:
            return {}
        piece = task.output.piece(frame.after, frame.most, frame.before) if task.output is not None else {}
        return {"status": task.status.public, "seconds": task.seconds, **piece}

    def _take_stop(self, client: AttachedClient, frame: frames.Stop) -> None:
        if not frame.finish:
            self._stop()
        elif client.late:  # prompts that wait for room come first
            client.late.append(frame)
        else:
            self._finisher = client
            if self.session is not None:
                self.session.turns.finish(self.session.options.background_wait_ms / 1000)

    def _take_input(self, client: AttachedClient, frame: frames.Input) -> None:
        """Apply an input, or keep it until there is room. What ends a turn overtakes the prompts."""
        if self.ending:  # the laptop sends an input again until it is confirmed
            return
        if client is not self.driver and not self._may_send(client, frame):
            return
        if (client.late and isinstance(parse_message(frame.body), UserMessage)) or not self._applied(client, frame):
            client.late.append(frame)
            if len(client.late) == 1:
                asyncio.get_running_loop().call_later(_TRY_AGAIN_S, self._take_late, client)

    def _may_send(self, client: AttachedClient, frame: frames.Input) -> bool:
        """Return whether a viewer answers an open question about a tool, or sends a message that is marked as such.
        Confirm what needs no answer any more. Anything else of a viewer has no effect."""
        line, session = parse_message(frame.body), self.session
        if frame.epoch != 0 or session is None:
            return False
        if isinstance(line, ControlRequest):
            return line.subtype == TELL_SESSION.name and line.text("via") == COMMAND
        if not isinstance(line, ControlResponse):
            return False
        if session.broker.journalled.kind_of(line.request_id) == CAN_USE_TOOL.name:
            return True
        client.outbox.applied_after(self._journal.seq, frame.id)  # it may be this very answer, sent again
        return False

    def _take_late(self, client: AttachedClient) -> None:
        late, client.late = client.late, []
        for frame in late if client in self._clients else ():
            if isinstance(frame, frames.Input):
                self._take_input(client, frame)
            elif client is self.driver:
                self._take_stop(client, frame)

    def _applied(self, client: AttachedClient, frame: frames.Input) -> bool:
        """Apply an input. Return whether it is settled: applied, or refused with the refusal journalled or shown."""
        session = self.session
        assert session is not None, "a driver has begun it"
        waits = session.inputs.is_full and not session.inputs.knows(frame.id)
        if waits and isinstance(parse_message(frame.body), UserMessage):
            return False
        try:
            by = "" if client is self.driver else client.name
            client.outbox.applied_after(session.take_input(frame.id, frame.body, by), frame.id)
        except NotKept as error:
            if not session.refuse_input(frame.body, error):
                return False
            client.outbox.control(frames.Applied(self._lease.epoch, frame.id))
        return True

    def _detach(self, client: AttachedClient, *, done: bool) -> None:
        if client.model_link is not None:
            self._calls.forget(client.model_link)
        if self.driver is not client:
            return
        # What is in memory ends with the daemon: a session without a journal, and what an agent of others remembers.
        program = self.session.agent.program if self.session is not None else None
        in_memory = not self._journal.path or (program is not None and program.is_all_memory)
        self._lifetime.released = done and not in_memory
        self._lease.release()
        self._changed()
        self._fence("")

    def _left(self, client: AttachedClient) -> None:
        self._clients.pop(client, None)
        self.outboxes.discard(client.outbox)
        if self.driver is client:
            self.driver = None
        if client.model_link is not None:
            self._calls.detach(client.model_link)
        if client.channels is not None:
            client.channels.left(client.outbox)
        attached = bool(client.outbox.role)
        if attached:
            self._changed()
        last_left = attached and not any(each.role for each in self.outboxes)
        self._lifetime.count(len(self._clients), last_left=last_left)

    def release_finisher(self) -> bool:
        """When all turns are done: return whether the session goes on for others than who asked for its end."""
        finisher, self._finisher = self._finisher, None
        if not any(client.outbox.role for client in self._clients if client is not finisher):
            return False
        if self.driver is None or self.driver is finisher:
            # the daemon may end once the others have left; a client with a dead connection leaves late
            self._lifetime.released = True
        if finisher in self._clients:
            self._detach(finisher, done=True)
            finisher.outbox.finish(frames.Bye("the session goes on for the others"))
        return True

    async def close(self, *, session_over: bool) -> None:
        """End all connections. Say goodbye only if the session is over, so that otherwise the clients come back."""
        await asyncio.gather(*(each.close() for each in self._channels.values()))
        for outbox in self.outboxes:
            if session_over and outbox.role:
                outbox.finish(frames.Bye("the session has ended"))
            else:
                outbox.close()
        tasks = list(self._clients.values())
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=_GOODBYE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


GRACE_S = 24 * 3600.0  # seconds that a session may work, or wait for an answer, without any client
IDLE_S = 30 * 60.0  # seconds that the daemon of an idle session stays without any client
UNPROMPTED_S = 20.0  # the same, for a session that never had a prompt
_LOOK_S = 5.0


class Lifetime:
    """Ends a daemon without clients: when `stays` has passed, at once when `released`, and after `grace_s` in any case.
    `stays` returns how many seconds an idle daemon may stay without any, infinity while the session works. While it
    `waits` for its first driver it does not end."""

    def __init__(self, grace_s: float, stays: Callable[[], float], *, waits: bool = False) -> None:
        self.released = True
        self.waits = waits
        self._grace_s = grace_s
        self._stays = stays
        self._clients = 0
        self._changed = asyncio.Event()
        self._alone_since = self._busy_until = time.monotonic()

    def count(self, clients: int, *, last_left: bool = False) -> None:
        """Note the number of connections. Those that only ask for a hello do not prolong the daemon's life."""
        self._clients = clients
        if last_left:
            self._alone_since = time.monotonic()
        self._changed.set()

    async def over(self) -> None:
        """Return when the daemon should end because no client needs the session any more."""
        while True:
            self._changed.clear()
            left = _LOOK_S if self._clients else self._due() - time.monotonic()
            if left <= 0:
                log.info("no client for %.0f s: the worker ends", time.monotonic() - self._alone_since)
                return
            # the session does not announce that it has become idle or busy, so look again soon
            with contextlib.suppress(asyncio.TimeoutError):
                await within(min(left, _LOOK_S), self._changed.wait())

    def _due(self) -> float:
        if self.waits:
            return math.inf
        latest, stays = self._alone_since + self._grace_s, self._stays()
        if stays == math.inf:
            self._busy_until = time.monotonic()
            return latest
        idle_since = max(self._alone_since, self._busy_until)
        return self._alone_since if self.released else min(idle_since + stays, latest)
