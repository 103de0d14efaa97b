"""/ports: the ports of the host on which the session's programs listen, and which of them are on this machine."""

from __future__ import annotations

import asyncio
import webbrowser

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import one_line

from ..command_line.option_values import read_forward
from ..ports.port_forwards import Forward, PortForwards, Reverse, forward_of, reverse_words
from ..transcript.blocks import Level
from .registry import Choices, Picker, Reply, ReplyRow, Text, command
from .session_api import SessionApi

_USAGE = (
    "/ports lists them; /ports [LOCAL:]PORT forwards one; with open, stop, pin or ignore before PORT it is shown in "
    "the browser, ended, kept when its program ends, or not offered any more; with reverse, the host reaches that port "
    "of this machine"
)


def _known(api: SessionApi) -> Choices:
    ports = api.laptop.ports
    if ports is None:
        return {}
    new = {str(each): f"forward {ports.name_of(each)}" for each in ports.listening if each not in ports.forwards}
    opens = {f"open {port}": "in the browser" for port in ports.listening}
    return {**new, **opens, **{f"stop {port}": "end the forward" for port in (*ports.forwards, *ports.reverses)}}


@command(
    "ports [PORT, open PORT, stop PORT, pin PORT, reverse PORT, ignore PORT]",
    "list the ports of the host, forward and open them",
    choices=_known,
)
async def ports(api: SessionApi, argument: str) -> Reply:
    held = api.laptop.ports
    if held is None:
        return Text("This session forwards no ports.", Level.WARNING)
    verb, _, rest = argument.partition(" ")
    if not rest:
        verb, rest = "forward", verb
    if not rest:
        return _listed(held)
    try:
        remote, local = forward_of(read_forward(rest.strip(), "/ports"))
    except UsageError:
        return Text(f"{one_line(rest)} is no port. {_USAGE}.", Level.WARNING)
    if verb == "forward":
        return _at(await held.forward(remote, local), local)
    if verb == "pin":
        (await held.forward(remote)).pinned = True
        return Text(f"Port {remote} stays forwarded until it is stopped.", brief=True)
    if verb == "open":
        forward = await held.forward(remote, local)
        await asyncio.to_thread(webbrowser.open, forward.url)
        return _at(forward, local)
    if verb == "reverse":
        made = await held.reverse(remote)
        return Text(f"Port {remote} of this machine {made.state}." if made.state else reverse_words(remote), brief=True)
    if verb == "stop":
        await held.stop(remote)
        return Text(f"Port {remote} is not forwarded any more.", brief=True)
    if verb == "ignore" and api.laptop.projects is not None:
        await api.laptop.projects.ignore_port(remote)
        return Text(f"Port {remote} is not offered in this project any more.", brief=True)
    return Text(f"{_USAGE}.", Level.WARNING)


def _at(forward: Forward, wanted: int) -> Text:
    """Say where a forward is, also if it was `wanted` elsewhere (0: nowhere in particular)."""
    other = f" already; /ports stop {forward.remote} ends that" if wanted not in (0, forward.local) else ""
    return Text(f"Port {forward.remote} of the host is {forward.url} on this machine{other}.")


def _listed(held: PortForwards) -> Picker:
    rows = []
    for remote in sorted({*held.listening, *held.forwards}):
        forward = held.forwards.get(remote)
        if forward is None:
            rows.append(ReplyRow(held.shown(remote), "not forwarded", f"/ports {remote}"))
        else:
            text = f"{forward.url}, {_counted(forward)}{', pinned' if forward.pinned else ''}"
            rows.append(ReplyRow(held.shown(remote), text, f"/ports open {remote}"))
    for each in held.reverses.values():
        said = each.state or f"the host reaches it: {_counted(each)}"
        rows.append(ReplyRow(f"{each.port} of this machine", said))
    none = "No program of this session listens on a port."
    return Picker(rows, none, f"{_USAGE}.", "Ports of the host", does="forwards it, or opens it in the browser")


def _counted(port: Forward | Reverse) -> str:
    return f"{len(port.connections)} connection{'' if len(port.connections) == 1 else 's'}"
