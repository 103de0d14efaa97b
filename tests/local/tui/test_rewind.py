"""Going back to an earlier prompt in the REPL."""

from __future__ import annotations

import pytest
from tests.support.repl.pilot import Desk

from ccb.tunnel.wire.frames import Json

POINTS: Json = {
    "points": [
        {"id": "u2", "text": "now the second\x1b[31m thing", "time": 2.0, "files": 2},
        {"id": "u1", "text": "the first thing", "time": 1.0, "files": 3},
    ],
    "files_kept": True,
}
PREVIEW = {
    "files": [
        {"path": "/srv/shop/cart.py", "insertions": 3, "deletions": 1, "does": "change", "changedElsewhere": True},
        {"path": "/srv/shop/new.py", "insertions": 0, "deletions": 9, "does": "remove"},
        {"path": "/srv/shop/gone.py", "why": "its earlier content is not kept any more"},
    ],
    "prompt": "the first thing",
}


def answers(at: Desk) -> None:
    at.session.control_answers.update(
        rewind_points=POINTS, rewind_files=PREVIEW, rewind_conversation={**PREVIEW, "failed": []}
    )


async def test_a_person_picks_a_prompt_and_what_goes_back(at: Desk) -> None:
    answers(at)
    await at.enter("/rewind", sees=("Go back to before which prompt?", "› now the second thing  2 files changed since"))
    await at.press("down", "enter", sees=("~ cart.py  +3 -1  changed by something else since", "- new.py  +0 -9"))
    await at.sees("gone.py  stays: its earlier content is not kept any more", "› 1 conversation and files")
    assert ("rewind_files", {"user_message_id": "u1", "dry_run": True, "path": ""}) in at.session.controls
    await at.press("enter")
    await at.until(lambda: at.composer.text == "the first thing")  # to be changed and sent again
    conversation = {"user_message_id": "u1", "after": "", "files": True, "drops": ""}
    assert at.session.controls[-1] == ("rewind_conversation", conversation)
    assert not at.view.rewinding.display and at.app.focused is at.composer
    at.session.fact(
        "rewind",
        message="u1",
        to=3,
        text="the first thing",
        files=[{"path": "/srv/shop/cart.py"}, {"path": "/etc/hosts"}],
    )
    at.session.fact("rewound", failed=[{"path": "/srv/shop/x", "why": "it was changed meanwhile"}])
    await at.sees(
        "Gone back to before: the first thing",
        "Restored 2 files:",
        "\n cart.py",
        "\n /etc/hosts",
        "\n x was not restored",
    )


async def test_esc_twice_opens_it_and_esc_leaves_step_by_step(at: Desk) -> None:
    answers(at)
    await at.press("escape")
    assert "press Esc again" in at.status
    await at.press("escape", sees="Go back to before which prompt?")
    await at.press("enter", sees=("2 conversation only", "3 files only"))
    await at.press("escape", sees="Go back to before which prompt?")
    await at.press("enter", "3", "enter")
    await at.until(
        lambda: at.session.controls[-1] == ("rewind_files", {"user_message_id": "u2", "dry_run": False, "path": ""})
    )
    assert at.composer.text == ""
    await at.press("escape", "escape", sees="Go back to before which prompt?")
    await at.press("escape", then=lambda: not at.view.rewinding.display)


@pytest.mark.quick_rows(1)
@pytest.mark.parametrize(
    ("key", "line", "done", "given_back"),
    [
        ("4", "/compact --from u2", True, "now the second thing"),
        ("4", "/compact --from u2", False, ""),
        ("5", "/compact --up-to u2", True, ""),
    ],
)
async def test_a_part_of_the_conversation_is_summed_up(
    at: Desk, key: str, line: str, done: bool, given_back: str
) -> None:
    answers(at)
    newest = {**POINTS["points"][0], "prompt": "now the second thing"}
    at.session.control_answers["rewind_points"] = {"points": [newest], "summaries": True}
    at.session.control_answers["list_commands"] = {"commands": [{"name": "compact"}]}
    await at.enter("/rewind", sees="Go back to before which prompt?")
    await at.press("enter", sees=("thing”, or summarise", "4 summarise from here: this prompt and what follows"))
    await at.press(key, sees="Enter sums up")
    await at.press("enter", then=lambda: at.session.prompts == [line])
    assert not at.composer.text and not at.view.rewinding.display
    if done:
        at.session.say({"type": "system", "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9}})
    at.session.finish()
    await at.says("Next.", sees="Next.")
    assert at.composer.text == given_back


async def test_there_is_no_going_back_while_the_agent_works(at: Desk) -> None:
    answers(at)
    await at.turn(then=lambda: "working" in at.status)
    await at.enter("/rewind", then=lambda: "the agent is working" in at.status)
    assert not at.view.rewinding.display


async def test_what_was_rewound_folds_to_one_line_that_the_details_open(at: Desk) -> None:
    await at.turn("the first thing", then=lambda: "working" in at.status)
    await at.says("A first answer.", sees="A first answer.")
    at.session.finish()
    await at.enter("the second thing", sees="the second thing")
    at.session.begin()
    await at.says("A wrong answer.", sees="A wrong answer.")
    at.session.finish()
    at.session.fact("rewind", message=at.session.identities[1], to=9, text="the second thing", files=[])
    await at.sees("A first answer.", "── Gone back to before: the second thing  Ctrl+O", loses="A wrong answer.")
    assert "❯ the second thing" not in at.screen
    at.view.transcript.toggle_details()
    await at.sees("❯ the second thing", "A wrong answer.")
    at.session.fact("rewind", message=at.session.identities[0], to=3, text="the first thing", files=[])
    await at.sees("── Gone back to before: the first thing", "A first answer.", "A wrong answer.")
    assert "before: the second" not in at.screen, "a fold in a fold is part of it"
