"""The card on which the person fills in the form of an MCP server."""

from __future__ import annotations

from tests.support.repl.pilot import Desk, desk

from ccb.local.transcript.questions import read_server_form
from ccb.tunnel.wire.control_protocol import Request
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.mcp_messages import ELICITATION, Elicitation

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "title": "Colour", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g"}]},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 2},
        "gift": {"type": "boolean"},
        "note": {"type": "string", "description": "for the parcel"},
    },
    "required": ["colour", "count"],
}


async def asked(at: Desk, form: Elicitation, request_id: str = "laptop-1") -> None:
    """Let the server ask, and go to the card."""
    await at.turn()
    at.session.progress(Request(ELICITATION, form, id=request_id).public())
    await at.card_focused()


async def answer(at: Desk, request_id: str = "laptop-1") -> Json:
    await at.until(lambda: at.session.answers)
    return at.session.answers[request_id]


async def test_a_form_is_filled_in_and_its_values_have_their_types() -> None:
    async with desk(size=(90, 30)) as at:
        await asked(at, Elicitation("shop", "What shall it be?", requested_schema=SCHEMA))
        await at.sees("The MCP server shop asks: Colour (1 of 4) on this laptop", "? What shall it be?", "1 ○ Red")
        await at.alone("1", "enter", sees=("count (2 of 4)", "● 2"))
        await at.alone("1", "enter", "backspace", "7", "0", "enter", sees="Wanted: at most 9.")
        await at.alone("backspace", "enter", sees=("gift (optional)", "1 ○ yes"))
        await at.alone("2", "enter", sees=("note: for the parcel (optional)", "1 ○ type the answer"))
        await at.alone("enter", sees=("your answers", "1 What shall it be? Colour", "→ 7", "→ no answer"))
        await at.alone("left", "a", "s", "enter")  # where only a text is asked for, it can be typed at once
        await at.sees("→ as")
        await at.alone("enter")
        filled = {"colour": "r", "count": 7, "gift": False, "note": "as"}
        assert await answer(at) == {"action": "accept", "content": filled}


async def test_the_last_row_declines_and_a_form_that_cannot_be_shown_has_no_other() -> None:
    async with desk(size=(90, 24)) as at:
        await asked(
            at, Elicitation("shop", "Your \x1b[31mname?", requested_schema={"properties": {"n": {"type": "object"}}})
        )
        await at.sees("ccb cannot show", "1   no answer")
        await at.alone("1", "enter")
        assert await answer(at) == {"action": "decline"}
        await asked(at, Elicitation("shop", "Sure?", requested_schema={"properties": {}}), "2")
        await at.sees("1 ○ yes", "on devbox:/srv/shop")  # the host asks
        await at.alone("2", "enter")
        assert await answer(at, "2") == {"action": "decline"}


async def test_an_address_is_shown_and_never_opened() -> None:
    async with desk(size=(90, 24)) as at:
        await asked(at, Elicitation("shop", "Pay first.", "url", None, "https://pay.example/1"))
        await at.sees("Pay first.", "https://pay.example/1", "I have opened it")
        await at.alone("1", "enter")
        assert await answer(at) == {"action": "accept"}


def test_schemas_that_are_not_of_the_restricted_kind_are_refused() -> None:
    for schema in (None, {}, {"properties": {"a": 1}}, {"properties": {str(n): {"type": "string"} for n in range(99)}}):
        assert read_server_form("m", schema) is None
    many = {"type": "array", "items": {"enum": ["a", "b"]}, "default": ["b"]}
    found = read_server_form("m", {"properties": {"x": many, "mail": {"type": "string", "format": "email"}}})
    assert found is not None
    assert found.fields[0].several and found.entries[0].chosen == [1]
    assert found.content({"x": ["a", "b"], "mail": []}) == {"x": ["a", "b"]}
    assert found.fields[1].problem("nobody") and not found.fields[1].problem("a@b.c")
