"""The commands of the worker: who asks while the answer is on its way, waits for it."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from ccb.local.session.session_client import SessionClient
from ccb.local.tui.composer.completions import CommandCache


class _SlowClient:
    driving = True

    def __init__(self) -> None:
        self.asked = 0
        self.answers = asyncio.Event()

    async def request(self, _: object) -> dict[str, Any]:
        self.asked += 1
        await self.answers.wait()
        return {"commands": [{"name": "context"}]}


async def test_a_command_that_is_typed_before_the_list_is_there_is_known_all_the_same() -> None:
    client = _SlowClient()
    commands = CommandCache(cast(SessionClient, client))
    list_above_the_composer = asyncio.create_task(commands.ask())
    await asyncio.sleep(0)
    typed = asyncio.create_task(commands.knows("context"))
    await asyncio.sleep(0)
    assert not typed.done()
    client.answers.set()
    assert await typed and await list_above_the_composer
    assert client.asked == 1
