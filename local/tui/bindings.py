"""The keys of the REPL. Each has an id that stays the same."""

from __future__ import annotations

from textual.binding import Binding, BindingType

REPL_BINDINGS: list[BindingType] = [
    Binding("alt+r,f5", "retry", "Connect", show=False, priority=True, id="retry"),
    Binding("alt+t,f8", "take_back", "Drive", show=False, priority=True, id="take-back"),
    Binding("escape", "interrupt", "Interrupt", show=False, id="interrupt"),
    Binding("ctrl+c", "ladder", "Clear, interrupt, quit", show=False, priority=True, id="ladder"),
    Binding("ctrl+q", "quit", "Quit", show=False, priority=True, id="quit"),
    Binding("ctrl+z", "suspend_process", "Suspend", show=False, priority=True, id="suspend"),
    Binding("ctrl+d", "leave", "Quit", show=False, priority=True, id="leave"),
    Binding("shift+tab", "next_mode", "Mode", show=False, priority=True, id="mode"),
    Binding("alt+a", "to_approval", "Approval", show=False, priority=True, id="approval"),
    Binding("tab", "toggle_approval", "Approval", show=False, priority=True, id="approval-tab"),
    Binding("ctrl+b", "background", "Background", show=False, priority=True, id="background"),
    Binding("alt+q", "queue", "Queue", show=False, priority=True, id="queue"),
    Binding("ctrl+o", "details", "Details", show=False, priority=True, id="details"),
    Binding("ctrl+t", "todos", "Todos", show=False, priority=True, id="todos"),
    Binding("pageup", "page(-1)", "Up", show=False, priority=True, id="page-up"),
    Binding("pagedown", "page(1)", "Down", show=False, priority=True, id="page-down"),
    Binding("f1", "help", "Help", show=False, priority=True, id="help"),
]
