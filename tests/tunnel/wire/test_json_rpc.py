"""Two ends of a JSON-RPC connection in lines; what an end does with messages that break the rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from ccb.tunnel.wire.frames import FrameError
from ccb.tunnel.wire.json_rpc import CANCELLED, MAX_OPEN, PEER_ENDED, JsonRpcPeer, RpcError

Handlers = dict[str, Callable[[dict[str, Any]], Awaitable[Any]]]


class End:
    """A peer, and the bytes from and to it."""

    def __init__(self, handlers: Handlers, long: tuple[str, ...] = (), line_limit: int = 4096) -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.peer = JsonRpcPeer(handlers, self.incoming.get, self._write, long=long, line_limit=line_limit)
        self.other: End | None = None

    async def _write(self, data: bytes) -> None:
        self.sent.put_nowait(json.loads(data))
        if self.other is not None:
            self.other.incoming.put_nowait(data)

    def say(self, *messages: object) -> None:
        """Bytes as they are, and messages as lines, all in one piece."""
        self.incoming.put_nowait(
            b"".join(
                each if isinstance(each, bytes) else json.dumps({"jsonrpc": "2.0", **each}).encode() + b"\n"  # type: ignore[dict-item]
                for each in messages
            )
        )


@asynccontextmanager
async def serving(*ends: End) -> AsyncIterator[None]:
    tasks = [asyncio.ensure_future(each.peer.serve()) for each in ends]
    try:
        yield
    finally:
        for each in ends:
            each.incoming.put_nowait(b"")
        await asyncio.gather(*tasks)


def call(number: object, method: str, **params: object) -> dict[str, Any]:
    return {"id": number, "method": method, "params": params}


async def test_requests_go_both_ways_at_the_same_time() -> None:
    async def double(params: dict[str, Any]) -> object:
        return await near.peer.request("add", {"a": params["n"], "b": params["n"], "_meta": {"a": 99}})

    async def add(params: dict[str, Any]) -> object:
        return params["a"] + params["b"]

    near, far = End({"double": double}), End({"add": add})
    near.other, far.other = far, near
    async with serving(near, far):
        assert await asyncio.gather(*(far.peer.request("double", {"n": n}) for n in range(5))) == [0, 2, 4, 6, 8]


async def test_messages_of_one_session_are_handled_in_order_and_a_long_one_only_begins_in_order() -> None:
    seen: list[str] = []
    prompt_may_end = asyncio.Event()

    async def slow(params: dict[str, Any]) -> None:
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append(f"slow {params['sessionId']}")

    async def prompt(params: dict[str, Any]) -> None:
        seen.append("prompt")
        await prompt_may_end.wait()
        seen.append("prompt ended")

    async def note(params: dict[str, Any]) -> None:
        seen.append(f"note {params['sessionId']}")
        if params["sessionId"] == "one":
            prompt_may_end.set()

    end = End({"slow": slow, "prompt": prompt, "note": note}, long=("prompt",))
    async with serving(end):
        end.say(
            call(1, "slow", sessionId="one"),
            call(2, "prompt", sessionId="one"),
            {"method": "note", "params": {"sessionId": "one"}},
            {"method": "note", "params": {"sessionId": "two"}},
        )
        assert [(await end.sent.get())["id"] for _ in range(2)] == [1, 2]
    assert seen == ["note two", "slow one", "prompt", "note one", "prompt ended"]


async def test_either_end_cancels_its_request() -> None:
    begun = asyncio.Event()
    cancelled: list[str] = []

    async def wait(params: dict[str, Any]) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("wait")
            raise

    near, far = End({}), End({"wait": wait})
    near.other, far.other = far, near
    async with serving(near, far):
        asking = asyncio.ensure_future(near.peer.request("wait", {}))
        await begun.wait()
        asking.cancel()
        assert (await far.sent.get())["error"]["code"] == CANCELLED
        far.say(call("a", "wait"), {"method": "$/cancel_request", "params": {"requestId": "a"}})  # in one piece
        assert (await far.sent.get()) == {
            "jsonrpc": "2.0",
            "id": "a",
            "error": {"code": CANCELLED, "message": "the request was cancelled"},
        }
    assert cancelled == ["wait", "wait"]


@pytest.mark.parametrize(
    ("said", "number", "code"),
    [
        (b"no json\n", None, -32700),
        (b"[" * 5000 + b"\n", None, -32700),
        (b'{"id": 1, "method": "echo", "params": {"x": NaN}}\n', None, -32700),
        (b'[{"id": 1, "method": "echo"}]\n', None, -32600),
        (b'{"id": 1}\n', None, -32600),
        (b'{"id": {}, "method": "echo"}\n', None, -32600),
        (call(1, "unknown"), 1, -32601),
        ({"id": 1, "method": "echo", "params": []}, 1, -32602),
        (call(1, "refuse"), 1, -32002),
        (call(1, "fail"), 1, -32603),
    ],
)
async def test_what_cannot_be_handled_is_answered_with_its_code_and_the_next_request_goes_on(
    said: object, number: object, code: int
) -> None:
    async def echo(params: dict[str, Any]) -> object:
        return params

    async def refuse(params: dict[str, Any]) -> object:
        raise RpcError(-32002, "there is no such session", {"id": "x"})

    async def fail(params: dict[str, Any]) -> object:
        raise KeyError("x")

    end = End({"echo": echo, "refuse": refuse, "fail": fail}, line_limit=10_000)
    async with serving(end):
        end.say(said, b"\n", {"method": "unknown"}, {"id": 77, "result": {}}, call(2, "echo", a="\u2028"))
        refusal, answer = await end.sent.get(), await end.sent.get()
    assert (refusal["id"], refusal["error"]["code"]) == (number, code)
    assert (answer["id"], answer["result"]) == (2, {"a": "\u2028"})


async def test_a_line_over_the_limit_ends_the_connection_with_its_reason() -> None:
    end = End({})
    end.say(b"x" * 5000)
    with pytest.raises(FrameError, match="longer than 4096"):
        await end.peer.serve()
    assert (await end.sent.get())["error"]["code"] == -32700


async def test_open_requests_have_a_limit_and_end_with_the_connection() -> None:
    ended: list[bool] = []

    async def wait(params: dict[str, Any]) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(end.peer.has_ended)

    end = End({"wait": wait})
    async with serving(end):
        asking = asyncio.ensure_future(end.peer.request("ask", {}))
        end.say(*(call(n, "wait") for n in range(MAX_OPEN + 1)))
        assert (await end.sent.get())["method"] == "ask"
        assert (await end.sent.get())["id"] == MAX_OPEN
    with pytest.raises(RpcError) as raised:
        await asking
    assert raised.value.code == PEER_ENDED
    assert ended == [True] * MAX_OPEN


async def test_a_refusal_that_nobody_reads_does_not_end_the_reading() -> None:
    async def broken(_: bytes) -> None:
        raise BrokenPipeError

    lines = [b"no json\n", b""]
    await JsonRpcPeer({}, lambda: asyncio.sleep(0, lines.pop(0)), broken).serve()
    assert lines == []
