"""What a headless run reports on stderr: retries of the model, damage in the journal, inputs that may be lost."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.messages import AssistantMessage, SystemMessage, as_number

from ..session.model_waits import retry_text, silence_text
from ..terminal.console import say

if TYPE_CHECKING:
    from ccb.tunnel.wire.journal_records import DamagedRecord

    from ..session.remote_session import RemoteSession
    from ..session.session_client import Json


_LAST_PAGE = 64 * 1024  # bytes of earlier events to search for the start of the worker


def report(text: str) -> None:
    """Write one line to stderr, whatever the text. What comes from the host in it cannot drive the terminal."""
    say(f"ccb: {text}")


_LONG_MS = 4_000


class RetryReports:
    """Reports that the model is asked again, and what the worker warns of, unless `quiet`: a stream contains both."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._retrying = False

    def system(self, message: SystemMessage) -> None:
        """Report the first retry of a model call, each that waits for long, and what the worker warns of."""
        if self._quiet:
            return
        if message.subtype == "informational" and message.body.get("level") == "warning":
            report(f"the host warns: {HostText(str(message.body.get('content')))}")
        if message.subtype == "model_silent" and (text := silence_text(message)):
            report(text)
        if message.subtype != "api_retry":
            return
        if message.attempt != 1 and as_number(message.body.get("retry_delay_ms")) < _LONG_MS:
            return
        self._retrying = True
        last = message.attempt == message.body.get("max_retries")  # it may be the end of the turn
        report(retry_text(message) if last else f"{retry_text(message)}; trying again")

    def assistant(self, message: AssistantMessage) -> None:
        if not message.is_api_error:
            self._retrying = False

    def turn_ended(self, result: Json) -> None:
        """Handle the end of a turn: if no retry reached the model, report what to check."""
        if self._retrying and result.get("is_error") and result.get("api_error_status") is None:
            report(
                "the model was not reached; check the network, the proxy and ANTHROPIC_BASE_URL of this machine "
                "(`ccb doctor`)"
            )
        self._retrying = False


def report_damage(damage: DamagedRecord) -> None:
    """Report damage in the journal, unless its worker has reported it already."""
    if damage.what:
        report(f"on the host: the session's journal is damaged: {HostText(damage.what)}")


async def report_earlier_damage(session: RemoteSession, before: int) -> None:
    """Report damage that the worker found before event `before`, when nobody was attached yet."""
    from ccb.tunnel.wire.journal_records import DamagedRecord, InputRecord, TurnStartRecord, WorkerRecord

    with suppress(CcbError):
        found: list[DamagedRecord] = []
        workers = 0
        for event in reversed(await session.earlier(before, _LAST_PAGE)):
            content = event.record.content
            workers += isinstance(content, WorkerRecord)
            if workers > 1 or isinstance(
                content, InputRecord | TurnStartRecord
            ):  # from here on a client was attached and saw the reports
                break
            if isinstance(content, DamagedRecord):
                found.append(content)
        for damage in reversed(found):
            report_damage(damage)


def add_unsent(error: CcbError, session: RemoteSession) -> None:
    if session.unsent:
        unsent = f"{session.unsent} input(s) were not confirmed by the host and may be lost."
        error.evidence = f"{error.evidence}\n{unsent}" if error.evidence else unsent
