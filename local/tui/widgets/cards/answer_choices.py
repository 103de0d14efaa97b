"""The answers to a question with their keys, the one that is marked, and what else the person can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text
from textual.widgets import Static

from ccb.tunnel.wire.dataclass import dataclass

from ....terminal.keymap import Keymap
from ...render.permission_updates import kept_in
from ...theme.palette import Palette

MAX_BESIDE = 60
"""Characters of a rule that is shown beside its answer."""


@dataclass(frozen=True)
class Situation:
    """What decides about the answers. `unseen`: rows that were not on the screen yet. `focused`: the person is at the
    answers. `driving`: they may answer here. `note` says what happens to an answer now."""

    unseen: int = 0
    focused: bool = False
    driving: bool = True
    note: str = ""


class AnswerChoices(Static):
    """Shows the answers. `grants` are the rules that the answer "this session" grants, one text each. `readable`: the
    question is short enough to be allowed. `keeps`: the rules can be kept for this host and directory."""

    KEYS: Mapping[str, str] = {}
    """The answers and their keys."""

    def __init__(
        self, grants: Sequence[str], palette: Palette, keymap: Keymap, *, readable: bool, keeps: bool = False
    ) -> None:
        super().__init__(classes="choices")
        self._tab = keymap.name("approval-tab")
        self._keeps = keeps
        self.marked = ""
        self._grants = grants
        self._palette = palette
        self._readable = readable
        self._situation = Situation()
        self.editable = False
        self.covered = 0
        """How many of the questions that wait the rules cover as well."""

    def offer(self, grants: Sequence[str]) -> None:
        """Offer other rules, which the person has written."""
        self._grants = grants
        self.mark("")

    def cover(self, count: int) -> None:
        """Show how many of the questions that wait the rules cover as well."""
        if count != self.covered:
            self.covered = count
            self.draw()

    @property
    def rules_above(self) -> bool:
        """Whether the rules are too long or too many to be shown here."""
        return len(self._grants) > 1 or any(len(each) > MAX_BESIDE for each in self._grants)

    @property
    def offered(self) -> list[str]:
        """The answers that are possible now."""
        if not self._readable or self._situation.unseen:
            return ["deny"]
        if not self._grants:
            return ["once", "deny"]
        more = [*(["always"] if self._keeps else []), *(["edit"] if self.editable else [])]
        return ["once", "session", "deny", *more]

    def show(self, situation: Situation) -> None:
        """Show what is possible in a situation."""
        if situation.focused != self._situation.focused:
            self.marked = ""
        self._situation = situation
        self.draw()

    def mark(self, answer: str) -> None:
        """Mark an answer, which Enter then gives. One that is not possible unmarks the others."""
        self.marked = answer if answer in self.offered else ""
        self.draw()

    def step(self, by: int) -> None:
        """Mark the next answer, or the one before."""
        offered = self.offered
        place = offered.index(self.marked) + by if self.marked in offered else (0 if by > 0 else -1)
        self.mark(offered[place % len(offered)])

    def draw(self) -> None:
        """Draw the answers on one line, or one below the other on a narrow screen that is high enough."""
        situation = self._situation
        if not situation.driving:
            self.update(Text(situation.note, style=self._palette.dim))
            return
        parts = self._parts()
        text = Text("   ").join(parts)
        if text.cell_len > self.content_size.width and self.is_attached and self.screen.has_class("-tall"):
            text = Text("\n").join(parts)
        if situation.note:
            text.append(f"\n{situation.note}", style=f"not bold {self._palette.warn}")
        self.update(text)

    def _parts(self) -> list[Text]:
        """Return each answer with its key, and what else the person can do now."""
        accent, situation = f"bold {self._palette.accent}", self._situation
        entries: list[tuple[str, str, str]] = []
        if not self._readable:
            entries.append(("", "too long to allow:", ""))
        elif situation.unseen:
            lines = f"{situation.unseen:,} line{'s' if situation.unseen != 1 else ''}"
            if not situation.focused:
                return [Text.assemble((self._tab, accent), f" to read on ({lines}) and answer")]
            entries.append(("Space", f"read on: {lines} to see before you can allow it", ""))
        entries += [(self.KEYS[answer], self.words(answer), answer) for answer in self.offered]
        if situation.focused:
            entries += [("Enter", "answers", "")] if self.marked else []
            entries.append(("Esc", "back", ""))
        else:
            entries.insert(0, (self._tab, "to answer:", ""))
        style = "" if situation.focused else self._palette.dim
        parts = []
        for key, does, answer in entries:
            marked = bool(answer) and answer == self.marked
            parts.append(
                Text.assemble((key, accent), f" {does}" if key else does, style="reverse" if marked else style)
            )
        return parts

    def words(self, answer: str) -> str:
        """Return what an answer does."""
        if answer == "always" and self.marked == answer:
            return f"always: for this host and directory, in {kept_in()}"
        if answer == "edit":
            return "edit the rule"
        if answer != "session":
            return answer
        rules = f"the {len(self._grants)} rules above" if len(self._grants) > 1 else "the rule above"
        more = f", also for {self.covered} more waiting" if self.covered else ""
        return f"this session: {rules if self.rules_above else self._grants[0]}{more}"
