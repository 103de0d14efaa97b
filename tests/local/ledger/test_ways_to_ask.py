"""However a model is asked, and whatever of its answer can be read: what was paid counts against the budget."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.machine.waiting import until
from tests.support.network.http_server import serving
from tests.support.proxy.proxy_client import answer_to, router_to

from ccb.local.ledger.audit import SessionAudit
from ccb.local.ledger.budgets import Budgets, SessionAccounts
from ccb.local.ledger.call_ledger import open_ledger
from ccb.tunnel.proxy.auth_proxy import AuthProxy
from ccb.tunnel.wire.frames import Json

JSON, STREAM = {"content-type": "application/json"}, {"content-type": "text/event-stream"}
PAID: Json = {"input_tokens": 1_200_000, "output_tokens": 1}  # $6 of claude-opus-4-5
FEW: Json = {"input_tokens": 3, "output_tokens": 1}
STOP = b'event: message_stop\ndata: {"type": "message_stop"}\n\n'
MODEL = "claude-opus-4-5"


def whole(usage: object = PAID, size: int = 0, **more: object) -> bytes:
    """An answer in one piece, with a tool call behind so many characters."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"command": "ls"}}
    message: Json = {"type": "message", "model": MODEL, "content": [{"type": "text", "text": "x" * size}, call], **more}
    return json.dumps(message if usage is None else {**message, "usage": usage}).encode()


def stream(usage: object = PAID, stop: str | None = "tool_use") -> bytes:
    start: Json = {"type": "message_start", "message": {"model": MODEL, "content": []}}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {}}
    end: Json = {"type": "message_delta", "delta": {"stop_reason": stop}}
    events = [
        start,
        {"type": "content_block_start", "index": 0, "content_block": call},
        {"type": "content_block_stop", "index": 0},
        end if usage is None else {**end, "usage": usage},
        {"type": "message_stop"},
    ]
    return b"".join(b"event: %s\ndata: %s\n\n" % (e["type"].encode(), json.dumps(e).encode()) for e in events)


ONCE, TWICE, ALL = 1, 2, 5
"""How many of five calls reach the provider: one of $6 uses the budget up; the most that one may cost, of which the
answer tells nothing, is $3.20; and what is free may be asked for again and again."""

WAYS: dict[str, tuple[Json, bytes, dict[str, str], int]] = {  # the request, the answer and its headers
    "streamed": ({"stream": True}, stream(), STREAM, ONCE),
    "streamed under another name": ({"stream": True}, stream(), JSON, ONCE),
    "streamed with carriage returns": ({"stream": True}, stream().replace(b"\n", b"\r"), STREAM, ONCE),
    "streamed with both line ends": ({"stream": True}, stream().replace(b"\n", b"\r\n"), STREAM, ONCE),
    "streamed in lines of data": ({"stream": True}, stream().replace(b', "', b',\ndata: "'), STREAM, ONCE),
    "streamed with usage in part": ({}, stream({**FEW, "cache_read_input_tokens": "1200000"}), STREAM, TWICE),
    "streamed with usage and no end": ({}, stream(FEW, stop=None).removesuffix(STOP), STREAM, TWICE),
    "streamed without usage": ({"stream": True}, stream(None), STREAM, TWICE),
    "streamed with usage 0": ({"stream": True}, stream({"input_tokens": 0, "output_tokens": 0}), STREAM, TWICE),
    "streamed with usage that is none": ({"stream": True}, stream([1]), STREAM, TWICE),
    "streamed without an end that is known": ({}, stream().partition(b"event: message_d")[0], STREAM, TWICE),
    "streamed, compressed": ({}, gzip.compress(stream()), {**STREAM, "content-encoding": "gzip"}, TWICE),
    "in one piece": ({"stream": False}, whole(), JSON, ONCE),
    "in one piece without being asked": ({"stream": True}, whole(), STREAM, ONCE),
    "in one piece, nothing said of streams": ({}, whole(), JSON, ONCE),
    "in one piece behind blanks": ({}, b"\xef\xbb\xbf \r\n" + whole(), JSON, ONCE),
    "in one piece of 3 MiB": ({"stream": False}, whole(size=3 << 20), JSON, ONCE),
    "in one piece without usage": ({}, whole(None), JSON, TWICE),
    "in one piece with usage null": ({}, whole(usage=None, usage_=None), JSON, TWICE),
    "in one piece with negative usage": ({}, whole({"input_tokens": -5, "output_tokens": "many"}), JSON, TWICE),
    "in one piece that is cut": ({}, whole()[:-2], JSON, TWICE),
    "in one piece as an array": ({"stream": False}, b"[%b]" % whole(), JSON, TWICE),
    "in one piece behind a guard against scripts": ({"stream": False}, b")]}'\n" + whole(), JSON, TWICE),
    "in one piece behind a NUL": ({"stream": False}, b"\0" + whole(), JSON, TWICE),
    "in one piece in UTF-16": ({"stream": False}, whole().decode().encode("utf-16"), JSON, TWICE),
    "in one piece of 33 MiB": ({"stream": False}, whole(size=33 << 20), JSON, TWICE),
    "in one piece, compressed": ({}, gzip.compress(whole()), {**JSON, "content-encoding": "gzip"}, TWICE),
    "with unknown fields": ({"n": 4, "best_of": 3, "\u00e4": [1]}, whole(), JSON, ONCE),
    "with another tier and speed": ({"service_tier": "auto", "speed": "fast"}, whole(), JSON, ONCE),
    "an error in place of an answer": ({}, b'{"error": {"message": "overloaded", "code": 529}}', JSON, ALL),
    "an error in a stream": ({}, b'data: {"error": {"message": "overloaded"}}\n\ndata: [DONE]\n\n', STREAM, ALL),
    "an error by its name": ({}, b'event: error\ndata: {"message": "overloaded"}\n\n', STREAM, ALL),
    "an answer with an error": ({}, whole(None, error={"message": "odd"}), JSON, TWICE),
    "counted": ({}, b'{"input_tokens": 9}', JSON, ALL),
    "in a batch": ({"requests": [{"custom_id": "a", "params": {}}]}, whole(), JSON, 0),
}
UNREADABLE = ("compressed", "cut", "array", "guard", "NUL", "UTF-16", "33 MiB")
PATHS = {"counted": "/v1/messages/count_tokens", "in a batch": "/v1/messages/batches"}


@pytest.mark.parametrize("way", WAYS)
async def test_five_calls_of_six_dollars_do_not_pass_a_budget_of_six(tmp_path: Path, way: str) -> None:
    request, answer, headers, reach = WAYS[way]
    body = json.dumps({"model": MODEL, "max_tokens": 128_000, "messages": [], **request}).encode()
    asked = []

    async def upstream(got: web.Request) -> web.Response:
        asked.append(await got.read())
        return web.Response(body=answer, headers=headers)

    async with (
        serving(upstream) as url,
        SessionAudit(tmp_path) as audit,
        SessionAccounts(tmp_path, Budgets(run_usd=6.0)) as accounts,
        AuthProxy(router_to(url), accounts=accounts, auditor=audit) as proxy,
    ):
        for number in range(5):
            await answer_to(proxy, body, call_id=f"c{number}", path=PATHS.get(way, "/v1/messages"))
            await until(lambda: not proxy.under_way)
    assert len(asked) == reach
    with open_ledger(tmp_path) as ledger:
        rows = [each.kind for _, each in ledger.audited("") if each.kind == "wanted"]
        sums = next(iter(ledger.sums("model")), None)
    if reach in (ONCE, TWICE):
        assert sums is not None and sums.usd >= 6.0 and sums.estimated == (reach if reach == TWICE else 0)
        readable = not any(word in way for word in UNREADABLE)
        assert len(rows) == (reach if readable else 0), "the audit has the tool call of each answer"
