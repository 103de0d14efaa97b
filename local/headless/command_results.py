"""Answers the slash commands of the laptop in headless runs: what one replies becomes the text of a `result`."""

from __future__ import annotations

from contextlib import suppress

from pydantic import ValidationError

from ccb.tunnel.errors import CcbError
from ccb.tunnel.wire.control_protocol import RequestFailed

from ..session.session_client import SessionClient
from ..slash_commands.about_session import all_events
from ..slash_commands.command_table import find_command
from ..slash_commands.registry import Live, Rows, Text
from ..slash_commands.session_api import LaptopSide, Place, ReplInfo, SessionApi
from ..slash_commands.typed_line import parse_command
from ..transcript.blocks import BlockList


async def command_result(prompt: str, client: SessionClient, info: ReplInfo, laptop: LaptopSide) -> str | None:
    """Return the text of the slash command that a prompt is, None if the worker is to get the prompt."""
    typed = parse_command(prompt.strip())
    command = find_command(typed.name) if typed is not None else None
    if typed is None or command is None or Place.HEADLESS not in command.places:
        return None
    transcript = info.transcript(BlockList())
    api = SessionApi(client, info, transcript, laptop, place=Place.HEADLESS)
    with suppress(CcbError, RequestFailed, ValidationError):  # the worker may be too old to list its commands
        if any(each.name == typed.name and not each.builtin for each in await api.worker_commands()):
            return None  # the project has a command of this name
    try:
        for event in await all_events(api):
            transcript.apply_event(event.record, replayed=True)
        reply = await command.run(api, typed.argument)
        if isinstance(reply, Live):
            reply = [rows async for rows in reply.updates][-1]
        if isinstance(reply, Rows):
            reply = reply.text
        assert isinstance(reply, Text), "a command of headless runs replies with something to read"
        return "\n".join(reply.lines)
    except CcbError as error:
        return f"/{command.name} was not run. {error.what}. {error.do}".rstrip()
    except RequestFailed as error:
        return f"/{command.name} was not run. {error}"
    except ValidationError:
        return f"/{command.name} was not run. The worker's answer cannot be read."
