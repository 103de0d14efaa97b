"""The prompts of a session on the screen: each is shown once, whoever sent it, with its progress towards the agent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from weakref import WeakValueDictionary

from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.wire.dataclass import dataclass

from ..session.newest import Newest
from ..session.session_client import SnapshotPrompt
from .blocks import (
    MAX_BLOCK_CHARS,
    Block,
    BlockContainer,
    FoldBlock,
    KeptPictures,
    NoticeBlock,
    PromptBlock,
    PromptFacts,
    PromptState,
)

_MAX_KNOWN = 1_000
_MAX_WAITING = 1_000  # no worker takes more
_MAX_WAITING_CHARS = 8 * 1024 * 1024
NO_FACTS = PromptFacts()


@dataclass(frozen=True)
class WaitingPrompt:
    """A prompt that the agent has not taken. `unsent`: the worker may not have it yet."""

    id: str
    text: str
    unsent: bool
    facts: PromptFacts

    @property
    def editable_text(self) -> str:
        """The text as it is typed: one that only looks like a command line or a note has a blank in front."""
        return self.text if self.facts.command_line or not self.text.startswith(("!", "#")) else f" {self.text}"


class PromptTracker:
    """Keeps prompts that wait below everything else. As a container it adds blocks above them. `can_steer`: the agent
    takes prompts while it works."""

    def __init__(self, container: BlockContainer, can_steer: Callable[[], bool] = lambda: True) -> None:
        self._container = container
        self.can_steer = can_steer
        self._pictures = KeptPictures(container)
        self._known: deque[str] = deque(maxlen=_MAX_KNOWN)  # ids of the shown prompts
        self._blocks: WeakValueDictionary[str, PromptBlock] = WeakValueDictionary()  # by each of their ids
        self._waiting: dict[str, PromptBlock] = {}  # below everything else, in order
        self._unconfirmed: dict[str, PromptBlock] = {}  # sent from here; we do not know yet that the journal has them
        self.unanswered: WaitingPrompt | None = None  # of this client: the agent has it, and has not said anything yet
        self.command_line = ""  # the newest command line of the person that is the agent's turn
        self.dropped: deque[str] = deque(maxlen=_MAX_KNOWN)  # taken out of the queue
        # Prompts of a snapshot: shown before the event that brought them is loaded, which then takes their place.
        self._from_snapshot: Newest[str, tuple[BlockContainer, PromptBlock]] = Newest(_MAX_KNOWN)

    def add(self, block: Block, *, before: Block | None = None) -> None:
        self.unanswered = self.unanswered if isinstance(block, NoticeBlock) else None
        self._container.add(block, before=before or self.first_waiting())

    def update_block(self, block: Block) -> None:
        self._container.update_block(block)

    def take_away(self, block: Block) -> None:
        self._container.take_away(block)

    def cut(self, first: Block, before: Block | None) -> list[Block]:
        return self._container.cut(first, before)

    def gone_back(self, uuid: str) -> list[Block]:
        """Take a prompt and what came of it away, and return that. It is [] if the prompt is not shown here."""
        block = self._blocks.get(uuid)
        gone = self.cut(block, self.first_waiting()) if block is not None and block.state is PromptState.TAKEN else []
        return [inner for each in gone for inner in (each.folded if isinstance(each, FoldBlock) else [each])]

    def first_waiting(self) -> Block | None:
        return next(iter(self._waiting.values()), None)

    @property
    def queued(self) -> bool:
        return self.queued_count > 0

    @property
    def queued_count(self) -> int:
        return sum(block.state is PromptState.QUEUED for block in self._waiting.values())

    @property
    def steering_count(self) -> int:
        return sum(block.state is PromptState.QUEUED and block.facts.steers is True for block in self._waiting.values())

    @property
    def waiting(self) -> list[WaitingPrompt]:
        return [
            WaitingPrompt(key, block.text, block.state is PromptState.UNSENT, block.facts)
            for key, block in self._waiting.items()
        ]

    @property
    def unsent(self) -> bool:
        return any(block.state is PromptState.UNSENT for block in self._waiting.values())

    def share(self, other: PromptTracker) -> None:
        """Use the same list of shown prompts as `other`, so that neither shows a prompt of the other again."""
        self._known = other._known
        self._blocks = other._blocks
        self._from_snapshot = other._from_snapshot

    def sent(self, text: str, uuid: str, *, running: bool, connected: bool, facts: PromptFacts = NO_FACTS) -> None:
        state = PromptState.QUEUED if running else PromptState.TAKEN
        self._unconfirmed[uuid] = block = self._show(
            text, state if connected else PromptState.UNSENT, uuid, facts=facts
        )
        self._note_unanswered(uuid, block)

    def arrived(
        self, text: str, ids: tuple[str, ...], *, running: bool, taken: bool = False, facts: PromptFacts = NO_FACTS
    ) -> bool:
        for each in ids:
            block = self._unconfirmed.pop(each, None)
            if block is not None:
                self._confirmed(each, block, running=running)
                return False
        early = [self._from_snapshot.pop(each) for each in ids if each in self._from_snapshot]
        for container, shown in early:
            container.take_away(shown)  # this is its place in the conversation
        if self._knows(ids) and not early:
            return False
        self._show(text, PromptState.QUEUED if running and not taken else PromptState.TAKEN, *ids, facts=facts)
        return True

    def snapshot(self, prompts: Iterable[SnapshotPrompt]) -> None:
        """Take over the prompts of a snapshot: `prompts` wait, or their turn is running."""
        prompts = list(prompts)
        waiting = {each for prompt in prompts if not prompt.taken for each in prompt.ids}
        for each, block in list(self._waiting.items()):
            if block.state is PromptState.QUEUED and each not in waiting and each not in self._unconfirmed:
                self.taken(each)
        for prompt in prompts:
            self._show_from_snapshot(prompt)

    def taken(self, uuid: str) -> bool:
        """Move a prompt up into the conversation. Return False for an unknown prompt."""
        block = self._waiting.pop(uuid, None)
        self._unconfirmed.pop(uuid, None)
        if block is not None:
            self._container.take_away(block)
            block.state = PromptState.TAKEN
            self._note_unanswered(uuid, block)
            self._note_command_line(block)
            block.changed()
            self._container.add(block, before=self.first_waiting())
        return block is not None or uuid in self._known

    def failed(self, uuid: str) -> bool:
        block = self._unconfirmed.pop(uuid, None)
        waited = self._waiting.pop(uuid, None) is not None
        if block is not None:
            block.state = PromptState.FAILED
            self._container.update_block(block)
        return waited

    def refused(self, uuid: str) -> None:
        shown = self._unconfirmed.pop(uuid, None), self._waiting.pop(uuid, None)
        for block in filter(None, shown):
            self._container.take_away(block)

    def taken_back(self, uuid: str) -> None:
        self.dropped.append(uuid)
        self.refused(uuid)

    def moved(self, uuid: str, before: Sequence[str], *, steers: bool = False) -> None:
        """Put a prompt in front of the first of `before` that waits, or last, behind those that steer."""
        block = self._waiting.pop(uuid, None)
        if block is None:
            return
        if steers and block.facts.steers is False:
            block.facts = replace(block.facts, steers=True)
            block.changed()
        following = next((each for each in before if each in self._waiting), "")
        if not following or self._waiting[following].facts.steers != block.facts.steers:
            queued = (each for each, other in self._waiting.items() if not other.facts.steers)
            following = next(queued, "") if block.facts.steers else ""
        before_it = self._waiting.get(following)
        order, shown = list(self._waiting), {**self._waiting, uuid: block}
        order.insert(order.index(following) if following else len(order), uuid)
        self._waiting = {each: shown[each] for each in order}
        self._container.take_away(block)
        self._container.add(block, before=before_it)

    def link_lost(self) -> bool:
        """Mark the prompts that the journal has not confirmed as unsent. Return whether there are any."""
        for uuid, block in self._unconfirmed.items():
            if uuid not in self._waiting:
                self._container.take_away(block)
                self._container.add(block)
                self._waiting[uuid] = block
            self._set_state(block, PromptState.UNSENT)
        return bool(self._unconfirmed)

    def all_sent(self, *, running: bool) -> None:
        """Mark all prompts as sent: the host has them, although the events that say so were not loaded."""
        for uuid, block in list(self._unconfirmed.items()):
            self._confirmed(uuid, block, running=running)
        self._unconfirmed.clear()

    def forked(self) -> None:
        """Note that the session is now a copy: prompts that wait for the agent of the original do not belong to it."""
        for uuid, block in list(self._waiting.items()):
            if uuid not in self._unconfirmed:
                del self._waiting[uuid]
                self._container.take_away(block)

    def settle(self) -> None:
        """Mark every prompt as taken: these are earlier events, and later ones are on the screen."""
        for uuid in list(self._waiting):
            self.taken(uuid)

    def _knows(self, ids: tuple[str, ...]) -> bool:
        return any(each in self._known for each in ids if each)

    def _show_from_snapshot(self, prompt: SnapshotPrompt) -> None:
        ids = prompt.ids
        if not self._knows(ids):
            whole = not prompt.text.endswith(" …") and prompt.text[:1] not in "!#"
            facts = PromptFacts(prompt.files, whole=whole, steers=prompt.steers)
            state = PromptState.TAKEN if prompt.taken else PromptState.QUEUED
            block = self._show(prompt.text, state, *ids, facts=facts)
            if prompt.taken:
                self._from_snapshot[ids[0]] = self._container, block
            return
        if ids[0] in self._from_snapshot:
            return  # an earlier snapshot had it
        self.arrived(prompt.text, ids, running=True)
        if prompt.taken:
            for each in ids:
                self.taken(each)

    def _confirmed(self, uuid: str, block: PromptBlock, *, running: bool) -> None:
        if block.state is PromptState.UNSENT and not running:
            self.taken(uuid)
        elif block.state is PromptState.UNSENT:
            self._set_state(block, PromptState.QUEUED)

    def _show(self, text: str, state: PromptState, *ids: str, facts: PromptFacts = NO_FACTS) -> PromptBlock:
        self._known.extend(each for each in ids if each)
        known = replace(facts, pictures=(), steers=facts.steers if self.can_steer() else None)
        block = PromptBlock(text=neutralise(text).rstrip()[:MAX_BLOCK_CHARS], state=state, facts=known)
        self._blocks.update(dict.fromkeys(filter(None, ids), block))
        self._pictures.keep(block, facts.pictures)
        self._container.add(block, before=self.first_waiting() if state is PromptState.TAKEN else None)
        self._note_command_line(block)
        if state is not PromptState.TAKEN:
            self._waiting[ids[0]] = block
            if known.before or known.steers:
                self.moved(ids[0], known.before)
            self._limit_waiting()
        return block

    def _limit_waiting(self) -> None:
        """Move up the first prompts that wait when a host names more than a worker queues."""
        of_host = [each for each in self._waiting if each not in self._unconfirmed]
        chars = sum(len(self._waiting[each].text) for each in of_host)
        while len(of_host) > _MAX_WAITING or chars > _MAX_WAITING_CHARS:
            first = of_host.pop(0)
            chars -= len(self._waiting[first].text)
            self.taken(first)

    def _note_command_line(self, block: PromptBlock) -> None:
        if block.state is PromptState.TAKEN:
            self.command_line = block.text if block.facts.command_line else ""

    def _note_unanswered(self, uuid: str, block: PromptBlock) -> None:
        if block.state is PromptState.TAKEN:
            self.unanswered = WaitingPrompt(uuid, block.text, False, block.facts)

    def _set_state(self, block: PromptBlock, state: PromptState) -> None:
        if block.state is not state:
            block.state = state
            self._container.update_block(block)
