"""The person in front of the OpenSSH client, which asks every question in its own words."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ccb.tunnel.transports.login_prompts import LoginMemory


class SshAsks:
    """Answers the questions of ssh with `answers`, in order. Keeps what was `asked` (text, prompt, echo) and `told`."""

    def __init__(self, *answers: str | None) -> None:
        self.memory = LoginMemory()
        self.answers = list(answers)
        self.asked: list[tuple[str, str, bool]] = []
        self.told = ""

    async def confirm_host_key(self, info: object) -> bool:
        raise AssertionError("ssh asks in its own words")

    async def passphrase(self, path: str, attempt: int) -> str | None:
        raise AssertionError("ssh asks in its own words")

    async def password(self, prompt: str, attempt: int) -> str | None:
        raise AssertionError("ssh asks in its own words")

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        ((text, echo),) = prompts
        self.asked.append((instructions, text, echo))
        answer = await self.answer()
        return None if answer is None else [answer]

    async def answer(self) -> str | None:
        return self.answers.pop(0)

    def banner(self, text: str) -> None:
        self.told += text


@contextmanager
def ssh_environment(home: Path) -> Iterator[dict[str, str]]:
    """What ssh is started with; sockets go into the runtime directory, so its path is short."""
    with tempfile.TemporaryDirectory(prefix="ccbt-", dir="/tmp") as runtime:
        yield {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_RUNTIME_DIR": runtime}
