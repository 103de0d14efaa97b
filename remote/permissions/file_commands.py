"""What commands that copy, move, remove, link and edit files change: their options by closed lists, and the files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from .paths import PathScope, expand
from .read_targets import resolve
from .shell.read_only import is_null, sed_only_edits
from .shell.shell_words import Command, NotUnderstood, Word, literal

_MAX_ENTRIES = 100  # below one directory that is removed, moved or copied

CREATING = ("mkdir", "touch")
_OPTIONS = {
    "cp": r"-[rRapvfnudP]+|--(?:recursive|archive|verbose|force|no-clobber|update)",
    "ln": r"-[sfnv]+|--(?:symbolic|force|no-dereference|verbose)",
    "mkdir": r"-[pv]+|--(?:parents|verbose)",
    "mv": r"-[fnuv]+|--(?:force|no-clobber|update|verbose)",
    "rm": r"-[rRfdv]+|--(?:recursive|force|dir|verbose)",
    "rmdir": r"-v|--verbose",
    "touch": r"-[ac]+|--no-create",
}
_REMOVING = ("mv", "rm", "rmdir", "sed")  # what an operand names is not there afterwards, or another file
_IN_PLACE = re.compile(r"-[nErsu]*i|--in-place")


def changes_files(command: Command) -> bool:
    return command.name in _OPTIONS or (
        command.name == "sed" and any(_IN_PLACE.fullmatch(word.text) for word in command.words)
    )


def operands(command: Command) -> list[Word]:
    """Return the words that name files. Raise NotUnderstood for an option that is not known to be harmless."""
    if command.name == "sed":
        return _edited_by_sed(command.words[1:])
    found: list[Word] = []
    options_end = False
    for word in command.words[1:]:
        if options_end or not word.text.startswith("-"):
            found.append(word)
        elif word.is_literal and word.text == "--":
            options_end = True
        elif not word.is_literal or not re.fullmatch(_OPTIONS[command.name], word.text):
            raise NotUnderstood(f"{word.text} may change other files")
    return found


def _edited_by_sed(words: Sequence[Word]) -> list[Word]:
    rest = [word for word in words if not _IN_PLACE.fullmatch(word.text)]
    if not all(word.is_literal for word in words) or not sed_only_edits(rest):
        raise NotUnderstood("its script may do more than edit")
    has_script, files = False, []
    while rest:
        word = rest.pop(0)
        if word.text in ("-e", "--expression"):
            has_script = bool(rest.pop(0))
        elif not word.text.startswith("-"):
            files.append(word)
    return files if has_script else files[1:]


def changed_paths(command: Command, words: Sequence[Word], places: PathScope, bases: Sequence[str]) -> list[str]:
    """Return the real paths that a command may change, remove or create, from each directory it may run in; of links
    also what they lead to. Raise NotUnderstood where that is not clear."""
    found: list[str] = []
    for word in words:
        if is_null(word) or not (word.is_literal or word.is_tilde) or word.dynamic or word.is_glob:
            raise NotUnderstood("the files must be written out")
    for base in bases:
        named = [(word, resolve(word, places, [base])[0]) for word in words]
        found += _changed_from(base, command, named, places)
    return list(dict.fromkeys(found))


def _changed_from(base: str, command: Command, named: list[tuple[Word, str]], places: PathScope) -> Iterator[str]:
    name, target = command.name, ""
    links = name == "ln" and any(re.match(r"-\w*s|--symbolic", word.text) for word in command.words)
    if name == "ln" and len(named) == 1:
        named = [*named, (literal("."), base)]
    if name in ("cp", "mv", "ln"):
        target = named.pop()[1] if len(named) > 1 else ""
        if not target:
            raise NotUnderstood("it does not say where to")
        yield target
    for word, real in named:
        as_named = expand(word.text, base, places.home)
        if name in _REMOVING and (os.path.islink(as_named) or real in places.roots):
            raise NotUnderstood(f"{word.text} is a link or a whole working directory")
        below = [] if name in ("ln", "rmdir", "sed", *CREATING) else _names_below(real)
        if links:  # a relative one starts where the link is
            yield places.real(word.text, target if os.path.isdir(target) else os.path.dirname(target))
        elif name != "cp":
            yield from (os.path.join(real, each) if each else real for each in ("", *below))
        if target:
            last = os.path.basename(word.text.rstrip("/"))
            if last in ("", ".", ".."):
                raise NotUnderstood("the name of what it makes is not written out")
            for top in (target, os.path.join(target, last)):
                yield from (os.path.join(top, each) if each else top for each in ("", *below))


def _names_below(top: str) -> list[str]:
    found: list[str] = []
    for directory, directories, files in os.walk(top):
        found += (os.path.relpath(os.path.join(directory, name), top) for name in (*directories, *files))
        if len(found) > _MAX_ENTRIES:
            raise NotUnderstood(f"{top} holds more than {_MAX_ENTRIES} files")
    return found
