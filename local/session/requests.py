"""Questions of a session's client to its host that wait for an answer: control requests, and pages of earlier events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from ccb.tunnel.errors import ConnectionLost
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire import Event, Past

from .client import ControlError, Json, Received

_LOOKS = 60
"""How often the connection is looked at while an answer is waited for."""


class Requests:
    """Control requests wait over a loss of the connection, pages do not."""

    def __init__(self) -> None:
        self._controls: dict[str, asyncio.Future[Json]] = {}
        self._pages: dict[int, asyncio.Future[list[Received]]] = {}
        self._count = 0

    async def control(self, request_id: str, timeout: float, connected: Callable[[], bool]) -> Json:
        """The payload of the answer to `request_id`, which is sent meanwhile. Only time that passes while `connected` counts.

        Raises TimeoutError, ControlError (the host's refusal), ConnectionLost (the session is over).
        """
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        self._controls[request_id] = answer
        left, step = timeout, timeout / _LOOKS
        try:
            while left > 0:
                await asyncio.wait([answer], timeout=step)
                if answer.done():
                    return answer.result()
                left = left - step if connected() else timeout
            raise TimeoutError
        finally:
            self._controls.pop(request_id, None)

    @property
    def waiting(self) -> list[str]:
        """The ids of the control requests that wait."""
        return list(self._controls)

    def refuse(self, request_id: str, why: str) -> None:
        """This control request will not be answered."""
        waiting = self._controls.get(request_id)
        if waiting is not None and not waiting.done():
            waiting.set_exception(ControlError(why))

    def open_page(self) -> tuple[int, asyncio.Future[list[Received]]]:
        """The number of a new request for a page, and its answer."""
        self._count += 1
        answer: asyncio.Future[list[Received]] = asyncio.get_running_loop().create_future()
        self._pages[self._count] = answer
        return self._count, answer

    def close_page(self, number: int) -> None:
        """Nobody waits for this page any more."""
        self._pages.pop(number, None)

    def take_page(self, frame: Past) -> None:
        """A page has come."""
        answer = self._pages.get(frame.request)
        if answer is None or answer.done():
            return
        records = frame.body.get("records")
        listed = records if isinstance(records, list) else []
        answer.set_result(
            [Received(each["kind"], each["body"], each["seq"], True) for each in listed if _is_record(each)]
        )

    def take_answer(self, frame: Event) -> bool:
        """Hand an answer to the control request that waits for it; False when nobody here does."""
        if frame.kind != "message" or frame.body.get("type") != "control_response":
            return False
        response = frame.body.get("response")
        if not isinstance(response, dict):
            return False
        waiting = self._controls.get(str(response.get("request_id")))
        if waiting is None:
            return False
        if not waiting.done():
            if response.get("subtype") == "success":
                payload = response.get("response")
                waiting.set_result(payload if isinstance(payload, dict) else {})
            else:
                waiting.set_exception(ControlError(neutralise(str(response.get("error", "refused")))))
        return True

    def fail_pages(self) -> None:
        """The connection they were asked over is lost."""
        for page in self._pages.values():
            if not page.done():
                page.set_exception(ConnectionLost("the connection was lost", do="Try again after the reconnect."))

    def fail(self, why: str) -> None:
        """The session is over."""
        for waiting in self._controls.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost(why))
        self._controls.clear()
        self.fail_pages()


def _is_record(value: object) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("kind"), str)
        and isinstance(value.get("body"), dict)
        and isinstance(value.get("seq"), int)
    )
