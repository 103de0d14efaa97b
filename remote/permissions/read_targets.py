"""Find the files that a read-only command line reads, from its text alone."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Sequence

from .paths import PathScope, expand
from .shell.read_only import NULL_DEVICE, check_plain_files
from .shell.shell_words import Command, NotUnderstood, Word, literal, names
from .shell.wrappers import FOUND, effective, started_by

_MAX_BASES = 32
_MAX_MATCHES = 2000
_MAX_NAME = 255
_MAX_DEPTH = 3  # directories with wildcards in one word: each multiplies the time that the search takes

# These commands print their arguments or query the system. None of their arguments opens a file.
_PATHLESS = names("""echo true false : basename dirname seq which type exit whoami id uname arch nproc groups logname
    uptime journalctl last ss free tr sleep ps pwd env hostname printenv whereis test [ printf command set realpath
    readlink""")
_PATTERN_FIRST = frozenset(("grep", "egrep", "fgrep", "rg", "sed"))
_PATTERN_OPTIONS = ("--regexp", "--file", "--files", "--expression")
_FILE_OPTIONS = ("--exclude-from", "--ignore-file")  # their value stands before the pattern
_AS_FOUND = literal("{}")  # stands for a file that find has found; find's own directories are checked separately
_STARTS_UNCLEAR = "it is not clear which command it starts"
_FOLLOWS_LINKS = "it follows links that may lead elsewhere"
_HANDS_LINKS = "find may hand it links that lead elsewhere"
_KNOWN_LATER = "an argument is known only when it runs"


def is_pathless(command: Command) -> bool:
    inner = effective(command)
    if inner is None or any("/" in word.text and word.is_glob for word in inner.words[1:]):
        return False  # `echo /etc/*` lists a directory
    return not inner.words or inner.name in _PATHLESS


def operands_read(command: Command) -> list[Word]:
    """Return the words that may name files to read, also for `cd` and `<`. Raise NotUnderstood if others may be."""
    inputs = [redirect.target for redirect in command.redirects if not redirect.writes]
    inner = effective(command)
    if inner is None:
        raise NotUnderstood(_STARTS_UNCLEAR)
    words = inner.words[1:]
    if not inner.words or inner.name in _PATHLESS:
        return inputs + [word for word in words if "/" in word.text and word.is_glob]
    if inner.name == "find":
        return inputs + _operands_of_find(inner)
    if inner.name == "xargs":
        if not all(map(is_pathless, started_by(inner) or [])):
            raise NotUnderstood("the files it reads come from another command")
        return inputs
    return inputs + _operands(inner.name, words)


def _operands_of_find(command: Command) -> list[Word]:
    words = command.words[1:]
    texts = [word.text for word in words]
    if {"-L", "-follow"} & {*texts}:
        raise NotUnderstood(_FOLLOWS_LINKS)
    start = next((at for at, text in enumerate(texts) if re.match(r"(?!-[HP]\Z)[-(!]", text)), len(texts))
    found = [word for word in words[:start] if word.text not in ("-H", "-P")]
    started = started_by(command)
    if started is None:
        raise NotUnderstood(_STARTS_UNCLEAR)
    reads = [not is_pathless(part) for part in started]
    for part in itertools.compress(started, reads):
        found += _operands_of_started(part)
    if any(reads):
        try:
            check_plain_files(texts[start:], reads)
        except NotUnderstood:
            raise NotUnderstood(_HANDS_LINKS) from None
        if "-H" in texts:
            raise NotUnderstood(_HANDS_LINKS)
    return found


def _operands_of_started(command: Command) -> list[Word]:
    inner = effective(command)
    if inner is None or started_by(inner) != []:
        raise NotUnderstood(_STARTS_UNCLEAR)
    return _operands(inner.name, [_AS_FOUND if word == FOUND else word for word in inner.words[1:]])


def _refuse_hidden_reads(name: str, words: Sequence[Word]) -> None:
    """Raise NotUnderstood for a command that reads files which its arguments do not name."""
    texts = [word.text for word in words]
    link_options = _LINK_OPTIONS.get(name)
    if link_options and all(_has_option(texts, *option) for option in link_options):
        raise NotUnderstood(_FOLLOWS_LINKS)
    if name in ("wc", "du"):
        reads_list = _has_option(texts, "", "--files0-from")
    else:
        reads_list = name.endswith("sum") and _has_option(texts, "c", "--check")
    if reads_list:
        raise NotUnderstood("the files it reads are named in another file")
    if any(word.dynamic for word in words):
        raise NotUnderstood(_KNOWN_LATER)


def _operands(name: str, words: Sequence[Word]) -> list[Word]:
    _refuse_hidden_reads(name, words)
    if name == "jq":
        return _jq_files(words)
    found: list[Word] = []
    skip_pattern = name in _PATTERN_FIRST and not any(_gives_pattern(word.text) for word in words)
    options_end = False
    for word in words:
        if word.text.startswith("-") and len(word.text) > 1:
            # literal words, in which the shell expands only a tilde
            found += [Word(each, each) if each.startswith("~") else literal(each) for each in option_values(word.text)]
            if options_end:  # ambiguous: the `--` may have been the value of an option
                skip_pattern = False
            if options_end or word.is_glob:
                found.append(word)
            options_end = options_end or word.text == "--"
        elif skip_pattern:
            skip_pattern = False
            if word.is_glob:  # the shell may expand it to several words, and all but the first are files
                found.append(word)
        else:
            found.append(word)
    return found


def option_values(text: str) -> list[str]:
    """Return every text that may be an option's value in the same word: only the program knows which is one."""
    if text.startswith("--"):
        return [text.partition("=")[2]] if "=" in text else []
    letters = re.match(r"-[A-Za-z0-9.]*", text)
    if letters is None:
        return []
    return [text[at:] for at in range(max(2, letters.end() - _MAX_NAME), letters.end() + 1) if text[at:]]


_JQ_FLAGS = names("""--seq --stream --stream-errors --slurp --raw-input --null-input --compact-output --tab
    --color-output --monochrome-output --ascii-output --unbuffered --sort-keys --raw-output --raw-output0 --join-output
    --exit-status --args --jsonargs --version --help --build-configuration""")
_JQ_FILES = names("--slurpfile --rawfile --argfile")
_JQ_VALUES = {"--indent": 1, "--arg": 2, "--argjson": 2, **dict.fromkeys(_JQ_FILES, 2)}
_JQ_OPENS = re.compile(r"(?<![\w.\"])(?:import|include|modulemeta)\b(?!\s*:)")


def _jq_files(words: Sequence[Word]) -> list[Word]:
    """Return the files among the arguments of jq. Raise NotUnderstood if it may open others."""
    found: list[Word] = []
    rest = list(words)
    has_program = False
    while rest:
        word = rest.pop(0)
        text = word.text
        if text in _JQ_VALUES:
            values = rest[: _JQ_VALUES[text]]
            del rest[: _JQ_VALUES[text]]
            if any(value.is_glob for value in values):
                raise NotUnderstood(_KNOWN_LATER)
            found += values[1:] if text in _JQ_FILES else []
        elif text.startswith("-") and len(text) > 1:
            if text not in _JQ_FLAGS and not re.fullmatch(r"-[snrRcCMaSjehV]+", text):
                raise NotUnderstood(f"{text} may open other files")
        elif has_program:
            found.append(word)
        else:
            has_program = True
            if word is _AS_FOUND or word.is_glob or _JQ_OPENS.search(text):
                raise NotUnderstood("its program may open other files")
    return found


def _gives_pattern(text: str) -> bool:
    """Return whether an option, perhaps abbreviated, holds the pattern. Then the first operand is a file."""
    if text.startswith("--"):
        name = text.partition("=")[0]
        if len(name) > len("--exclude-") and any(option.startswith(name) for option in _FILE_OPTIONS):
            return True
        return len(text) > 2 and any(option.startswith(name) for option in _PATTERN_OPTIONS)
    return text.startswith("-") and ("e" in text or "f" in text)


_LINK_OPTIONS = {
    **dict.fromkeys(("grep", "egrep", "fgrep"), (("R", "--dereference-recursive"),)),
    "rg": (("L", "--follow"),),
    "tree": (("l", ""),),
    "du": (("L", "--dereference"),),
    "ls": (("L", "--dereference"), ("R", "--recursive")),
    "diff": (("r", "--recursive"),),
}
"""The options (letter and long name) that together make a program follow links into other directories."""


def _has_option(texts: Sequence[str], letter: str, long: str) -> bool:
    """Return whether an option is among the words. Long names may be abbreviated."""
    return any(
        len(text) > 2 and long.startswith(text.partition("=")[0])
        if text.startswith("--")
        else letter != "" and text.startswith("-") and letter in text[1:]
        for text in texts
    )


def check_directories(command: Command, words: Sequence[Word], places: PathScope, bases: Sequence[str]) -> None:
    """Raise NotUnderstood for a `diff` of directories, which follows the links in them."""
    inner = effective(command)
    if inner is not None and any(part.name == "diff" for part in (inner, *(started_by(inner) or []))):
        for word in words:
            if any(map(os.path.isdir, resolve(word, places, bases))):
                raise NotUnderstood(_FOLLOWS_LINKS)


def shell_directories(commands: Sequence[Command], places: PathScope, starts: Sequence[str]) -> list[str] | None:
    """Return every directory a shell that starts in one of these may be in while the line runs, None if that is
    unclear. Names count as well as what they lead to: `cd link; cd ..` goes back in most shells."""
    bases = list(starts)
    for command in commands:
        inner = effective(command)
        if inner is None or inner.name in ("pushd", "popd"):
            return None
        if inner.name != "cd":
            continue
        if len(inner.words) != 2 or inner.words[1].text.startswith(("-", "+")):
            return None  # `cd --` goes home, and `cd -` back
        target = inner.words[1]
        try:
            found = resolve(target, places, bases)
        except NotUnderstood:
            return None
        if not target.is_glob:
            found = [*(expand(target.text, base, places.home) for base in bases), *found]
        bases = list(dict.fromkeys([*bases, *found]))
        if len(bases) > _MAX_BASES:
            return None
    return bases


def resolve(word: Word, places: PathScope, bases: Sequence[str]) -> list[str]:
    """Return the real paths that a word may stand for, from each directory the shell may be in. Raise NotUnderstood."""
    if word.dynamic:
        raise NotUnderstood("a path is known only when it runs")
    text = word.text
    if _own_view(text):
        raise NotUnderstood("it names a file by way of the process that looks at it")
    if word.is_tilde and text != "~" and not text.startswith("~/"):
        raise NotUnderstood("it names another user's home")
    if text.startswith("~") and not word.is_tilde:
        text = "./" + text
    if text == NULL_DEVICE:
        return []
    if not word.is_glob:
        return [places.real(text, base) for base in bases]
    if not text.isascii():
        raise NotUnderstood("its wildcards are not ASCII")
    if has_deep_wildcards(word):
        raise NotUnderstood("its wildcards reach too deep")
    return [match for base in bases for match in _matches_of(word, text, places, base)]


_OWN_VIEW = re.compile(r"/(?:proc/[^/]+(?:/task/[^/]+)?/(cwd|root|fd)|dev/fd)(?=/|$)")


def _own_view(text: str) -> re.Match[str] | None:
    """Match the start of a path that means a different file in each process, as `/proc/self/cwd` does."""
    return _OWN_VIEW.match("/" + os.path.normpath(text).lstrip("/")) if text.startswith("/") else None


def without_own_view(text: str, base: str) -> str:
    """Return the path as a process in the directory `base` sees it."""
    found = _own_view(text)
    return {"cwd": base, "root": "/"}.get(found[1], found[0]) + found.string[found.end() :] if found else text


def has_deep_wildcards(word: Word) -> bool:
    return sum(map(_is_wild, word.text.split("/"))) > _MAX_DEPTH


def _is_wild(part: str) -> bool:
    return any(char in part for char in "*?[")


def matches(word: Word, places: PathScope, bases: Sequence[str]) -> list[str]:
    """Return the real paths that a word with wildcards matches, for rules that deny; deep ones are asked about."""
    if has_deep_wildcards(word):
        return []
    text = re.sub(r"\[\^", "[!", word.text)
    text = places.home + text[1:] if word.is_tilde else text
    found: list[str] = []
    for base in bases:
        full = os.path.join(glob.escape(base), text)
        as_bytes = map(os.fsdecode, glob.iglob(os.fsencode(full)))  # as a shell in the locale C counts characters
        named = [itertools.islice(matched, _MAX_MATCHES) for matched in (glob.iglob(full), as_bytes)]
        found += [places.real(match, base) for match in dict.fromkeys(itertools.chain(*named))]
    return list(dict.fromkeys(found))


def _matches_of(word: Word, text: str, places: PathScope, base: str) -> list[str]:
    """Return the real paths that a word with wildcards may match in any locale: `?` counts as `*`, because the locale
    says how many bytes make a character."""
    text = text.replace("?", "*")
    if text.startswith("-") and not _may_become_option(text, base):
        return []  # nothing can match, so the shell leaves the word unchanged, as an option
    if "\0" in word.skeleton or "[" in text:
        raise NotUnderstood("its wildcards are not simple")
    pattern = places.home + text[1:] if word.is_tilde else text
    parts = pattern.split("/")
    if any(part.startswith(".") and part != ".." and fnmatch.fnmatchcase("..", part) for part in parts):
        # many shells count `..` among the matches of `.*`
        raise NotUnderstood("its wildcards may lead upwards")
    if _may_become_option(text, base):
        raise NotUnderstood("its wildcards may turn into an option")
    head = list(itertools.takewhile(lambda part: not _is_wild(part), parts))
    found = [places.real("/".join(head) or ("/" if pattern.startswith("/") else "."), base)]
    for match in glob.iglob(os.path.join(glob.escape(base), pattern)):
        found.append(places.real(match, base))
        if len(found) > _MAX_MATCHES:
            raise NotUnderstood("its wildcards match too many files")
    return found


def _may_become_option(text: str, base: str) -> bool:
    pattern = re.sub(r"\[.*", "*", text.split("/")[0], flags=re.DOTALL)
    if pattern[:1] not in ("-", "*", "?"):
        return False
    try:
        return any(name.startswith("-") and fnmatch.fnmatchcase(name, pattern) for name in os.listdir(base))
    except OSError:
        return False
