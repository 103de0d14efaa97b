"""Prompts that a host names do not grow the screen without end."""

from __future__ import annotations

from ccb.local.session.session_client import parse_snapshot
from ccb.local.transcript.blocks import MAX_BLOCK_CHARS, BlockList, PromptBlock, PromptState
from ccb.local.transcript.prompt_tracker import PromptTracker


def test_more_prompts_than_a_worker_queues_move_up_into_the_conversation() -> None:
    screen = BlockList()
    prompts = PromptTracker(screen)
    prompts.sent("mine", "mine", running=True, connected=True)
    for number in range(3_000):
        prompts.arrived(f"forged {number}", (f"id-{number}",), running=True)
    waiting = prompts.waiting
    assert len(waiting) == 1_001 and waiting[0].text == "mine" and waiting[-1].text == "forged 2999"
    moved = [each for each in screen.blocks if isinstance(each, PromptBlock) and each.state is PromptState.TAKEN]
    assert len(moved) == 2_000, "the conversation has its own limit"


def test_large_prompts_that_wait_have_a_limit_together() -> None:
    prompts = PromptTracker(BlockList())
    for number in range(100):
        prompts.arrived("x" * MAX_BLOCK_CHARS, (f"id-{number}",), running=True)
    assert sum(len(each.text) for each in prompts.waiting) <= 8 * 1024 * 1024


def test_prompts_of_snapshots_that_never_get_their_place_are_forgotten() -> None:
    prompts = PromptTracker(BlockList())
    for number in range(3_000):
        taken = {"ids": [f"id-{number}"], "text": "forged", "taken": True}
        prompts.snapshot(parse_snapshot({"prompts": [taken]}).prompts or ())
    assert len(prompts._from_snapshot) <= 1_000
