"""Go back to an earlier message before, or instead of, a headless run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ccb.tunnel.errors import UsageError
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.wire.kinds.rewind import DROPS_MORE, REWIND_CONVERSATION, REWIND_FILES, ConversationRewind, FileRewind
from ccb.tunnel.wire.requests import Request, RequestFailed

if TYPE_CHECKING:
    from ..session.remote_session import RemoteSession


async def go_back_to(session: RemoteSession, message: str, drops: str = "") -> None:
    """Let the conversation go on after a message. `drops` is the prompt of the only turn that may be left out. Raise
    UsageError if the session cannot."""
    try:
        await session.request(Request(REWIND_CONVERSATION, ConversationRewind(after=message, drops=drops)))
    except RequestFailed as refused:
        if str(refused).startswith(DROPS_MORE):
            raise UsageError(
                str(refused),
                do="Resume without --resume-session-at, or name the last message of the turn that stays.",
            ) from None
        raise UsageError(
            f"the session cannot go on from that message: {HostText(str(refused))}",
            do="Give --resume-session-at the uuid of a message that this session has printed.",
        ) from None


async def restored_files(session: RemoteSession, prompt: str) -> str:
    """Put the files back to before a prompt, and say which. Raise UsageError if that cannot be done."""
    try:
        done = await session.request(Request(REWIND_FILES, FileRewind(prompt)))
    except RequestFailed as refused:
        raise UsageError(
            f"the files were not put back: {HostText(str(refused))}",
            do="Give --rewind-files the uuid of a prompt of this session; /rewind in the REPL lists the prompts.",
        ) from None
    names = [HostText(str(each)).path for each in done.get("filesChanged") or ()]
    failed = [each for each in done.get("failed") or () if isinstance(each, dict)]
    lost = [
        f"{HostText(str(each.get('path'))).path} was not restored: {HostText(str(each.get('why')))}" for each in failed
    ]
    put_back = [name for name in names if name not in {HostText(str(each.get("path"))).path for each in failed}]
    said = f"put back: {', '.join(put_back)}" if put_back else "no file was changed since"
    return "; ".join([said, *lost])
