"""What a session says, given to those who show it: the story, the open questions, the lines for what is not loaded."""

from __future__ import annotations

import time
from collections.abc import Callable

from ..session.client import Received, SessionClient, Skipped
from ..session.messages import ControlCancelRequest, ControlRequest, Result, parse_message
from .approvals import Approvals
from .model.blocks import Level
from .model.transcript_reducer import Story
from .widgets.history import History, tell


class Feed:
    """`ring` is called for what the person may be waiting for; never for what had happened before this client came."""

    def __init__(
        self, client: SessionClient, story: Story, approvals: Approvals, history: History, ring: Callable[[], None]
    ) -> None:
        self._client = client
        self._story = story
        self._approvals = approvals
        self._history = history
        self._ring = ring

    def skipped(self, item: Skipped) -> None:
        """Events are not loaded: a line stands for them, and what they leave behind is taken over."""
        approvals = self._approvals
        self._history.skipped(approvals.replay.seq, item.seq + 1)
        approvals.replay.heard(item.seq, time.monotonic(), replayed=True)
        self._story.skipped(item.body, running=self._client.hello.state != "idle")
        asks = item.body.get("asks")
        messages = [parse_message(each) for each in asks if isinstance(each, dict)] if isinstance(asks, list) else []
        if approvals.questions.only(each for each in messages if isinstance(each, ControlRequest)):
            self._story.notice("The question that was open here has been settled meanwhile.", Level.DIM)
        approvals.show_next()

    def received(self, item: Received) -> None:
        """An event, or progress."""
        approvals = self._approvals
        approvals.replay.heard(item.seq, time.monotonic(), replayed=item.replayed)
        message = tell(self._story, item)
        if item.kind == "input":
            self._input(item.body.get("body"))
        elif isinstance(message, ControlRequest) and message.request.subtype == "can_use_tool":
            if approvals.questions.asked(message) and not item.replayed:
                self._ring()
            approvals.show_next()
        elif isinstance(message, ControlCancelRequest):
            approvals.questions.withdrawn(message.request_id)
            approvals.show_next()
        elif isinstance(message, Result) and not item.replayed:
            self._ring()

    def _input(self, body: object) -> None:
        """Somebody sent something; an answer ends its question for everybody."""
        response = body.get("response") if isinstance(body, dict) else None
        if not isinstance(response, dict):
            return
        request_id = str(response.get("request_id"))
        lost = self._approvals.lost_against(request_id, response)
        if self._approvals.questions.withdrawn(request_id):
            self._story.notice("The question was answered by another client.", Level.DIM)
        elif lost:
            word = response.get("response")
            allowed = isinstance(word, dict) and word.get("behavior") == "allow"
            self._story.notice(
                f"Another client answered first: {'allowed' if allowed else 'denied'}. Your answer was dropped.",
                Level.WARNING,
            )
        self._approvals.show_next()
