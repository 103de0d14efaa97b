"""The keys that hold everywhere in the REPL. Their ids are those of the setting `keys`."""

from __future__ import annotations

from textual.binding import Binding, BindingType

from ...terminal.keymap import DEFAULT_KEYS, Keymap


def _binding(key_id: str, action: str) -> Binding:
    return Binding(",".join(DEFAULT_KEYS[key_id]), action, show=False, priority=key_id != "interrupt", id=key_id)


REPL_BINDINGS: list[BindingType] = [
    _binding("retry", "retry"),
    _binding("take-back", "take_back"),
    _binding("interrupt", "interrupt"),  # not before the widget that has the focus: Esc also leaves that
    _binding("ladder", "ladder"),
    _binding("quit", "quit"),
    _binding("suspend", "suspend_process"),
    _binding("leave", "leave"),
    _binding("mode", "next_mode"),
    _binding("approval", "to_approval"),
    _binding("approval-tab", "toggle_approval"),
    _binding("background", "background"),
    _binding("queue", "queue"),
    _binding("open", "open_fetched"),
    _binding("details", "details"),
    _binding("todos", "todos"),
    _binding("page-up", "page(-1)"),
    _binding("page-down", "page(1)"),
    _binding("help", "help"),
]


def changed_bindings(keymap: Keymap) -> dict[str, str]:
    """Return the ids whose keys the person has chosen, with the keys, for Textual."""
    return {each: ",".join(keys) for each, keys in keymap.keys.items() if keys != DEFAULT_KEYS[each]}
