"""A wait with a deadline: the result, the timeout, and a cancellation at the same moment as the result."""

from __future__ import annotations

import asyncio

import pytest

from ccb.remote.system.deadline import within


async def value() -> int:
    return 7


async def test_the_result_comes_in_time() -> None:
    assert await within(5, value()) == 7


async def test_work_that_is_late_is_cancelled() -> None:
    never = asyncio.Event()
    with pytest.raises(asyncio.TimeoutError):
        await within(0, never.wait())


async def test_an_error_of_the_work_is_raised() -> None:
    async def fail() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        await within(5, fail())


async def test_a_cancellation_counts_also_when_the_result_is_there() -> None:
    set_now = asyncio.Event()
    waiting = asyncio.ensure_future(within(5, set_now.wait()))
    for _ in range(3):
        await asyncio.sleep(0)
    set_now.set()
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
