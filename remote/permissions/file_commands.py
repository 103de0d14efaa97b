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
        files = [_File(word, base, places, resolve(word, places, [base])[0]) for word in words]
        found.tops += [each.real for each in files[:-1]] if command.name in ("cp", "mv") else []
        found.paths += _CHANGES[command.name](command, files, alone)
    return found


@dataclass(frozen=True)
class _File:
    """What a word names for a command that runs in `base`; `real` is what it leads to."""

    word: Word
    base: str
    places: PathScope
    real: str

    @property
    def own(self) -> str:
        """The real path of what has this name, not of what it leads to."""
        above, name = os.path.split(self.word.text.rstrip("/"))
        if name in ("", ".", "..") or (self.word.is_tilde and not above):
            return self.places.real(self.word.text, self.base)
        if above.startswith("~") and not self.word.is_tilde:
            above = f"./{above}"
        above = above or ("/" if self.word.text.startswith("/") else ".")
        return os.path.join(self.places.real(above, self.base), name)

    @property
    def is_link(self) -> bool:
        return os.path.islink(self.own)

    def check_removable(self) -> None:
        if self.is_link or any(is_under(root, self.real) for root in self.places.roots):
            raise NotUnderstood(f"{self.word.text} is a link or a whole working directory")

    def below(self) -> list[str]:
        """Return the relative paths of all that is in a directory."""
        found: list[str] = []
        for directory, directories, files in os.walk(self.real):
            found += (os.path.relpath(os.path.join(directory, name), self.real) for name in (*directories, *files))
            if len(found) > _MAX_ENTRIES:
                raise NotUnderstood(f"{self.real} holds more than {_MAX_ENTRIES} files")
        return found


def _created(command: Command, files: Sequence[_File], alone: bool) -> Iterator[str]:
    yield from (each.real for each in files)


def _replaced(command: Command, files: Sequence[_File], alone: bool) -> Iterator[str]:
    for each in files:
        each.check_removable()
        yield each.real


def _removed(command: Command, files: Sequence[_File], alone: bool) -> Iterator[str]:
    for each in files:
        each.check_removable()
        yield from _with(each.real, each.below())


def _copied(command: Command, files: Sequence[_File], alone: bool) -> Iterator[str]:
    sources, target = _split(files)
    yield from _replaced_by_copy(target)
    for each in sources:
        below = each.below()
        _check_links(each.is_link or _holds_link(each, below), alone)
        yield from _made(each, target, below)


def _moved(command: Command, files: Sequence[_File], alone: bool) -> Iterator[str]:
    sources, target = _split(files)
    yield from _replaced_by_copy(target)
    for each in sources:
        each.check_removable()
        below = each.below()
        yield from _with(each.real, below)
        _check_links(_holds_link(each, below), alone)
        yield from _made(each, target, below)


def _linked(command: Command, files: Sequence[_File], alone: bool) -> Iterator[str]:
    if len(files) == 1:
        files = [*files, _File(literal("."), files[0].base, files[0].places, files[0].base)]
    sources, target = _split(files)
    yield from (target.real, target.own)
    symbolic = any(re.match(r"-\w*s|--symbolic", word.text) for word in command.words)
    for each in sources:
        real, is_link = each.real, each.is_link
        if symbolic:  # a relative one starts where the link is
            start = target.real if os.path.isdir(target.real) else os.path.dirname(target.real)
            real = each.places.real(each.word.text, start)
            is_link = not os.path.isfile(real)
        yield real
        _check_links(is_link, alone)
        yield from _made(each, target, [])


_CHANGES = {
    **dict.fromkeys(CREATING, _created),
    **dict.fromkeys(("rmdir", "sed"), _replaced),
    "rm": _removed,
    "cp": _copied,
    "mv": _moved,
    "ln": _linked,
}
"""What each command changes: the real paths. Each may raise NotUnderstood."""


def _split(files: Sequence[_File]) -> tuple[Sequence[_File], _File]:
    """Return what is copied, moved or linked, and where to."""
    if len(files) < 2:
        raise NotUnderstood("it does not say where to")
    return files[:-1], files[-1]


def _replaced_by_copy(target: _File) -> tuple[str, ...]:
    # a link to a file is replaced itself
    return (target.real,) if os.path.isdir(target.real) else (target.real, target.own)


def _made(source: _File, target: _File, below: Sequence[str]) -> Iterator[str]:
    """Yield all that is made if the target is no directory, and if it is one."""
    last = os.path.basename(source.word.text.rstrip("/"))
    if last in ("", ".", ".."):
        raise NotUnderstood("the name of what it makes is not written out")
    yield from _with(target.real, below)
    yield from _with(os.path.join(target.real, last), below)


def _with(top: str, below: Sequence[str]) -> list[str]:
    return [top, *(os.path.join(top, each) for each in below)]


def _holds_link(directory: _File, below: Sequence[str]) -> bool:
    return any(os.path.islink(os.path.join(directory.real, each)) for each in below)


def _check_links(makes_link: bool, alone: bool) -> None:
    if makes_link and not alone:
        raise NotUnderstood("other commands of the line may use the link that it makes")
