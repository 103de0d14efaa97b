"""A connection of asyncssh that can send the signed request of the login right behind the end of the key exchange, and
the first command right behind that request."""

from __future__ import annotations

import asyncio
import socket
import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import asyncssh
from asyncssh.auth import ClientAuth
from asyncssh.compression import Decompressor
from asyncssh.constants import (
    MSG_CHANNEL_FAILURE,
    MSG_CHANNEL_OPEN_FAILURE,
    MSG_CHANNEL_SUCCESS,
    MSG_REQUEST_FAILURE,
    MSG_REQUEST_SUCCESS,
    MSG_UNIMPLEMENTED,
    MSG_USERAUTH_LAST,
)
from asyncssh.packet import Boolean, SSHPacketLogger, String
from asyncssh.public_key import SigningKey

from ...wire.dataclass import dataclass
from ..channel.input_buffer import InputBuffer
from ..channel.window import CommandChannel
from .past_logins import PastLogin, fingerprint, standing_for

_MAX_ANSWERS = 4096
"""Answers that may wait while the server reads nothing, before no further request of it is answered."""

_MAX_UNPROCESSED = 16 << 20
"""Bytes of the server that may wait while one packet of it is handled."""

_MAX_UNPACKED = 256 << 10
"""Bytes of a packet without its compression. The largest that a server may send has half of that."""

_MAX_REQUESTS = 1024
"""Requests of the server that may wait while one of them is handled."""

_ANSWERS = frozenset(
    {
        MSG_UNIMPLEMENTED,
        MSG_REQUEST_SUCCESS,
        MSG_REQUEST_FAILURE,
        MSG_CHANNEL_OPEN_FAILURE,
        MSG_CHANNEL_SUCCESS,
        MSG_CHANNEL_FAILURE,
    }
)

AT_ONCE_S = 1.0
"""A signature that took longer was confirmed by a person, or needed a touch."""


@dataclass(frozen=True)
class Proof:
    """One proof of identity that the server was sent: by which method, with which key, and how long it took to sign."""

    method: bytes
    key: SigningKey | None
    seconds: float


class PipelinedConnection(asyncssh.SSHClientConnection):
    """A connection to a server, logged in to by what is remembered of the last login, or else step by step.

    `signed_at_once`: the signed request was sent without waiting. `proofs` are all that the server was sent.
    `logged_in` is done when the login has ended, `signed` is set when the signed request is on its way. With `ahead`,
    commands do not wait for the end of the login.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: asyncssh.SSHClientConnectionOptions,
        last: PastLogin | None,
        pair: asyncssh.SSHKeyPair | None,
    ) -> None:
        super().__init__(loop, options, wait="auth")
        self.options = options
        self.signed_at_once = False
        assert options.waiter is not None
        self.logged_in: asyncio.Future[None] = options.waiter
        self.signed = asyncio.Event()
        self.ahead = False
        self._writing_paused = False
        self._unsent = 0
        self._carrier: PipelinedConnection | None = None
        self._carried: set[PipelinedConnection] = set()
        self.why_not = ""
        self.proofs: list[Proof] = []
        self._last = last
        self._pair = pair

    def data_received(self, data: bytes, datatype: asyncssh.DataType = None) -> None:
        """Take bytes of the server. The buffer is replaced only while asyncssh has its own, which is empty at first."""
        if isinstance(self._inpbuf, bytes):
            self._inpbuf = cast(bytes, InputBuffer(self._inpbuf))
        super().data_received(data, datatype)
        if len(self._inpbuf) > _MAX_UNPROCESSED or len(self._global_request_queue) > _MAX_REQUESTS:
            self._force_close(asyncssh.ProtocolError("The server sends on without waiting for an answer."))

    @property
    def congested(self) -> bool:
        """Whether this server, or the jump host on the way, does not read, or a key exchange is under way. The input of
        commands waits then."""
        if self._writing_paused or not self._kex_complete:
            return True
        return self._carrier is not None and self._carrier.congested

    def carried_by(self, jump_host: asyncssh.SSHClientConnection) -> None:
        """Note the connection that carries this one."""
        if isinstance(jump_host, PipelinedConnection):
            self._carrier = jump_host
            jump_host._carried.add(self)

    def pause_writing(self) -> None:
        """Let channels wait. asyncio calls this while the server does not read."""
        self._writing_paused = True

    def resume_writing(self) -> None:
        """Let channels go on. asyncio calls this when the server reads again."""
        self._writing_paused = False
        self._go_on()

    def send_newkeys(self, k: bytes, h: bytes) -> None:
        """Take new keys, and with them a decompressor. That of asyncssh makes 128 MB of one packet."""
        super().send_newkeys(k, h)
        if self._next_decompressor is not None:
            self._next_decompressor = _LimitedDecompressor()

    def _send_deferred_packets(self) -> None:
        """Send what a key exchange, or the login, has held back."""
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
        """asyncssh calls this once the connection has ended, whatever ended it."""
        if self._carrier is not None:
            self._carrier._carried.discard(self)
        super()._cleanup(exc)

    @property
    def host_key(self) -> str:
        """The fingerprint of the verified host key, "" without one."""
        key = self.get_server_host_key()
        return fingerprint(key.public_data) if key is not None else ""

    @property
    def server(self) -> str:
        """The version that the server sent."""
        return str(self.get_extra_info("server_version", ""))

    def send_service_request(self, service: bytes) -> None:
        """Ask for a service. asyncssh calls this when the key exchange has ended and the host key is verified."""
        super().send_service_request(service)
        if service != b"ssh-userauth" or self._last is None or self._pair is None:
            return
        if not self.host_key or self.host_key != self._last.host_key:
            self.why_not = "the host shows another key than the last time"
        elif self.server != self._last.server:
            self.why_not = "the server has another version than the last time"
        else:
            self.signed_at_once = True
            self._auth = _SignedAtOnce(self, self._pair)

    def send_packet(self, pkttype: int, *args: bytes, handler: SSHPacketLogger | None = None) -> None:
        """Send a packet. asyncssh holds those of channels back until the login has ended.

        Raise ProtocolError, which ends the connection, for one more answer to a server that does not read them.
        """
        if pkttype in _ANSWERS and self.congested:
            self._unsent += 1
            if self._unsent > _MAX_ANSWERS:
                raise asyncssh.ProtocolError("The server does not read the answers to its requests.")
        if not self.ahead or self.logged_in.done() or pkttype <= MSG_USERAUTH_LAST:
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
        """Send a request of the login, and note it if it proves something."""
        clock = asyncio.get_running_loop().time
        began = clock()
        await super().send_userauth_request(method, *args, key=key, trivial=trivial)
        asks_only = method == b"none" or (method == b"publickey" and key is None)
        if not asks_only:
            self.proofs.append(Proof(method, key, clock() - began))

    def to_remember(self, offered: Sequence[bytes]) -> PastLogin | str:
        """Return what to remember of a login that succeeded, or why the next one cannot be pipelined.

        `offered` are the public halves of the keys in the order in which they are offered.
        """
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
        return PastLogin(
            host_key=self.host_key,
            server=self.server,
            key=fingerprint(proof.key.key_public_data),
            algorithm=algorithm,
            signature=proof.key.sig_algorithm.decode("ascii"),
            before=standing_for(offered[: offered.index(proof.key.public_data)]),
        )


class _LimitedDecompressor(Decompressor):
    """The zlib of asyncssh, which takes no packet of more than _MAX_UNPACKED bytes."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj()

    def decompress(self, data: bytes) -> bytes | None:
        """Return a packet, or None, which ends the connection."""
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
        self._signed.set()

    def auth_succeeded(self) -> None:
        """asyncssh calls this also when the server wants more than the key."""
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
    """Do what `asyncssh.create_connection` does with a connection of our own class. Raise what it raises.

    `stream` is an open socket, or the connection to a jump host. `remembered` is what to sign at once with, and when.
    With `ahead`, return once the signed request is on its way: `logged_in` of the connection tells the rest.
    """
    loop = asyncio.get_running_loop()
    options = await asyncssh.SSHClientConnectionOptions.construct(
        options, config=None, host=host, port=port, client_factory=client_factory
    )
    logged_in = options.waiter = loop.create_future()

    def make() -> PipelinedConnection:
        return PipelinedConnection(loop, options, *(remembered or (None, None)))

    try:
        if isinstance(stream, socket.socket):
            _, connection = await loop.create_connection(make, sock=stream)
        else:
            _, session = await stream.create_connection(
                cast(Any, make), host, port, window=options.window, max_pktsize=options.max_pktsize
            )
            connection = cast(PipelinedConnection, session)
            connection.carried_by(stream)
    except asyncio.CancelledError:
        logged_in.cancel()
        raise
    connection.set_extra_info(host=host, port=port)
    try:
        if not ahead or not await _signs(connection) or logged_in.done():
            await logged_in
    except BaseException:
        logged_in.cancel()
        connection.abort()
        await connection.wait_closed()
        raise
    connection.ahead = not logged_in.done()
    return connection


async def _signs(connection: PipelinedConnection) -> bool:
    """Wait until the signed request is on its way, and return True; return False if the login ends without one."""
    signed = asyncio.create_task(connection.signed.wait())
    try:
        await asyncio.wait((signed, connection.logged_in), return_when=asyncio.FIRST_COMPLETED)
        return connection.signed.is_set()
    finally:
        signed.cancel()
