"""What a login may ask the person, and the answers of a run in which nobody can be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from ..errors import HostKeyError
from .host_keys import HostKeyInfo, pattern_for

if TYPE_CHECKING:
    import asyncssh

_LOGINS_AT_ONCE = 6  # at one server, which counts a login a little longer than it takes


class LoginMemory:
    """What a process remembers of its logins: unlocked private keys by the SHA-256 of their files (no passphrases), the
    sentences that were `said`, `accepted` host keys that could not be stored, the inodes of `silent_masters`, the
    records of kept connections with sleep and addresses by then, the keys of unlocked credential files, and the
    credentials that were `given` for sessions on a host (the first name), by the host of their provider."""

    def __init__(self) -> None:
        self.keys: dict[bytes, asyncssh.SSHKey] = {}
        self.said: set[str] = set()
        self.accepted: set[tuple[str, int, bytes]] = set()
        self.silent_masters: set[int] = set()
        self.kept_connections: dict[Path, tuple[float, object]] = {}
        self.seals: dict[Path, object] = {}
        self.given: dict[tuple[str, str], object] = {}
        self._turns: dict[tuple[str, int], asyncio.Semaphore] = {}

    def turn(self, address: str, port: int) -> asyncio.Semaphore:
        """Return what a login holds until this server, the first on the way, has let it in: a server drops connections
        when too many log in at once (MaxStartups, 10 by default)."""
        return self._turns.setdefault((address, port), asyncio.Semaphore(_LOGINS_AT_ONCE))


class Prompts(Protocol):
    """Asks the person. An answer of None means that they gave up."""

    @property
    def memory(self) -> LoginMemory: ...

    async def confirm_host_key(self, info: HostKeyInfo) -> bool: ...

    async def passphrase(self, path: str, attempt: int) -> str | None: ...

    async def password(self, prompt: str, attempt: int) -> str | None: ...

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        """Return the answers to keyboard-interactive `prompts` (text, echo). All texts are neutralised already."""

    def banner(self, text: str) -> None:
        """Show a text of the server, or of ccb about the login. It is neutralised already."""


class NobodyToAsk:
    """The prompts of a headless run: they refuse to answer. `tell` shows sentences of ccb itself, no banners."""

    def __init__(self, memory: LoginMemory | None = None, tell: Callable[[str], None] | None = None) -> None:
        self.memory = memory if memory is not None else LoginMemory()
        self.tell = tell

    async def confirm_host_key(self, info: HostKeyInfo) -> bool:
        name = pattern_for(info.host, info.port)
        raise HostKeyError(
            f"the host key of {info.host} is not known",
            evidence=f"It shows {info.algorithm} {info.fingerprint}; {info.store} has no key for {name}.",
            do="Check the fingerprint, then connect once in a terminal (ccb or ssh, same options) to store the key.",
        )

    async def passphrase(self, path: str, attempt: int) -> str | None:
        return None

    async def password(self, prompt: str, attempt: int) -> str | None:
        return None

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        return None

    def banner(self, text: str) -> None:
        return None


def is_told(prompts: Prompts) -> bool:
    """Return whether the person sees a banner at once, and not with the next question of an interface."""
    return not isinstance(prompts, NobodyToAsk) and getattr(prompts, "pause", None) is None


def tell_once(prompts: Prompts, sentence: str) -> None:
    """Show a sentence, neutralised already, once in the life of a process, also if nobody can be asked."""
    show = prompts.tell if isinstance(prompts, NobodyToAsk) else prompts.banner
    if show is not None and sentence not in prompts.memory.said:
        prompts.memory.said.add(sentence)
        show(sentence)
