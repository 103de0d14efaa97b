"""Errors in the conversation: each with what happened and what to do."""

from __future__ import annotations

import pytest
from tests.support.repl.paper import Paper
from tests.support.repl.pilot import desk

from ccb.local.transcript.blocks import Level
from ccb.local.tui.rendering.tool_output import error_lines
from ccb.remote.model.retry import ModelError
from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.proxy.policy import CallGrant


def _revoked() -> CallGrant:
    grant = CallGrant()
    grant.revoked = True
    return grant


def _said(grant: CallGrant) -> str:
    refusal = grant.refusal()
    assert refusal is not None
    return refusal.message


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        (ModelError("prompt is too long: 5 > 4", status=400).prose("m"), "→ Send /compact."),
        (ModelError("prompt is too long", status=400).prose("m", answered=False), "→ Take it back with /rewind"),
        (
            "API Error: 429 no · send it again in 9 min, after Sat 09:30 UTC",
            "→ Send it again in 9 min, after Sat 09:30",
        ),
        ("API Error: 429 slow down", "→ The provider limits how much you may ask"),
        ("API Error: 529 overloaded", "→ The provider has trouble of its own"),
        ("API Error: 400 bad", "→ Choose another model with /model, or begin anew"),
        (f"API Error: {_said(CallGrant(0.0))}", "→ Leave, and resume the session; `expiresHours`"),
        (f"API Error: {_said(_revoked())}", "→ Leave, and resume the session, to grant it again."),
        ("API Error: the laptop's settings do not allow the model 'x' here, only y", "→ `modelCalls` in the settings"),
        ("API Error: the answer did not arrive", "→ Send it again; /doctor"),
        ("No more model calls: the budget of this day is used up: $2.00 of $1.00.", "→ Raise it under `budgets`"),
    ],
)
def test_an_error_of_a_model_call_says_what_helps(error: str, fix: str) -> None:
    what, said = error_lines(error)
    assert error.startswith(what)
    assert said.startswith(fix)


def test_a_refused_key_is_said_in_plain_words_above_what_the_api_said() -> None:
    what, evidence, fix = error_lines(ModelError("invalid x-api-key", status=401).prose("m"))
    assert what == "The API refused the key (401)."
    assert (evidence, fix[:25]) == ("API Error: 401 invalid x-api-key", "→ /login asks for another")


@pytest.mark.parametrize("error", ["something else", "what\nevidence\n→ the one thing"])
def test_an_error_that_says_itself_what_to_do_or_that_is_not_known_stays_as_it_is(error: str) -> None:
    assert error_lines(error) == error.splitlines()


async def test_an_error_is_a_card_with_a_bar_that_is_not_copied() -> None:
    async with desk(size=(60, 30)) as at:
        error = ConnectionLost("It broke. " * 10, evidence="exit 1", do="Mend it.")
        at.view.reducer.notice("before")
        at.view.actions.show_error(error)
        await at.sees("▌ It broke.", "▌ exit 1", "▌ → Mend it.")
        assert len([line for line in at.lines if line.strip().startswith("▌")]) == 4, "the long line has a bar as well"
        at.app.screen.text_select_all()
        copied = at.app.screen.get_selected_text() or ""
        assert ("It broke. " * 10).strip() + "\nexit 1\n→ Mend it." in copied


def test_a_budget_that_is_used_up_is_said_once(told: Paper) -> None:
    told.apply()
    told.reducer.notice("first")
    said = "the budget of the session is used up: $2.00 of $1.00"
    told.reducer.notice(f"No more model calls: {said}.", Level.WARNING)
    told.finish(subtype="error_during_execution", is_error=True, errors=[said])
    told.sees("▌ No more model calls", "→ Raise it under `budgets`")
    assert told.screen.count("is used up") == 1
