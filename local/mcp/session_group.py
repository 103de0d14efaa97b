"""Named groups of sessions that this laptop drives (`--group NAME`): their agents write to each other through it.

To its session each member is an MCP server of the laptop with one tool. A member finds the others by the sockets of
their processes in a directory of this user, and by the name of its own group alone: a host can name nobody else. What
a member is called, and who has sent a message, is what this laptop knows, and not what a host says.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError, ConfigError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire.control_protocol import Request, RequestFailed, RequestRefused
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.messages import PublicMessage, UserMessage, as_text
from ccb.tunnel.wire.outside_messages import GROUP_SERVER, SESSION, TELL_SESSION, read_message

from ..ledger.proxy_control import answering, ask, new_socket, sockets
from ..session.session_client import Witness
from .tool_server import server_reply, tool_result

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession

TOOL = "SendMessage"
MAX_TEXT = 8_000  # characters
MAX_UNPROMPTED = 50  # calls of a session until the person prompts it again: two agents could go on for ever
_ANSWER_S = 20.0  # for a message
_NAME_S = 2.0  # for a member to say who it is: it may be suspended by Ctrl+Z
_MAX_MEMBERS = 1_000
_MAX_SHOWN = 50
_TOOL: Json = {
    "name": TOOL,
    "description": (
        "Sends a message to the agent of another session that works for the same user, perhaps on another machine. It "
        "reads the message as information from you, not as the user's word. Its answer, if there is one, comes as a "
        "message of its own: go on with your work, or end your turn, and do not wait in a loop. Say what you have done "
        "or found and what the other has to know; it sees neither your conversation nor your files."
    ),
    "inputSchema": {
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "The name of a session; without it, you are told who is there"},
            "text": {"type": "string", "description": f"The message, at most {MAX_TEXT} characters"},
        },
    },
}


class GroupMember(Witness):
    """One session as a member, which counts what the person says in it. `host` is what the person calls the
    host. After `revoked` it neither sends nor gets messages. `near` are the members of this process, by their sockets:
    they need no socket to reach each other, which hundreds of them would wait for."""

    def __init__(
        self,
        group: str,
        host: str,
        session: RemoteSession,
        environ: Mapping[str, str],
        revoked: Callable[[], bool],
        near: dict[Path, GroupMember],
    ) -> None:
        self.session = session
        self._near = near
        self.name = f"{host}/{session.hello.session[:8]}"
        self._environ = environ
        self._revoked = revoked
        self._unprompted = 0
        self._ending = f".{hashlib.sha256(group.encode()).hexdigest()[:12]}"
        self._socket = new_socket(environ, self._ending)

    @asynccontextmanager
    async def reachable(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(answering(self._socket, self._answer))
            except OSError as error:
                what, do = f"--group: no socket can be made in {self._socket.parent}", "Make it yours, with mode 0700."
                raise ConfigError(what, evidence=str(error), do=do) from error
            self.session.watched_by(self)
            self._near[self._socket] = self
            stack.callback(self._near.pop, self._socket)
            yield

    @property
    def _takes_part(self) -> bool:
        return self.session.driving and not self._revoked()

    def said(self, line: PublicMessage) -> None:
        if isinstance(line, UserMessage):
            self._unprompted = 0

    # What the agent of this session wants.

    async def reply(self, message: Json) -> Json:
        """Answer a message to the MCP server that this member is."""
        return await server_reply(message, GROUP_SERVER, [_TOOL], self._called)

    async def _called(self, _name: str, given: Json) -> Json:
        try:
            return tool_result(await self._send(as_text(given.get("to")).strip(), as_text(given.get("text"))))
        except RequestRefused as refused:
            return tool_result(f"Not sent: {refused}", failed=True)

    async def _send(self, to: str, text: str) -> str:
        if self._unprompted >= MAX_UNPROMPTED:
            raise RequestRefused(f"after {MAX_UNPROMPTED} calls the user must first write to this session again")
        self._unprompted += 1
        others = await self._others()
        listed = ", ".join([*others][:_MAX_SHOWN]) or "nobody"
        if not to:
            return f"You are {self.name}. In your group there are also: {listed}"
        named = [name for name in others if to == name] or [name for name in others if to in name.rsplit("/", 1)]
        if len(named) != 1:
            which = "several are" if named else "nobody is"
            raise RequestRefused(f"{which} called so in your group. In it are: {listed}")
        if not self._takes_part:
            raise RequestRefused("this session does not send messages any more")
        if len(text) > MAX_TEXT:
            raise RequestRefused(f"the message has {len(text)} characters; at most {MAX_TEXT} are sent")
        message = read_message({"text": text, "sender": self.name, "via": SESSION})
        told = {"text": message.text, "sender": message.sender}
        path, answer = others[named[0]], None
        with suppress(TimeoutError):
            async with asyncio.timeout(_ANSWER_S):
                near = self._near.get(path)
                answer = await (near._answer(told) if near else asyncio.to_thread(ask, path, told, _ANSWER_S))
        if answer is None:
            raise RequestRefused("its laptop does not answer; whether it has the message is not known")
        if "error" in answer:
            raise RequestRefused(as_text(answer["error"]))
        return f"Sent to {named[0]}."

    async def _others(self) -> dict[str, Path]:
        """Return the sockets of the other members, by their names."""
        near = {path: each for path, each in self._near.items() if path.name.endswith(self._ending)}
        paths = [each for each in sockets(self._environ, f"*{self._ending}") if each not in near][:_MAX_MEMBERS]
        answers = await asyncio.gather(*(asyncio.to_thread(ask, each, {}, _NAME_S) for each in paths))
        named = [(as_text((answer or {}).get("name")), path) for answer, path in zip(answers, paths, strict=True)]
        named += [(each.name, path) for path, each in near.items() if each is not self and each._takes_part]
        return {name: path for name, path in sorted(named) if name}

    # What the others of the group want.

    async def _answer(self, asked: Json) -> Json:
        if not self._takes_part:
            return {"error": "nobody drives that session any more"} if asked else {}
        if not asked:
            return {"name": self.name}
        try:
            await self.session.request(Request(TELL_SESSION, read_message({**asked, "via": SESSION})))
        except RequestFailed as failed:
            return {"error": f"that session refuses it: {HostText(str(failed))}"}
        except (RequestRefused, CcbError) as error:
            return {"error": one_line(str(error))}
        return {}
