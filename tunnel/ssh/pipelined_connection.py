"""asyncssh's connection with limits against a hostile server, and with a pipelined login.

asyncssh opens the whole window again when it hands over one packet of what it holds. While a reader is slow, each of
its reads then lets the server send another window, and what nobody has read grows without end.

These classes override methods inside asyncssh. Another version than `VERSION` may not call them, and then no flood
would have a limit: ccb does not use its own SSH there.
"""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import asyncssh
from asyncssh import constants as ssh
from asyncssh.auth import ClientAuth
from asyncssh.channel import SSHChannel, SSHClientChannel
from asyncssh.compression import Decompressor
from asyncssh.packet import Boolean, SSHPacket, SSHPacketLogger, String, UInt32
from asyncssh.public_key import SigningKey

from ..tasks import cancelled
from ..wire.dataclass import dataclass
from .past_logins import PastLogin, fingerprint, standing_for

VERSION = "2.24."  # how the version of asyncssh begins for which this module is written
_JOINED = 4096  # bytes up to which small packets are kept as one: each object costs hundreds of them


class InputBuffer(bytearray):
    """Does for asyncssh what its bytes do, but drops the first ones without a copy of the others."""

    def __getitem__(self, part: Any) -> Any:
        """Return a part, to which asyncssh names both ends; without an end, drop what is before it."""
        if part.stop is None:
            del self[: part.start]
            return self
        return bytes(memoryview(self)[part])


class CommandProcess(asyncssh.SSHClientProcess[bytes]):
    """A command whose unread output stays in the channel, but for a quarter of the window."""

    def connection_made(self, chan: SSHChannel[bytes]) -> None:
        super().connection_made(chan)
        self._limit = chan.get_recv_window() // 4

    @property
    def unread(self) -> int:
        return self._recv_buf_len

    def data_received(self, data: bytes, datatype: asyncssh.DataType) -> None:
        super().data_received(data, datatype)
        held = self._recv_buf[datatype]
        if len(held) > 1:
            before, last = held[-2:]
            if isinstance(before, bytes) and isinstance(last, bytes) and len(before) + len(last) <= _JOINED:
                held[-2:] = [before + last]


class CommandChannel(SSHClientChannel[bytes]):
    """A channel that holds at most its window, and grants new window when half of it has been read."""

    def __init__(self, connection: PipelinedConnection, window: int) -> None:
        options = connection.options
        loop, errors = asyncio.get_running_loop(), options.utf8_decode_errors
        super().__init__(connection, loop, errors, None, "strict", window, options.max_pktsize)
        connection._update_recv_pktlen(options.max_pktsize)
        self._ssh = connection
        self._granted = window
        self._received = 0
        self._delivered = 0

    async def run(self, command: str) -> CommandProcess:
        variables = cast(dict[str, str], self._ssh.options.env or {})
        env = {name.encode(): value.encode() for name, value in variables.items()}
        process = await self.create(
            CommandProcess, command, None, env, False, None, None, {}, False, None, None, False, False
        )
        assert isinstance(process, CommandProcess)
        await process.redirect(asyncssh.PIPE, asyncssh.PIPE, asyncssh.PIPE)
        return process

    def _accept_data(self, data: bytes, datatype: asyncssh.DataType = None) -> None:
        self._received += len(data)
        before = len(self._recv_buf)
        super()._accept_data(data, datatype)
        self._recv_window = self._granted - self._received  # asyncssh 2.24.0 counts only what it has handed over
        held = self._recv_buf
        if len(held) <= before:
            return
        for at in range(len(held) - 2, max(len(held) - 4, -1), -1):
            if held[at][1] == datatype:
                if len(held[at][0]) + len(data) <= _JOINED:
                    held[at] = (held[at][0] + data, datatype)
                    held.pop()
                return

    def _deliver_data(self, data: bytes, datatype: asyncssh.DataType) -> None:
        self._delivered += len(data)
        if self._session is not None:
            self._session.data_received(data, datatype)
        self._grant()

    def _flush_recv_buf(self, exc: Exception | None = None) -> None:
        super()._flush_recv_buf(exc)
        self._grant()

    def _grant(self) -> None:
        unread = self._session.unread if isinstance(self._session, CommandProcess) else 0
        room = self._init_recv_window + self._delivered - unread - self._granted
        if room >= self._init_recv_window // 2 and self._recv_state == "open":
            self._granted += room
            self._recv_window = self._granted - self._received
            self.send_packet(ssh.MSG_CHANNEL_WINDOW_ADJUST, UInt32(room))

    def _flush_send_buf(self) -> None:
        if self._send_buf and self._ssh.congested:
            self._pause_resume_writing()
        else:
            super()._flush_send_buf()


OPEN_S = 10.0  # seconds for the server to open the channel
FIRST_CHANNEL = 0  # the number that OpenSSH gives it


class GuessedWrongError(Exception): ...


class ChannelRefusedError(asyncssh.ChannelOpenError):
    """The server opens no channel. It may have closed the connection because of the command that came behind."""


async def start_command(connection: asyncssh.SSHClientConnection, command: str) -> asyncssh.SSHClientProcess[bytes]:
    """Run `command` on a channel to which the server will give the number FIRST_CHANNEL. Raise GuessedWrongError,
    ChannelRefusedError, and what `create_process` raises."""
    assert isinstance(connection, PipelinedConnection)
    channel = _AheadChannel(connection)
    limit = asyncio.get_running_loop().call_later(OPEN_S, channel.give_up)
    try:
        return await channel.run(command)
    except (asyncssh.Error, OSError) as error:
        if channel.refusal is not None:
            raise channel.refusal from error
        if not channel.opened:
            raise GuessedWrongError(str(error)) from error
        raise
    finally:
        limit.cancel()
        await cancelled(channel.opening)


async def start_waiting(
    connection: asyncssh.SSHClientConnection, command: str, window: int | None = None
) -> asyncssh.SSHClientProcess[bytes]:
    """Run `command` on a channel, once the server has opened it. Raise what `create_process` of asyncssh raises."""
    assert isinstance(connection, PipelinedConnection)
    return await CommandChannel(connection, window or connection.options.window).run(command)


class _AheadChannel(CommandChannel):
    """A channel whose requests do not wait for its number. `refusal`: the server did not open it."""

    def __init__(self, connection: PipelinedConnection) -> None:
        super().__init__(connection, connection.options.window)
        self.opened = False
        self.refusal: ChannelRefusedError | None = None
        self.opening: asyncio.Task[SSHPacket] | None = None

    async def _open(self, chantype: bytes, *args: bytes) -> SSHPacket:
        """Ask for the channel. Return before the answer what a session's answer contains: nothing."""
        self.opening = asyncio.create_task(super()._open(chantype, *args), name="open a channel")
        await asyncio.sleep(0)  # the request is sent in the first step of the task
        self._send_chan = FIRST_CHANNEL
        return SSHPacket(b"")

    def process_open_confirmation(self, send_chan: int, send_window: int, send_pktsize: int, packet: SSHPacket) -> None:
        if send_chan != FIRST_CHANNEL:
            raise asyncssh.ProtocolError(f"The server gave the first channel the number {send_chan}.")
        self.opened = True
        super().process_open_confirmation(send_chan, send_window, send_pktsize, packet)

    def process_open_failure(self, code: int, reason: str, lang: str) -> None:
        self.refusal = ChannelRefusedError(code, reason, lang)
        super().process_open_failure(code, reason, lang)

    def give_up(self) -> None:
        if not self.opened and self.refusal is None:
            self.get_connection().abort()


_MAX_ANSWERS = 4096  # answers that may wait while the server reads nothing, before no further request of it is answered
_MAX_UNPROCESSED = 16 << 20  # bytes of the server that may wait while one packet of it is handled
_MAX_UNPACKED = 256 << 10  # bytes of a packet without its compression. A server may send half of that

_MAX_REQUESTS = 1024  # requests of the server that may wait while one of them is handled
_ANSWERS = frozenset((
    ssh.MSG_UNIMPLEMENTED, ssh.MSG_REQUEST_SUCCESS, ssh.MSG_REQUEST_FAILURE, ssh.MSG_CHANNEL_OPEN_FAILURE,
    ssh.MSG_CHANNEL_SUCCESS, ssh.MSG_CHANNEL_FAILURE,
))  # fmt: skip

AT_ONCE_S = 1.0  # A signature that took longer was confirmed by a person, or needed a touch


@dataclass(frozen=True)
class Proof:
    """A proof of identity that the server was sent, and the seconds that it took to sign."""

    method: bytes
    key: SigningKey | None
    seconds: float


class PipelinedConnection(asyncssh.SSHClientConnection):
    """A connection that logs in by what is remembered of the last login, or else step by step. `signed` is set when the
    signed request is on its way. With `ahead`, commands do not wait for the end of the login."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: asyncssh.SSHClientConnectionOptions,
        remembered: tuple[PastLogin, asyncssh.SSHKeyPair] | None,
    ) -> None:
        super().__init__(loop, options, wait="auth")
        self.signed_at_once = False
        assert options.waiter is not None
        self.logged_in: asyncio.Future[None] = options.waiter
        self.signed: asyncio.Future[None] = loop.create_future()
        self.ahead = False
        self._writing_paused = False
        self._unsent = 0
        self._carrier: PipelinedConnection | None = None
        self._carried: set[PipelinedConnection] = set()
        self.why_not = ""
        self.proofs: list[Proof] = []
        self._remembered = remembered

    @property
    def options(self) -> asyncssh.SSHClientConnectionOptions:
        return self._options

    def data_received(self, data: bytes, datatype: asyncssh.DataType = None) -> None:
        """Take bytes of the server. The buffer is replaced only while asyncssh has its own, which is empty at first."""
        if isinstance(self._inpbuf, bytes):
            self._inpbuf = cast(bytes, InputBuffer(self._inpbuf))
        super().data_received(data, datatype)
        if len(self._inpbuf) > _MAX_UNPROCESSED or len(self._global_request_queue) > _MAX_REQUESTS:
            self._force_close(asyncssh.ProtocolError("The server sends on without waiting for an answer."))

    @property
    def congested(self) -> bool:
        """Whether this server, or the jump host on the way, does not read, or a key exchange is under way."""
        if self._writing_paused or not self._kex_complete:
            return True
        return self._carrier is not None and self._carrier.congested

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        self._go_on()

    def send_newkeys(self, k: bytes, h: bytes) -> None:
        """Take new keys, and with them a decompressor. That of asyncssh makes 128 MB of one packet."""
        super().send_newkeys(k, h)
        if self._next_decompressor is not None:
            self._next_decompressor = _LimitedDecompressor()

    def _send_deferred_packets(self) -> None:
        super()._send_deferred_packets()
        self._go_on()

    def _go_on(self) -> None:
        if self.congested:
            return
        self._unsent = 0
        for channel in list(self._channels.values()):
            if isinstance(channel, CommandChannel):
                channel._flush_send_buf()
        for carried in list(self._carried):
            carried._go_on()

    def _cleanup(self, exc: Exception | None) -> None:
        if self._carrier is not None:
            self._carrier._carried.discard(self)
        super()._cleanup(exc)

    @property
    def host_key(self) -> str:
        key = self.get_server_host_key()
        return fingerprint(key.public_data) if key is not None else ""

    @property
    def server(self) -> str:
        return str(self.get_extra_info("server_version", ""))

    def send_service_request(self, service: bytes) -> None:
        """Ask for a service. asyncssh calls this when the key exchange has ended and the host key is verified."""
        super().send_service_request(service)
        if service != b"ssh-userauth" or self._remembered is None:
            return
        last, pair = self._remembered
        if not self.host_key or self.host_key != last.host_key:
            self.why_not = "the host shows another key than the last time"
        elif self.server != last.server:
            self.why_not = "the server has another version than the last time"
        else:
            self.signed_at_once = True
            self._auth = _SignedAtOnce(self, pair)

    def send_packet(self, pkttype: int, *args: bytes, handler: SSHPacketLogger | None = None) -> None:
        """Send a packet. asyncssh holds those of channels back until the login has ended. Raise ProtocolError for one
        more answer to a server that does not read them."""
        if pkttype in _ANSWERS and self.congested:
            self._unsent += 1
            if self._unsent > _MAX_ANSWERS:
                raise asyncssh.ProtocolError("The server does not read the answers to its requests.")
        if not self.ahead or self.logged_in.done() or pkttype <= ssh.MSG_USERAUTH_LAST:
            super().send_packet(pkttype, *args, handler=handler)
            return
        self._auth_complete = True
        try:
            super().send_packet(pkttype, *args, handler=handler)
        finally:
            self._auth_complete = False

    def try_next_auth(self, *, next_method: bool = False) -> None:
        """Go on with the login. asyncssh calls this when the server accepts the service or refuses a proof."""
        ahead = self._auth
        if not isinstance(ahead, _SignedAtOnce):
            super().try_next_auth(next_method=next_method)
        elif ahead.answered:
            raise asyncssh.PermissionDenied("The key alone, which was enough the last time, is not enough now.")

    async def send_userauth_request(
        self, method: bytes, *args: bytes, key: SigningKey | None = None, trivial: bool = True
    ) -> None:
        clock = asyncio.get_running_loop().time
        began = clock()
        await super().send_userauth_request(method, *args, key=key, trivial=trivial)
        asks_only = method == b"none" or (method == b"publickey" and key is None)
        if not asks_only:
            self.proofs.append(Proof(method, key, clock() - began))

    def to_remember(self, offered: Sequence[bytes]) -> PastLogin | str:
        """Return what to remember of a login that succeeded, or why the next one cannot be pipelined."""
        if len(self.proofs) != 1 or self.proofs[0].method != b"publickey":
            return "this login took more than one key alone"
        proof = self.proofs[0]
        if not isinstance(proof.key, asyncssh.SSHKeyPair) or not self.host_key:
            return "the host has no key"
        algorithm = proof.key.algorithm.decode("ascii")
        if algorithm.startswith(("sk-", "webauthn-")):
            return "the key is a security key, which may want to be touched"
        if proof.seconds > AT_ONCE_S:
            return f"the key took {proof.seconds:.1f} s to sign: somebody may have to confirm that"
        if proof.key.public_data not in offered:
            return "the key is not among those that are offered by themselves"
        signature, key = proof.key.sig_algorithm.decode("ascii"), fingerprint(proof.key.key_public_data)
        before = standing_for(offered[: offered.index(proof.key.public_data)])
        return PastLogin(self.host_key, self.server, key, algorithm, signature, before)


class _LimitedDecompressor(Decompressor):
    """The zlib of asyncssh, which takes no packet of more than _MAX_UNPACKED bytes; None ends the connection."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj()

    def decompress(self, data: bytes) -> bytes | None:
        try:
            unpacked = self._zlib.decompress(data, _MAX_UNPACKED)
        except zlib.error:
            return None
        return unpacked if len(unpacked) < _MAX_UNPACKED else None


class _SignedAtOnce(ClientAuth):
    """The signed request that no question precedes. `answered`: the server did not accept it as the whole login."""

    def __init__(self, conn: PipelinedConnection, pair: asyncssh.SSHKeyPair) -> None:
        self.answered = False
        self._signed = conn.signed
        self._pair = pair
        super().__init__(conn, b"publickey")

    async def _start(self) -> None:
        pair = self._pair
        try:
            await self.send_request(
                Boolean(True), String(pair.algorithm), String(pair.public_data), key=pair, trivial=False
            )
        except (ValueError, OSError) as error:  # of an agent
            raise asyncssh.PermissionDenied(f"The key does not sign: {error}") from error
        self._signed.set_result(None)

    def auth_succeeded(self) -> None:
        self.answered = True

    def auth_failed(self) -> None:
        self.answered = True


async def open_connection(
    client_factory: Callable[[], asyncssh.SSHClient],
    host: str,
    port: int,
    options: asyncssh.SSHClientConnectionOptions,
    stream: socket.socket | asyncssh.SSHClientConnection,
    remembered: tuple[PastLogin, asyncssh.SSHKeyPair] | None,
    *,
    ahead: bool = False,
) -> PipelinedConnection:
    """Do what `asyncssh.create_connection` does, over a socket or a jump host's connection. With `ahead`, return once
    the signed request is on its way: `logged_in` of the connection tells the rest."""
    loop = asyncio.get_running_loop()
    options = await asyncssh.SSHClientConnectionOptions.construct(
        options, config=None, host=host, port=port, client_factory=client_factory
    )
    logged_in = options.waiter = loop.create_future()

    def make() -> PipelinedConnection:
        return PipelinedConnection(loop, options, remembered)

    try:
        if isinstance(stream, socket.socket):
            _, connection = await loop.create_connection(make, sock=stream)
        else:
            _, session = await stream.create_connection(
                cast(Any, make), host, port, window=options.window, max_pktsize=options.max_pktsize
            )
            connection = cast(PipelinedConnection, session)
            if isinstance(stream, PipelinedConnection):
                connection._carrier = stream
                stream._carried.add(connection)
    except asyncio.CancelledError:
        logged_in.cancel()
        raise
    connection.set_extra_info(host=host, port=port)
    try:
        if ahead:
            await asyncio.wait((connection.signed, logged_in), return_when=asyncio.FIRST_COMPLETED)
        if not ahead or logged_in.done():
            await logged_in
    except BaseException:
        logged_in.cancel()
        connection.abort()
        await connection.wait_closed()
        raise
    connection.ahead = not logged_in.done()
    return connection
