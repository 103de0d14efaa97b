"""The process of one session: its parts, life and clean-up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import socket
import time
from collections.abc import Awaitable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Callable

from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.journal_records import WorkerRecord, WorktreeRecord
from ccb.tunnel.wire.session_options import SessionOptions

from ..sandbox.cage_directories import places_in, remove_unneeded
from ..session.rewind import finish_rewind
from ..session.session import Session
from ..session_store import sockets
from ..session_store.journal import Journal, NotKept
from ..session_store.journal_summary import JournalSummary
from ..session_store.locks import own_identity
from ..session_store.session_files import DriverLease, log_to
from ..session_store.session_log import SessionLog
from ..session_store.session_paths import SessionPaths, private_directory
from ..session_store.session_registry import SummaryFile, created_at, earlier_directories
from ..session_store.sockets import stranger
from ..system.deadline import Threads, within
from ..system.process import stop_marked
from ..tools.toolset import close_context, make_context
from .assembly import begin_session, resume_session
from .clients import GRACE_S, IDLE_S, UNPROMPTED_S, AttachedClients, Lifetime
from .copy_writer import CopyWriter
from .hello import ENDING, WORKTREES, hello_frame, read_lease, send_last
from .model_relay import ModelRelay
from .model_streams import ModelStreams
from .ports import PortWatch, ReversePorts, serve_port
from .shells import Shells

if TYPE_CHECKING:
    from .hello import DaemonLaunch

log = logging.getLogger(__name__)

_ANSWERS_S = 3.0  # seconds for the answers to requests of clients, once the last turn is over
_FOR_URLS = 64 * 1024  # bytes of the output of a command that are looked through for URLs
REFRESH_S = 3600.0  # seconds between two touches of the files: cleaners of /tmp remove those of some days


def run_daemon(launch: DaemonLaunch, first: socket.socket) -> int:
    """Serve until the session ends. Return the exit status. `first` is a client that has its hello."""
    where = launch.where
    log_to(where.file("daemon.log"))
    try:
        return asyncio.run(_serve(launch, first))
    except RuntimeError as error:
        if "start new thread" not in str(error):
            raise
        log.error("%s: the host allows no more processes", error)  # raised when the event loop is closed, or before
        send_last(first, {"t": "refused", "code": "no_processes", "message": str(error), "data": {}})
        return 1
    except NotKept as error:  # before any client was attached
        log.error("the session cannot be resumed: %s", error)
        data = {"tried": [where.state]}
        send_last(first, {"t": "refused", "code": "no_storage", "message": str(error), "data": data})
        return 1


async def _serve(launch: DaemonLaunch, first: socket.socket) -> int:
    loop = asyncio.get_running_loop()
    loop.set_default_executor(Threads())
    daemon = Daemon(launch)
    loop.add_signal_handler(signal.SIGINT, daemon.stop)  # sent by `ccb stop`
    loop.add_signal_handler(signal.SIGTERM, daemon.leave)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)  # before the first thread, which hands its mask to its commands
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    await loop.run_in_executor(None, int)  # start the first thread while the host still allows one
    asking = loop.run_in_executor(None, daemon.ask_for_cages)
    if launch.params.get("shell"):  # the first turn waits for the environment of the person's shell
        daemon.context.login.begin(os.path.dirname(launch.text("bundle_path")))
    try:
        await daemon.run(launch.listener, first)
    finally:
        await asking
    return 0


class Daemon:
    """Owns the session, its journal, its clients and what its tools started. `facts` go into every hello. A session in
    memory is lost with its daemon, which stays for `grace_s` also when it is idle."""

    def __init__(self, launch: DaemonLaunch) -> None:
        self._launch = launch
        where, facts = launch.where, launch.facts
        self.journal = Journal(where.file("journal.jsonl"), fresh=True, claim=launch.claim)
        self._lease = DriverLease(where.file("epoch"), *read_lease(where.state))
        grace_s, idle_s = launch.seconds("grace_s", GRACE_S), launch.seconds("idle_s", IDLE_S)
        stays = partial(self._stays, idle_s if where.state else grace_s, grace_s)
        self._lifetime = Lifetime(grace_s, stays, waits=bool(launch.params.get("job")))
        self._copy = CopyWriter(launch.text("bundle_path"), str(facts["bundle"]), launch.text("no_copy"))
        self._calls = ModelStreams()
        self._begun = asyncio.Event()
        self._stopping = asyncio.Event()
        self._session_over = False  # a person or program ended the session, so it is over for its clients too
        # For a session in memory the token is its id: after its worker is killed, only the id can tell its processes.
        token = "" if where.state else str(facts["session"])
        self.context = make_context(str(facts["cwd"]), where.file("outputs"), token)
        self.relay = ModelRelay()
        self.shells = Shells(self.context)
        self.clients = AttachedClients(
            self.journal,
            self.context,
            self._lease,
            self._lifetime,
            self._calls,
            self._begin,
            self.changed,
            self.stop,
            {"port": serve_port, "accept": ReversePorts().serve, "model": self.relay.serve, "shell": self.shells.serve},
            PortWatch(self._runs_something, self._outputs),
        )
        cwd = os.path.realpath(self.context.cwd)
        fields = {
            "session": facts["session"],
            "cwd": cwd,
            "directory": self.context.cwd,
            "root": self.context.directory.identity(),
            "earlier": earlier_directories(where.state, cwd),
            "created": created_at(where.state),
            "socket": where.socket,
            **own_identity(),
            **self._worker(),
        }
        self._summary = SummaryFile(where.state, fields, launch.claim)
        if not where.state:
            facts["summary"] = self._summary.fields  # for `ccb ps`, which finds no file
        self._left_behind = ""  # the mark of processes that a killed worker may have left running
        if self.journal.seq:
            self._resume()

    @property
    def session(self) -> Session | None:
        return self.clients.session

    def _worker(self) -> Json:
        """Return the facts about this worker for the journal: its identity, and the mark of the processes it starts."""
        return {"pid": os.getpid(), "bundle": self._launch.facts["bundle"], "mark": self.context.host.session}

    def _new_log(self) -> SessionLog:
        return SessionLog(str(self._launch.facts["session"]), self.journal, self.clients.outboxes, self.changed)

    def _resume(self) -> None:
        session, self._left_behind = resume_session(self._new_log(), self._calls, self.context, self.relay)
        session.log.emit(WorkerRecord(**self._worker(), cwd=self.context.cwd))
        self._summary.update(created=session.log.summary.created or self._summary.fields["created"])
        self.clients.session = session
        self._begun.set()
        self.changed()

    def _begin(self, options: SessionOptions) -> Session:
        facts = {"cwd": self._launch.facts["cwd"], **self._worker()}
        session = begin_session(self._new_log(), self._calls, self.context, self.relay, options, facts)
        if isinstance(self._launch.tree, WorktreeRecord):  # it was made for the session
            session.log.emit(self._launch.tree)
        self._begun.set()
        return session

    def _runs_something(self) -> bool:
        runs = self.context.tasks.running or self.context.shells.foreground or self.shells.running
        return bool(runs or (self.session is not None and self.session.agent.program is not None))

    def _outputs(self) -> Iterator[tuple[str, str]]:
        """What runs in the background, with the beginning of its output, which names the URL of a server."""
        for task in self.context.tasks.running:
            if task.output is not None:
                yield task.description, task.output.first(_FOR_URLS)

    @property
    def _state(self) -> str:
        return self.session.state if self.session is not None else "idle"

    def _stays(self, idle_s: float, grace_s: float) -> float:
        """Return for how many seconds this worker stays without a client if nothing changes. See Lifetime."""
        if self.session is None:
            return 0.0
        if self.session.state != "idle" or self.context.tasks.running or self.shells.running:
            return math.inf
        program = self.session.agent.program
        if program is not None and program.is_all_memory:
            idle_s = max(idle_s, grace_s)
        return idle_s if self.session.inputs.any_prompt else min(UNPROMPTED_S, idle_s)

    def changed(self) -> None:
        """The session's state or its clients have changed: bring the summary up to date."""
        known = self.session.log.summary if self.session is not None else JournalSummary()
        self._summary.update(
            state=self._state,
            updated=round(time.time(), 3),
            title=known.title,
            prompt=known.prompt,
            prompts=known.prompts,
            said=known.said,
            asked=known.asked,
            driver=self._lease.driver,
            away=self.clients.driver is None,
            viewers=sum(outbox.role == "viewer" for outbox in self.clients.outboxes),
            **({} if self._launch.where.state else {"bytes": self.journal.size}),
        )
        if not self._stopping.is_set():
            self._copy.session_is(working=self._state != "idle")

    def stop(self) -> None:
        self._session_over = True
        self._stopping.set()

    def leave(self) -> None:
        """End this worker but not the session, which the next worker continues, as when the host goes down."""
        self._stopping.set()

    def ask_for_cages(self) -> None:
        """Find out which cages there are, adopt orphans, and remove what a killed worker has left. From any thread."""
        from ..sandbox.running import adopt_orphans
        from ..system.regular_files import remove_left_files  # which nothing else needs at the start

        adopt_orphans()
        directories = [self.context.cwd, *self.context.add_dirs]
        changed = list(self.session.log.points.latest) if self.session is not None else []
        self.context.host.cages()
        remove_unneeded(places_in(directories))
        remove_left_files([*directories, *map(os.path.dirname, reversed(changed))])

    async def run(self, listener: socket.socket, first: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        first.setblocking(False)
        reader, writer = await asyncio.open_unix_connection(sock=first)
        self.clients.add(reader, writer, None)
        listener.setblocking(False)
        server = await asyncio.start_unix_server(self._accept, sock=listener)
        if self._left_behind:  # end what a killed worker has left running
            await stop_marked(self._left_behind)
            self.context.spill.sweep()
        turns = loop.create_task(self._run_turns())
        reasons_to_end = [
            turns,
            loop.create_task(self._lifetime.over()),
            loop.create_task(self._stopping.wait()),
            loop.create_task(self.journal.broken.wait()),
        ]
        upkeep = [
            loop.create_task(keep_reachable(self._launch.where, self._accept)),
            loop.create_task(self.clients.ports.run(self.clients.tell_ports)),
        ]
        try:
            await asyncio.wait(reasons_to_end, return_when=asyncio.FIRST_COMPLETED)
            self._session_over = self._session_over or (turns.done() and turns.exception() is None)
        finally:
            self.clients.ending = True
            server.close()
            tasks = [*reasons_to_end, *upkeep]
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(ended, Exception):
                    log.error("the session ended in a bug", exc_info=ended)
            await self._close()

    async def _run_turns(self) -> None:
        await self._begun.wait()
        if self.session is not None and self.session.log.points.unfinished is not None:
            await finish_rewind(self.session)
        while self.session is not None:
            await self.session.turns.run()
            await self.session.broker.settle(_ANSWERS_S)
            if not self.clients.release_finisher():
                return
            self.session.turns.go_on()

    async def _close(self) -> None:
        """Close the parts in the order of their dependencies: clients still get the last events of the journal."""
        if self.clients.names is not None:
            await self.clients.names.close()
        if self.session is not None:
            await self.session.end("prompt_input_exit" if self._session_over else "other")
        self.relay.close()
        await self.shells.close()
        root = await self.context.directory.soon(self.context.directory.identity)
        await close_context(self.context)
        await self.journal.end()
        await self.clients.close(session_over=self._session_over)
        await self.journal.close()
        await self._copy.close()
        if WORKTREES in self.context.cwd and self.journal.path:
            from ..subagents.worktrees import give_back

            try:
                await give_back(self.journal.path)
            except OSError as error:
                log.warning("the worktree of the session stays: %s", error)
        if self.session is not None and self._launch.claim.holds():
            self._summary.update(state="ended", driver="", viewers=0, **({"root": root} if root else {}))
            self._summary.remove_owner()
            if self._session_over:  # a later client must not be told that this session has a driver
                self._lease.release()
                if self.session.options.forget and self._launch.where.state:
                    import shutil

                    shutil.rmtree(self._launch.where.state, ignore_errors=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        who = stranger(writer.get_extra_info("socket"), self._launch.where.socket)
        if who:
            log.warning("%s connected to the session's socket, and was refused", who)
            writer.close()
            return
        if not self._launch.claim.holds():
            log.warning("the session was taken over on another node")
            writer.close()
            self.leave()
            return
        cages = self.context.host.known_cages()  # known from the first turn on: asking the kernel takes 50 ms
        facts = self._launch.facts
        if cages is not None and not cages.mechanism:
            notes = facts["notes"]
            assert isinstance(notes, list)
            facts = {**facts, "notes": [*notes, f"commands run without a cage: {cages.why}"]}
        epoch, driver = self._lease.epoch, self._lease.driver
        hello = hello_frame(facts, epoch=epoch, seq=self.journal.durable, state=self._state, driver=driver)
        if cages is not None and self.session is not None:
            hello["sandbox"] = self.session.agent.config.permissions.cage_in_force
        self.clients.add(reader, writer, hello)


async def keep_reachable(
    where: SessionPaths, accept: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> None:
    """Touch socket and lock every hour until cancelled, and make the socket again when it is gone, at once on SIGHUP,
    which a connection sends that finds none: a logout may remove the runtime directory."""
    loop = asyncio.get_running_loop()
    called = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, called.set)
    server: asyncio.AbstractServer | None = None
    try:
        while True:
            with contextlib.suppress(asyncio.TimeoutError):
                await within(REFRESH_S, called.wait())
            called.clear()
            if where.lock:
                touch(where.lock)
            if sockets.in_memory(where.socket) or touch(where.socket):
                continue
            log.warning("the session's socket was removed; making it again")
            if server is not None:
                server.close()
            try:
                private_directory(where.runtime, os.path.dirname(where.runtime))
                server = await asyncio.start_unix_server(accept, sock=sockets.listen(where.socket))
            except OSError as error:
                log.error("the session's socket cannot be made again: %s", error)
    finally:
        loop.remove_signal_handler(signal.SIGHUP)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        if server is not None:
            server.close()


def touch(path: str) -> bool:
    try:
        os.utime(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError as error:
        log.warning("%s cannot be touched: %s", path, error)
    return True
