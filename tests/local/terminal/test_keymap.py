"""The keys of the REPL by their ids, and what the setting `keys` may say of them."""

from __future__ import annotations

import pytest

from ccb.local.terminal.keymap import DEFAULT_KEYMAP, DEFAULT_KEYS, KeyRefused, keymap_of

LISTS = ("answer-", "queue-", "session-", "view-", "rule-", "model-", "task-")


def test_without_a_setting_every_id_has_a_key_of_its_own() -> None:
    everywhere = [key for name, keys in DEFAULT_KEYS.items() for key in keys if not name.startswith(LISTS)]
    assert len(everywhere) == len(set(everywhere))
    assert keymap_of({}) == DEFAULT_KEYMAP


def test_keys_are_written_as_people_know_them() -> None:
    chosen = keymap_of({"details": "ctrl+y", "retry": ["F6", "Alt+."], "page-up": "Ctrl+PgUp", "undo": "Ctrl+/"})
    assert chosen.has("details", "ctrl+y") and not chosen.has("details", "ctrl+o")
    assert chosen.names("retry") == "F6, Alt+."
    assert (chosen.name("page-up"), chosen.name("undo"), chosen.name("interrupt")) == ("Ctrl+PgUp", "Ctrl+/", "Esc")
    assert chosen.filled("{details} or {help}, x") == "Ctrl+Y or F1, x"
    lists = keymap_of({"answer-once": ["+", "Y"], "queue-drop": "1", "queue-up": "Shift+Left", "session-rename": "F7"})
    assert lists.characters("answer-once") == ["+", "Y"]
    assert lists.names("answer-once") == "+, Y"
    assert lists.has("queue-drop", "1") and lists.has("answer-deny", "n")
    assert lists.filled("{queue-up!} moves, {session-rename!} renames") == "Shift+Left moves, F7 renames"


def test_a_key_that_is_given_away_is_no_longer_that_of_a_list_or_of_another_id_of_the_input() -> None:
    chosen = keymap_of({"interrupt": "Ctrl+X", "details": "F2"})
    assert (chosen.names("session-delete"), chosen.names("session-rename")) == ("Del", "Ctrl+R")
    chosen = keymap_of({"send": "Ctrl+Enter", "steer": "Alt+Enter"})
    assert chosen.has("send", "ctrl+enter") and chosen.names("newline") == "Ctrl+J, Shift+Enter"
    chosen = keymap_of({"send": "Ctrl+J", "newline": ["Enter", "Shift+Enter"]})  # they change places
    assert chosen.has("send", "ctrl+j") and chosen.has("newline", "enter")


@pytest.mark.parametrize(
    ("keys", "why"),
    [
        ({"detials": "Ctrl+Y"}, "there is no key of this name; there are send, "),
        ({"details": "Ctrl+T"}, "Ctrl+T is the key of 'todos', too: give 'todos' another one"),
        ({"details": "Ctrl+N"}, "Ctrl+N is the key of 'next-question', too"),
        ({"details": "q"}, "'q' is needed to type"),
        ({"details": "Up"}, "'Up' is needed to type"),
        ({"details": "Ctrl+I"}, "terminals send 'Ctrl+I' as Tab"),
        ({"details": "Hyper+X"}, "'Hyper+X' is no key that ccb knows"),
        ({"details": "Ctrl+Foo"}, "'Ctrl+Foo' is no key that ccb knows"),
        ({"details": []}, "it needs a key"),
        ({"answer-once": "Ctrl+Y"}, "'Ctrl+Y' is no single character, as the key of an answer has to be"),
        ({"answer-once": "n"}, "n is the key of 'answer-deny', too"),
        ({"queue-drop": "Ctrl+O"}, "Ctrl+O is the key of 'details', too"),
        ({"model-take": "t"}, "'t' is needed to type"),
        ({"session-rename": "r"}, "'r' is needed to type"),
        ({"next-question": "Ctrl+T"}, "Ctrl+T is the key of 'todos', too"),
    ],
)
def test_what_cannot_be_a_key_is_refused(keys: dict[str, object], why: str) -> None:
    with pytest.raises(KeyRefused) as refused:
        keymap_of(keys)
    assert str(refused.value).startswith(why)
    assert refused.value.id in keys


def test_a_page_and_a_list_of_rules_take_single_characters_and_a_list_that_is_typed_into_does_not() -> None:
    keymap = keymap_of({"view-copy": ["c", "Home"], "view-start": "t", "rule-add": "+", "model-take": "Ctrl+Y"})
    assert keymap.pressed("view-copy", "c", "c") and keymap.pressed("view-copy", "home", None)
    assert keymap.pressed("rule-add", "plus", "+") and not keymap.pressed("rule-add", "a", "a")
    assert keymap.filled("{view-search!} {view-previous!} {model-take!}") == "/ N Ctrl+Y"
