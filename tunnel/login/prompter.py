"""What a login may have to ask the person, and the answer of a run where nobody can be asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from ..errors import HostKeyError
from .host_keys import HostKeyInfo, pattern_for

if TYPE_CHECKING:
    import asyncssh


class LoginMemory:
    """What a process keeps of its logins so far: `keys` that were unlocked, by the SHA-256 of their files (never a passphrase),
    the sentences that were `said`, and the host keys that were `accepted` (name, port, public key) and could not be stored."""

    def __init__(self) -> None:
        self.keys: dict[bytes, asyncssh.SSHKey] = {}
        self.said: set[str] = set()
        self.accepted: set[tuple[str, int, bytes]] = set()


class Prompts(Protocol):
    """Answers of the person. None means: gave up."""

    @property
    def memory(self) -> LoginMemory: ...

    async def confirm_host_key(self, info: HostKeyInfo) -> bool:
        """Whether to trust and store an unknown host key."""

    async def passphrase(self, path: str, attempt: int) -> str | None:
        """The passphrase of the private key at `path`; `attempt` counts from 1."""

    async def password(self, prompt: str, attempt: int) -> str | None:
        """The password for `prompt` (`user@host`)."""

    async def challenge(self, title: str, instructions: str, prompts: Sequence[tuple[str, bool]]) -> list[str] | None:
        """Answers to keyboard-interactive prompts; (text, echo) each. Texts are neutralised already."""

    def banner(self, text: str) -> None:
        """Show what the server says before the login, or what is to be said of it; neutralised already."""


class NobodyToAsk:
    """Prompts of a headless run: everything that would be asked is refused. `memory` may be that of another's logins. `tell`
    shows what ccb itself has to say of a login; the banners of servers are not shown."""

    def __init__(self, memory: LoginMemory | None = None, tell: Callable[[str], None] | None = None) -> None:
        self.memory = memory if memory is not None else LoginMemory()
        self.tell = tell

    async def confirm_host_key(self, info: HostKeyInfo) -> bool:
        name = pattern_for(info.host, info.port)
        raise HostKeyError(
            f"the host key of {info.host} is not known",
            evidence=f"It shows {info.algorithm} {info.fingerprint}; {info.store} has no key for {name}.",
            do="Check the fingerprint, then connect once in a terminal (ccb or ssh, same options): it asks, and stores the key.",
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
    """Whether the person reads a banner at once; an interface that has the screen shows it with its next question."""
    return not isinstance(prompts, NobodyToAsk) and getattr(prompts, "pause", None) is None


def tell_once(prompts: Prompts, sentence: str) -> None:
    """Say something of a login, once in the life of a process, also where nobody can be asked; neutralised already."""
    show = prompts.tell if isinstance(prompts, NobodyToAsk) else prompts.banner
    if show is not None and sentence not in prompts.memory.said:
        prompts.memory.said.add(sentence)
        show(sentence)
