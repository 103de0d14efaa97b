"""The end of tasks."""

from __future__ import annotations

import asyncio
from typing import Any


async def cancelled(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks on leaving, and wait for their end. Their errors are not raised."""
    running = [task for task in tasks if task is not None]
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)
