"""The person's prompts on the page: each once, whoever sent it, with what is known of its way to the agent."""

from __future__ import annotations

from collections import deque

from ccb.tunnel.plain_text import neutralise

from .block_container import Page
from .blocks import MAX_BLOCK_CHARS, Block, PromptBlock, PromptState

_KNOWN = 1_000


class Asked:
    """Prompts that wait (for the connection, or for the agent) stay below everything else."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._known: deque[str] = deque(maxlen=_KNOWN)  # ids of prompts that are shown
        self._waiting: dict[str, PromptBlock] = {}  # below everything else, in order
        self._unconfirmed: dict[str, PromptBlock] = {}  # sent from here; the journal has not said that it has them
        self._carried: dict[str, tuple[Page, PromptBlock]] = {}  # told without the event that brought them

    def first_waiting(self) -> Block | None:
        """The highest of the blocks that wait."""
        return next(iter(self._waiting.values()), None)

    @property
    def queued(self) -> bool:
        """Whether the worker has prompts that the agent has not taken."""
        return any(block.state is PromptState.QUEUED for block in self._waiting.values())

    @property
    def unsent(self) -> bool:
        """Whether a prompt waits for the connection, as far as is known here."""
        return any(block.state is PromptState.UNSENT for block in self._waiting.values())

    def knows(self, *ids: str) -> bool:
        """Whether a prompt is shown already."""
        return any(each in self._known for each in ids if each)

    def share(self, other: Asked) -> None:
        """Show nothing that `other` shows, from now on in both directions."""
        self._known = other._known
        self._carried = other._carried

    def sent(self, text: str, uuid: str, *, running: bool, connected: bool) -> None:
        """The person sends a prompt here."""
        state = PromptState.QUEUED if running else PromptState.TAKEN
        block = self._show(text, state if connected else PromptState.UNSENT, uuid)
        self._unconfirmed[uuid] = block

    def arrived(self, text: str, ids: tuple[str, ...], *, running: bool, taken: bool = False) -> bool:
        """The journal has a prompt; whether it is new here. `ids`: the input's first, then its message's."""
        for each in ids:
            block = self._unconfirmed.pop(each, None)
            if block is not None:
                self._confirmed(each, block, running=running)
                return False
        carried = [self._carried.pop(each) for each in ids if each in self._carried]
        for page, shown in carried:
            page.take_away(shown)  # here is its place
        if self.knows(*ids) and not carried:
            return False
        self._show(text, PromptState.QUEUED if running and not taken else PromptState.TAKEN, *ids)
        return True

    def skipped(self, prompts: object) -> None:
        """Events are not loaded; what a snapshot says of the prompts that wait after them, or whose turn runs."""
        if not isinstance(prompts, list):
            return
        known = [each for each in prompts if isinstance(each, dict) and str(each.get("text") or "").strip()]
        waiting = {str(each.get(name)) for each in known for name in ("input", "uuid") if each.get("taken") is not True}
        for each, block in list(self._waiting.items()):
            if block.state is PromptState.QUEUED and each not in waiting and each not in self._unconfirmed:
                self.taken(each)
        for item in known:
            ids = tuple(dict.fromkeys((str(item.get("input")), str(item.get("uuid") or ""))))
            self._skipped(str(item["text"]), ids, taken=item.get("taken") is True)

    def _skipped(self, text: str, ids: tuple[str, ...], *, taken: bool) -> None:
        if not self.knows(*ids):
            block = self._show(text, PromptState.TAKEN if taken else PromptState.QUEUED, *ids)
            if taken:
                self._carried[ids[0]] = self._page, block
            return
        if ids[0] in self._carried:
            return  # of an earlier snapshot
        self.arrived(text, ids, running=True)
        if taken:
            for each in ids:
                self.taken(each)

    def taken(self, uuid: str) -> bool:
        """The agent takes a prompt: it moves to where the conversation is. False when it is not known here."""
        block = self._waiting.pop(uuid, None)
        self._unconfirmed.pop(uuid, None)
        if block is not None:
            self._page.take_away(block)
            block.state = PromptState.TAKEN
            block.changed()
            self._page.add(block, before=self.first_waiting())
        return block is not None or uuid in self._known

    def failed(self, uuid: str) -> bool:
        """The prompt did not leave the laptop; whether it was one that waits."""
        block = self._forget(uuid)
        waited = self._waiting.pop(uuid, None) is not None
        if block is not None:
            block.state = PromptState.FAILED
            self._page.update_block(block)
        return waited

    def refused(self, uuid: str) -> None:
        """The prompt was not sent and is not shown: the person has it again."""
        self._waiting.pop(uuid, None)
        block = self._forget(uuid)
        if block is not None:
            self._page.take_away(block)

    def link_lost(self) -> bool:
        """What the journal has not confirmed waits for the connection; whether there is any."""
        for uuid, block in self._unconfirmed.items():
            if uuid not in self._waiting:
                self._page.take_away(block)
                self._page.add(block)
                self._waiting[uuid] = block
            self._set(block, PromptState.UNSENT)
        return bool(self._unconfirmed)

    def all_sent(self, *, running: bool) -> None:
        """The host has everything, though its word for it was skipped."""
        for uuid, block in list(self._unconfirmed.items()):
            self._confirmed(uuid, block, running=running)
        self._unconfirmed.clear()

    def forked(self) -> None:
        """What waits for the agent of the original is not the copy's, and nothing of its conversation; what the person has
        sent here meanwhile is."""
        for uuid, block in list(self._waiting.items()):
            if uuid not in self._unconfirmed:
                del self._waiting[uuid]
                self._page.take_away(block)

    def settle(self) -> None:
        """Nothing is known of later: what waits was taken."""
        for uuid in list(self._waiting):
            self.taken(uuid)

    def _confirmed(self, uuid: str, block: PromptBlock, *, running: bool) -> None:
        if block.state is PromptState.UNSENT and not running:
            self.taken(uuid)
        elif block.state is PromptState.UNSENT:
            self._set(block, PromptState.QUEUED)

    def _show(self, text: str, state: PromptState, *ids: str) -> PromptBlock:
        self._known.extend(each for each in ids if each)
        block = PromptBlock(text=neutralise(text)[:MAX_BLOCK_CHARS], state=state)
        self._page.add(block, before=self.first_waiting() if state is PromptState.TAKEN else None)
        if state is not PromptState.TAKEN:
            self._waiting[ids[0]] = block
        return block

    def _set(self, block: PromptBlock, state: PromptState) -> None:
        if block.state is not state:
            block.state = state
            self._page.update_block(block)

    def _forget(self, uuid: str) -> PromptBlock | None:
        return self._unconfirmed.pop(uuid, None)


def prompt_text(body: object) -> str:
    """The text of a public user message; empty when it has none."""
    message = body.get("message") if isinstance(body, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, list):
        content = "\n".join(str(each.get("text", "")) for each in content if isinstance(each, dict))
    return content if isinstance(content, str) and content.strip() else ""
