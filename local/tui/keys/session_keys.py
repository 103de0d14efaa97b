"""The keys that act on the session on the screen, and do nothing before there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .lone_chord import LoneChord

if TYPE_CHECKING:
    from ..attached.view import SessionView


class SessionKeys:
    """A part of the application: `attached` is the session, `chord` holds back chords of Alt."""

    attached: SessionView | None
    chord: LoneChord

    def action_take_back(self) -> None:
        """Alt+T: drive the session."""
        if self.attached is not None:
            self.chord.pressed(self.attached.take_back)

    def action_interrupt(self) -> None:
        """Esc: end the running turn."""
        if self.attached is not None:
            self.attached.stop_keys.interrupt()

    def action_background(self) -> None:
        """Ctrl+B: let the running command go on in the background."""
        if self.attached is not None:
            self.attached.move_to_background()

    def action_queue(self) -> None:
        """Alt+Q: show the prompts that wait for the agent."""
        if self.attached is not None:
            self.chord.pressed(self.attached.show_queue)

    def action_open_fetched(self) -> None:
        """Alt+O: open the file that was fetched and waits."""
        if self.attached is not None:
            self.chord.pressed(self.attached.steering.files.open_now)

    def action_next_mode(self) -> None:
        """Shift+Tab: the next permission mode."""
        if self.attached is not None:
            self.attached.next_mode()

    def action_to_approval(self) -> None:
        """Alt+A: move the focus to the approval card."""
        if self.attached is not None:
            self.attached.approvals.focus_card()

    def action_details(self) -> None:
        """Ctrl+O: show all of tool output and thinking, or the summary; twice: the whole conversation."""
        if self.attached is not None:
            self.attached.details()

    def action_todos(self) -> None:
        """Ctrl+T: show all todos of the agent, or only the one in progress."""
        if self.attached is not None:
            self.attached.show_todos()

    def action_page(self, direction: int) -> None:
        """PgUp and PgDn: scroll the approval card if it has the focus and is longer than shown, else the transcript."""
        if self.attached is not None:
            self.attached.page(direction)

    def action_help(self) -> None:
        """F1: show the keys and commands."""
        if self.attached is not None:
            self.attached.help()
