"""What commands that copy, move, remove, link and edit files change: their options by closed lists, and the files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import field

from ccb.tunnel.wire.dataclass import dataclass

from ..system.host import is_under
from .paths import PathScope
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


@dataclass(eq=False)
class Changed:
    """The real `paths` that a command may change, remove or create; of links also what they lead to. `tops`: what it
    moves or copies with all that is below when it runs."""

    paths: list[str] = field(default_factory=list)
    tops: list[str] = field(default_factory=list)


def changed_by(
    command: Command, words: Sequence[Word], places: PathScope, bases: Sequence[str], alone: bool
) -> Changed:
    """Return what a command changes from each directory it may run in; `alone` on its line, it may make links to
    directories. Raise NotUnderstood where that is not clear."""
    for word in words:
        if is_null(word) or not (word.is_literal or word.is_tilde) or word.dynamic or word.is_glob:
            raise NotUnderstood("the files must be written out")
    found = Changed()
    for base in bases:
        named = [(word, resolve(word, places, [base])[0]) for word in words]
        found.tops += [real for _, real in named[:-1]] if command.name in ("cp", "mv") else []
        found.paths += _changed_from(base, command, named, places, alone)
    return found


def _changed_from(
    base: str, command: Command, named: list[tuple[Word, str]], places: PathScope, alone: bool
) -> Iterator[str]:
    name, target = command.name, ""
    links = name == "ln" and any(re.match(r"-\w*s|--symbolic", word.text) for word in command.words)
    if name == "ln" and len(named) == 1:
        named = [*named, (literal("."), base)]
    if name in ("cp", "mv", "ln"):
        word, target = named.pop() if len(named) > 1 else (literal(""), "")
        if not target:
            raise NotUnderstood("it does not say where to")
        yield target
        if name == "ln" or not os.path.isdir(target):  # a link there is replaced
            yield _without_last_link(word, base, places)
    for word, real in named:
        is_link = os.path.islink(_without_last_link(word, base, places))
        if name in _REMOVING and (is_link or any(is_under(root, real) for root in places.roots)):
            raise NotUnderstood(f"{word.text} is a link or a whole working directory")
        below = [] if name in ("ln", "rmdir", "sed", *CREATING) else _names_below(real)
        if links:  # a relative one starts where the link is
            real = places.real(word.text, target if os.path.isdir(target) else os.path.dirname(target))
            is_link = not os.path.isfile(real)
            yield real
        elif name != "cp":
            yield from (os.path.join(real, each) if each else real for each in ("", *below))
        if target:
            if not alone and (is_link or any(os.path.islink(os.path.join(real, each)) for each in below)):
                raise NotUnderstood("other commands of the line may use the link that it makes")
            last = os.path.basename(word.text.rstrip("/"))
            if last in ("", ".", ".."):
                raise NotUnderstood("the name of what it makes is not written out")
            for top in (target, os.path.join(target, last)):
                yield from (os.path.join(top, each) if each else top for each in ("", *below))


def _without_last_link(word: Word, base: str, places: PathScope) -> str:
    """Return the real path of what has this name, not of what it leads to."""
    above, name = os.path.split(word.text.rstrip("/"))
    if name in ("", ".", "..") or (word.is_tilde and not above):
        return places.real(word.text, base)
    if above.startswith("~") and not word.is_tilde:
        above = f"./{above}"
    return os.path.join(places.real(above or ("/" if word.text.startswith("/") else "."), base), name)


def _names_below(top: str) -> list[str]:
    found: list[str] = []
    for directory, directories, files in os.walk(top):
        found += (os.path.relpath(os.path.join(directory, name), top) for name in (*directories, *files))
        if len(found) > _MAX_ENTRIES:
            raise NotUnderstood(f"{top} holds more than {_MAX_ENTRIES} files")
    return found
