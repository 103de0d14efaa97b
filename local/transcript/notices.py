"""The messages of ccb itself in the transcript."""

from __future__ import annotations

from ccb.tunnel.plain_text import HostText, as_line, one_line
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.journal_records import QueuedRecord, RewindRecord, RewoundRecord
from ccb.tunnel.wire.messages import CompactMessage, ResultMessage, SystemMessage, as_dict, as_number, as_text
from ccb.tunnel.wire.outside_messages import WAYS, text_in

from ..session.model_waits import retry_text, silence_text
from ..session.session_client import shown_name
from ..terminal.keymap import Keymap
from .blocks import Block, BlockContainer, FoldBlock, Level, NoticeBlock, PromptBlock, PromptState, TipsBlock

_MAX_TEXT = 100
_MAX_NAMES = 20
_MAX_MESSAGE = 4_000  # characters
_MAX_TOKENS = 10**12  # tokens: a host may send any number
_ABORTED = ("aborted_streaming", "aborted_tools")  # the person knows why the turn ended


def path_in(cwd: str, path: str) -> str:
    """Return a path of the host on one line, relative to the directory `cwd` if it is in there."""
    return one_line(path.removeprefix(f"{cwd}/") if cwd else path)


@dataclass(frozen=True, eq=False)
class AskedAgain:
    """The model is asked again in `delay_s` seconds. `afterwards`: what its notice says once nobody waits any more."""

    delay_s: float
    afterwards: str


class Notices:
    def __init__(self, container: BlockContainer, own_name: str, cwd: str = "") -> None:
        self.cwd = cwd
        self.only_past = True  # everything so far had happened before this client attached
        self.echo = ""  # the command of the person that runs: it is shown above the first notice that answers it
        self._container = container
        self._own_name = own_name
        self._driver: str | None = None
        self._another_drove = False  # whether the last notice named another client as the driver
        self._retry: NoticeBlock | None = None
        self._warning: NoticeBlock | None = None  # the last notice, if it is one
        self.asked_again: AskedAgain | None = None  # the attempt that waits for its time, or has not been answered yet
        self._compacting: NoticeBlock | None = None
        self._not_compacted = False  # the last try has failed

    def add(self, said: str | list[str], level: Level = Level.INFO) -> NoticeBlock:
        """Show a notice: a text is one line of it, whatever is in it; a list are several."""
        echo, self.echo = self.echo, ""
        if echo:
            self._container.add(PromptBlock(text=echo, state=PromptState.TAKEN))
        block = NoticeBlock(text="\n".join(map(as_line, [said] if isinstance(said, str) else said)), level=level)
        self._container.add(block)
        self._warning = block if level is Level.WARNING else None
        return block

    def driver(self, name: str) -> None:
        """Announce a change of driver, but ourselves only after another one."""
        is_me, changed = name == self._own_name, name not in ("", self._driver)
        if changed and self._driver is not None and (not is_me or self._another_drove) and not self.only_past:
            who = "You drive" if is_me else f"{shown_name(name)} drives"
            self.add(f"{who} this session now.", Level.DIM)
            self._another_drove = not is_me
        self._driver = name or self._driver

    def from_outside(self, queued: QueuedRecord) -> None:
        """Show a message that somebody else has put into the session, so that no line of it looks like one of ccb."""
        way = as_text(queued.origin.get("via"))
        text = text_in("\n".join(as_text(each.get("text")) for each in queued.content))
        lines = text[:_MAX_MESSAGE].split("\n")
        who = f"Message from {HostText(as_text(queued.origin.get('from')))} ({way if way in WAYS else '?'}):"
        self.add([who, *(f"│ {line}" for line in lines)])

    def rewind(self, content: RewindRecord, gone: list[Block]) -> None:
        """Say what the person has gone back to. `gone` are the blocks that left the screen with that."""
        before = f" before: {content.text[:_MAX_TEXT]}" if content.text else " an earlier message"
        if gone:
            self._container.add(FoldBlock(text=as_line(f"── Gone back to{before}"), folded=gone))
        elif content.to:
            after = "What is between that and here is not in the conversation any more."
            self.add([f"── Gone back to{before}", after])
        if content.files:
            names = [path_in(self.cwd, str(each.get("path"))) for each in content.files]
            more = [f"… and {len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
            count = f"{len(names)} file{'s' if len(names) != 1 else ''}"
            self.add([f"Restored {count}:", *names[:_MAX_NAMES], *more], Level.DIM)

    def rewound(self, content: RewoundRecord) -> None:
        for each in content.failed[:_MAX_NAMES]:
            name, why = path_in(self.cwd, str(each.get("path"))), HostText(str(each.get("why")))
            self.add(f"{name} was not restored: {why}", Level.WARNING)

    def system(self, note: SystemMessage) -> None:
        if note.subtype == "informational" and (content := as_text(note.body.get("content"))):
            warns = note.body.get("level") in ("warning", "error")
            self.add(content.split("\n"), Level.WARNING if warns else Level.DIM)
        elif note.subtype == "status" and note.body.get("status") == "compacting":
            self._not_compacted = False
            self._compacting = self.add("Compacting the conversation: the model writes a summary …", Level.DIM)
        elif self._compacting is not None and note.body.get("compact_result") == "failed":
            self._not_compacted = True
            self._end_compacting("The conversation was not compacted.")
        elif note.subtype == "api_retry":
            delay_ms = as_number(note.body.get("retry_delay_ms"))
            self._asked_again(retry_text(note), AskedAgain(delay_ms / 1000, retry_text(note, waits=False)))
        elif note.subtype == "model_silent":
            silent, left = (as_number(note.body.get(name)) / 1000 for name in ("silent_ms", "retry_in_ms"))
            if text := silence_text(note):
                self._asked_again(text, AskedAgain(left, f"The model has said nothing for {silent:.0f} s."))
            else:
                self.model_call_over()

    def _end_compacting(self, text: str) -> None:
        if self._compacting is None:
            self.add(text, Level.DIM)
            return
        self._compacting.text = text
        self._container.update_block(self._compacting)
        self._compacting = None

    def compacted(self, line: CompactMessage) -> None:
        metadata = as_dict(line.body.get("compact_metadata"))
        sizes = [metadata.get(name) for name in ("pre_tokens", "post_tokens")]
        counts = " became ".join(f"{size:,}" for size in sizes if isinstance(size, int) and 0 <= size < _MAX_TOKENS)
        prompt = f"“{one_line(as_text(metadata.get('prompt')))[:_MAX_TEXT]}”"
        what = {"from": f" from {prompt} on", "up_to": f" up to {prompt}"}.get(line.part, "")
        text = f"── Compacted{what}: the agent goes on with a summary{f' ({counts} tokens)' if counts else ''}."
        if metadata.get("trigger") == "clear":
            text = "── Cleared: the agent has forgotten the conversation."
        elif self._not_compacted:
            text = "── The agent goes on without the conversation: it was too long, and there is no summary of it."
        self._end_compacting(text)

    def errors(self, result: ResultMessage) -> None:
        if result.is_error and result.errors and result.body.get("terminal_reason") not in _ABORTED:
            lines, warned = [line for error in result.errors for line in error.split("\n")], self._warning
            text = "\n".join(map(as_line, lines))
            if warned is not None and text in warned.text:  # the laptop has said so before the host did
                warned.level = Level.ERROR
                self._container.update_block(warned)
            else:
                self.add(lines, Level.ERROR)

    def model_call_over(self) -> None:
        """Note that the model has answered or was given up: the next retry gets a notice of its own."""
        if self._retry is not None and self.asked_again is not None:
            self._retry.text = self.asked_again.afterwards
            self._retry.changed()  # what is printed in lines stays as it was
        self._retry = self.asked_again = None

    def _asked_again(self, text: str, again: AskedAgain) -> None:
        """Say that the model is asked again. All attempts of one model call share a notice."""
        self.asked_again = again
        if self._retry is None:
            self._retry = self.add(text, Level.WARNING)
        else:
            self._retry.text = as_line(text)
            self._container.update_block(self._retry)


def tips(host: str, keymap: Keymap) -> TipsBlock:
    host = one_line(host)
    return TipsBlock(
        tips=(
            ("@", f"a file of {host}"),
            ("/", "a command"),
            ("!", f"a shell command on {host}"),
            ("#", "a note for every agent"),
            (keymap.name("history"), "earlier prompts"),
            (keymap.name("mode"), "permission mode"),
        )
    )
