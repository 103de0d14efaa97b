"""Which files a read-only command line looks at, as far as its text tells."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Sequence

from .paths import Places
from .readonly import NULL_DEVICE
from .shell import Command, Word, names
from .wrappers import effective, started_by

_MOST_MATCHES = 2000

# These print what they are told, or ask the system; an argument of theirs opens no file's content.
_PATHLESS = names(
    "echo true false : basename dirname seq which type exit whoami id uname arch nproc groups logname uptime free tr sleep"
    " ps pwd env hostname printenv whereis test [ printf date command set realpath readlink"
)
_PATTERN_FIRST = frozenset(("grep", "egrep", "fgrep", "rg", "sed", "jq"))
_PATTERN_OPTIONS = ("--regexp", "--file", "--files", "--expression", "--from-file")


def is_pathless(command: Command) -> bool:
    inner = effective(command)
    if inner is None or any("/" in word.text and word.is_glob for word in inner.words[1:]):
        return False  # `echo /etc/*` tells what is there
    return not inner.words or inner.name in _PATHLESS


class Unknown(Exception):
    """It cannot be told which files are read."""


def operands_read(command: Command) -> list[Word]:
    """The words that may name files, `cd` targets and input redirections included. Raises Unknown."""
    inputs = [redirect.target for redirect in command.redirects if not redirect.writes]
    inner = effective(command)
    if inner is None:
        raise Unknown("the command it starts cannot be told")
    words = list(inner.words[1:])
    if not inner.words or inner.name in _PATHLESS:
        return inputs + [word for word in words if "/" in word.text and word.is_glob]
    if inner.name == "find":
        return inputs + _find_roots(inner, words)
    if inner.name == "xargs":
        for part in started_by(inner) or []:
            if not is_pathless(part):
                raise Unknown("the files it reads come from another command")
        return inputs
    return inputs + _operands(inner.name, words)


def _find_roots(command: Command, words: Sequence[Word]) -> list[Word]:
    roots: list[Word] = []
    for word in words:
        if word.text in ("-H", "-L", "-P"):
            continue
        if word.text.startswith(("-", "(", "!")):
            break
        roots.append(word)
    texts = [word.text for word in words]
    plain_files = any(pair == ("-type", "f") for pair in zip(texts, texts[1:]))
    follows = any(text in ("-L", "-H", "-follow") for text in texts)
    found = list(roots)
    for part in started_by(command) or []:
        if is_pathless(part):
            continue
        inner = effective(part)
        if inner is None or started_by(inner) != []:
            raise Unknown("the command it starts cannot be told")
        if follows or not plain_files:
            raise Unknown("find may hand it links that lead elsewhere")
        found += _operands(inner.name, [word for word in inner.words[1:] if not word.dynamic])
    return found


def _operands(name: str, words: Sequence[Word]) -> list[Word]:
    found: list[Word] = []
    texts = [word.text for word in words]
    if _follows_links(name, texts):
        raise Unknown("it follows links that may lead elsewhere")
    skip_pattern = name in _PATTERN_FIRST and not any(map(_gives_pattern, texts))
    for word in words:
        text = word.text
        if text.startswith("-") and len(text) > 1 and not word.dynamic:
            values = (text.partition("=")[2], "" if text.startswith("--") else text[2:])
            found += [Word(v, v) for v in values if v.startswith(("/", "~")) or ".." in v.split("/")]
            continue
        if skip_pattern:
            skip_pattern = False
            if word.dynamic:
                raise Unknown("an argument is known only when it runs")
            continue
        if word.dynamic:
            raise Unknown("an argument is known only when it runs")
        found.append(word)
    return found


def _gives_pattern(text: str) -> bool:
    """Whether an option carries the pattern, so that the first operand is a file already. Abbreviations count."""
    if text.startswith("--"):
        return len(text) > 2 and any(option.startswith(text.partition("=")[0]) for option in _PATTERN_OPTIONS)
    return text.startswith("-") and ("e" in text or "f" in text)


def _follows_links(name: str, texts: Sequence[str]) -> bool:
    short = "".join(text[1:] for text in texts if text.startswith("-") and not text.startswith("--"))
    long = [text for text in texts if text.startswith("--") and len(text) > 2]
    if name in ("grep", "egrep", "fgrep"):
        return "R" in short or any("--dereference-recursive".startswith(text) for text in long)
    if name == "rg":
        return "L" in short or "--follow" in long
    return name == "diff" and ("r" in short or any("--recursive".startswith(text) for text in long))


def resolve(word: Word, places: Places, bases: Sequence[str]) -> list[str]:
    """The real paths a word may stand for, from each directory the shell may be in. Raises Unknown."""
    if word.dynamic:
        raise Unknown("a path is known only when it runs")
    text = word.text
    if is_own_view(text):
        raise Unknown("it names a file by way of the process that looks at it")
    if word.is_tilde and text != "~" and not text.startswith("~/"):
        raise Unknown("it names another user's home")
    if text.startswith("~") and not word.is_tilde:
        text = "./" + text
    if text in (NULL_DEVICE, "-"):
        return []
    found: list[str] = []
    for base in bases:
        if word.is_glob:
            found += _matches_of(word, text, places, base)
        else:
            found.append(places.real(text, base))
    return found


_OWN_VIEW = re.compile(r"/(?:proc/[^/]+(?:/task/[^/]+)?/(cwd|root|fd)|dev/fd)(?=/|$)")


def is_own_view(text: str) -> bool:
    """Whether a path means another file to each process (`/proc/self/cwd`)."""
    return text.startswith("/") and _OWN_VIEW.match("/" + os.path.normpath(text).lstrip("/")) is not None


def without_own_view(text: str, base: str) -> str:
    """The path as a command in `base` sees it."""
    if not is_own_view(text):
        return text
    path = "/" + os.path.normpath(text).lstrip("/")
    found = _OWN_VIEW.match(path)
    assert found is not None
    return {"cwd": base, "root": "/"}.get(found[1], found[0]) + path[found.end() :]


def matches(word: Word, places: Places, bases: Sequence[str]) -> list[str]:
    """Real paths that a word with wildcards comes to, for rules that deny: as many as can be found."""
    text = re.sub(r"\[\^", "[!", word.text)
    text = places.home + text[1:] if word.is_tilde else text
    found: list[str] = []
    for base in bases:
        full = text if text.startswith("/") else os.path.join(glob.escape(base), text)
        found += [places.real(match, base) for match in itertools.islice(glob.iglob(full), _MOST_MATCHES)]
    return found


def _matches_of(word: Word, text: str, places: Places, base: str) -> list[str]:
    if "\0" in word.skeleton or "[" in text:
        raise Unknown("its wildcards are not simple")
    pattern = places.home + text[1:] if word.is_tilde else text
    if any(part.startswith(".") and part != ".." and fnmatch.fnmatchcase("..", part) for part in pattern.split("/")):
        raise Unknown("its wildcards may lead upwards")  # many shells count `..` among the matches of `.*`
    full = pattern if pattern.startswith("/") else os.path.join(glob.escape(base), pattern)
    found = [places.real(_literal_part(pattern), base)]
    for match in glob.iglob(full):
        found.append(places.real(match, base))
        if len(found) > _MOST_MATCHES:
            raise Unknown("its wildcards match too many files")
    return found


def _literal_part(pattern: str) -> str:
    parts = pattern.split("/")
    first = next(at for at, part in enumerate(parts) if any(char in part for char in "*?["))
    return "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ".")
