"""/mcp: the MCP servers of the session, what is wrong with those that do not work, and a new try."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.kinds.mcp import MCP_RECONNECT, MCP_STATUS
from ccb.tunnel.wire.requests import Request, RequestFailed, RequestRefused

from ....session.client import Json, SessionClient
from ...model.blocks import Level
from ...model.transcript_reducer import TranscriptReducer

if TYPE_CHECKING:
    from ....mcp.service import LaptopServers, ServerState

_MAX_SHOWN = 50
_NONE = "There is no MCP server. `ccb mcp add NAME -- COMMAND` adds one to your settings; /help says more about /mcp."
_WHERE = {"laptop": "on this laptop", "client": "in the client", "sdk": "in the client", "stdio": "on the host"}


class McpServerList:
    """Answers /mcp. `laptop` holds the servers of this laptop, None without any. Failures are shown, never
    raised."""

    def __init__(self, client: SessionClient, reducer: TranscriptReducer) -> None:
        self._client = client
        self._reducer = reducer
        self.laptop: LaptopServers | None = None

    @property
    def own_names(self) -> list[str]:
        """The servers of this laptop."""
        return [each.name for each in self.laptop.states()] if self.laptop is not None else []

    @property
    def names(self) -> list[str]:
        """The servers of which something is known here: those of this laptop, and those with tools."""
        others = [tool.split("__")[1] for tool in self._reducer.tools if tool.startswith("mcp__")]
        return list(dict.fromkeys((*self.own_names, *others)))

    async def command(self, argument: str) -> None:
        """/mcp lists the servers, /mcp reconnect NAME connects one again."""
        word, _, name = argument.partition(" ")
        try:
            if not argument:
                await self._list()
            elif word == "reconnect" and name.strip():
                await self._reconnect(name.strip())
            else:
                self._show("/mcp lists the servers, /mcp reconnect NAME connects one again.", Level.WARNING)
        except (CcbError, RequestFailed) as error:
            self._show(error.what if isinstance(error, CcbError) else f"{HostText(str(error))}", Level.ERROR)

    async def _list(self) -> None:
        listed = (await self._client.request(Request(MCP_STATUS, None))).get("mcpServers")
        servers = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        own = {each.name: each for each in self.laptop.states()} if self.laptop is not None else {}
        lines = [_line(each, own) for each in servers[:_MAX_SHOWN]]
        missing = [state for name, state in own.items() if name not in {each.get("name") for each in servers}]
        lines += [f"{each.name}: not used by the agent, on this laptop: {each.shown}" for each in missing]
        if any(each.get("status") in ("failed", "needs-auth") for each in servers):
            lines.append("/mcp reconnect NAME tries again.")
        self._show(lines or _NONE)

    async def _reconnect(self, name: str) -> None:
        own = {each.name for each in self.laptop.states()} if self.laptop is not None else set()
        if self.laptop is not None and name in own:
            try:
                await self.laptop.restart(name)
            except RequestRefused as refused:
                why = next((each.why for each in self.laptop.states() if each.name == name), "")
                self._show(f"{refused}{f': {why}' if why else ''}", Level.ERROR)
                return
        await self._client.request(Request(MCP_RECONNECT, name))
        self._show(f"{name} is being connected again. Its tools count from the next turn.")

    def _show(self, text: str | list[str], level: Level = Level.INFO) -> None:
        self._reducer.notice(text, level)


def _line(server: Json, own: Mapping[str, ServerState]) -> str:
    """Return a line about a server: the host says what the agent sees of it, the laptop why one of its own fails."""
    name, status = (HostText(str(server.get(each))).line(most) for each, most in (("name", 64), ("status", 20)))
    tools = server.get("tools")
    offers = _counted(tools) if isinstance(tools, list) else ""
    transport = str(server.get("transport"))
    state = own.get(str(server.get("name"))) if transport == "laptop" else None
    where = _WHERE.get(transport, HostText(transport).line(20)) + (f": {state.shown}" if state is not None else "")
    why = (state.why if state is not None else "") or str(server.get("error") or "")
    wait = server.get("retryInSeconds")
    again = f"; next try in {wait} s" if isinstance(wait, int) else ""
    reason = f" ({HostText(why).line(300)}{again})" if why and status != "connected" else ""
    return f"{name}: {status}{offers}, {where}{reason}"


def _counted(tools: Sequence[object]) -> str:
    return f", {len(tools)} tool{'' if len(tools) == 1 else 's'}"
