"""Which files a read-only command line looks at, as far as its text tells."""

from __future__ import annotations

import fnmatch
import glob
import itertools
import os
import re
from collections.abc import Sequence

from ..paths import Places
from .find_expression import Unclear, check_plain_files
from .parser import Command, Word, names
from .readonly import NULL_DEVICE
from .wrappers import FOUND, effective, started_by

_MOST_MATCHES = 2000
_LONGEST_NAME = 255

# These print what they are told, or ask the system; an argument of theirs opens no file's content.
_PATHLESS = names(
    "echo true false : basename dirname seq which type exit whoami id uname arch nproc groups logname uptime free tr sleep"
    " ps pwd env hostname printenv whereis test [ printf date command set realpath readlink"
)
_PATTERN_FIRST = frozenset(("grep", "egrep", "fgrep", "rg", "sed"))
_PATTERN_OPTIONS = ("--regexp", "--file", "--files", "--expression")
_FILE_OPTIONS = ("--exclude-from", "--ignore-file")  # their value stands before the pattern
_AS_FOUND = Word("{}", "\0\0")  # in place of what find has found, which is looked at by itself


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
    texts = [word.text for word in words]
    if "-L" in texts or "-follow" in texts:
        raise Unknown("it follows links that may lead elsewhere")
    start = next((at for at, text in enumerate(texts) if _begins_expression(text)), len(texts))
    roots = [word for word in words[:start] if word.text not in ("-H", "-P")]
    started = started_by(command)
    if started is None:
        raise Unknown("the command it starts cannot be told")
    found = list(roots)
    for part in started:
        if is_pathless(part):
            continue
        inner = effective(part)
        if inner is None or started_by(inner) != []:
            raise Unknown("the command it starts cannot be told")
        found += _operands(inner.name, [_AS_FOUND if word == FOUND else word for word in inner.words[1:]])
    needs = [not is_pathless(part) for part in started]
    try:
        check_plain_files(texts[start:], needs)
    except Unclear:
        if any(needs):
            raise Unknown("find may hand it links that lead elsewhere") from None
    if any(needs) and "-H" in texts:
        raise Unknown("find may hand it links that lead elsewhere")
    return found


def _begins_expression(text: str) -> bool:
    return text.startswith(("-", "(", "!")) and text not in ("-H", "-P")


def _operands(name: str, words: Sequence[Word]) -> list[Word]:
    found: list[Word] = []
    texts = [word.text for word in words]
    if _follows_links(name, texts):
        raise Unknown("it follows links that may lead elsewhere")
    if _reads_a_list(name, texts):
        raise Unknown("the files it reads are named in another file")
    if any(word.dynamic for word in words):
        raise Unknown("an argument is known only when it runs")
    if name == "jq":
        return _jq_files(words)
    skip_pattern = name in _PATTERN_FIRST and not any(map(_gives_pattern, texts))
    options_end = False
    for word in words:
        if word.text.startswith("-") and len(word.text) > 1:
            found += [_as_path(value) for value in option_values(word.text)]
            if options_end:  # or not, when that `--` was the value of an option
                skip_pattern = False
            if options_end or word.is_glob:
                found.append(word)
            options_end = options_end or word.text == "--"
        elif skip_pattern:
            skip_pattern = False
            if word.is_glob:  # the shell may make several words of it, and all but the first are files
                found.append(word)
        else:
            found.append(word)
    return found


def option_values(text: str) -> list[str]:
    """What may be the value of an option, glued to it. Only the program knows which letters take one: of `-nFf../x` all the
    rests are, but for those that are longer than any file's name."""
    if text.startswith("--"):
        return [text.partition("=")[2]] if "=" in text else []
    letters = re.match(r"-[A-Za-z0-9.]*", text)
    if letters is None:
        return []
    return [text[at:] for at in range(max(2, letters.end() - _LONGEST_NAME), letters.end() + 1) if text[at:]]


def _as_path(value: str) -> Word:
    """The shell has nothing to expand in it."""
    return Word(value, value if value.startswith("~") else "\0" * len(value))


_JQ_FLAGS = names(
    "--seq --stream --stream-errors --slurp --raw-input --null-input --compact-output --tab --color-output"
    " --monochrome-output --ascii-output --unbuffered --sort-keys --raw-output --raw-output0 --join-output"
    " --exit-status --args --jsonargs --version --help --build-configuration"
)
_JQ_VALUES = {"--indent": 1, "--arg": 2, "--argjson": 2}
_JQ_FILES = names("--slurpfile --rawfile --argfile")
_JQ_OPENS = re.compile(r"(?<![\w.\"])(?:import|include|modulemeta)\b(?!\s*:)")


def _jq_files(words: Sequence[Word]) -> list[Word]:
    """A program of jq opens files with `import`; --run-tests, -f and -L make it read others."""
    found: list[Word] = []
    rest = list(words)
    has_program = False
    while rest:
        word = rest.pop(0)
        text = word.text
        if text in _JQ_VALUES or text in _JQ_FILES:
            values = [rest.pop(0) for _ in range(_JQ_VALUES.get(text, 2)) if rest]
            if any(value.is_glob for value in values):
                raise Unknown("an argument is known only when it runs")
            found += values[1:] if text in _JQ_FILES else []
        elif text.startswith("-") and len(text) > 1:
            if text not in _JQ_FLAGS and not re.fullmatch(r"-[snrRcCMaSjehV]+", text):
                raise Unknown(f"{text} may open other files")
        elif has_program:
            found.append(word)
        else:
            has_program = True
            if word is _AS_FOUND or word.is_glob or _JQ_OPENS.search(text):
                raise Unknown("its program may open other files")
    return found


def _reads_a_list(name: str, texts: Sequence[str]) -> bool:
    long = [text.partition("=")[0] for text in texts if text.startswith("--") and len(text) > 2]
    if name in ("wc", "du"):
        return any("--files0-from".startswith(text) for text in long)
    if name.endswith("sum"):
        return "c" in _letters(texts) or any("--check".startswith(text) for text in long)
    return False


def _letters(texts: Sequence[str]) -> str:
    return "".join(text[1:] for text in texts if text.startswith("-") and not text.startswith("--"))


def _gives_pattern(text: str) -> bool:
    """Whether an option carries the pattern, so that the first operand is a file already. Abbreviations count."""
    if text.startswith("--"):
        name = text.partition("=")[0]
        if len(name) > len("--exclude-") and any(option.startswith(name) for option in _FILE_OPTIONS):
            return True
        return len(text) > 2 and any(option.startswith(name) for option in _PATTERN_OPTIONS)
    return text.startswith("-") and ("e" in text or "f" in text)


def _follows_links(name: str, texts: Sequence[str]) -> bool:
    short = _letters(texts)
    long = [text for text in texts if text.startswith("--") and len(text) > 2]
    if name in ("grep", "egrep", "fgrep"):
        return "R" in short or any("--dereference-recursive".startswith(text) for text in long)
    if name == "rg":
        return "L" in short or "--follow" in long
    if name == "tree":
        return "l" in short
    if name in ("du", "ls"):
        everywhere = "L" in short or any("--dereference".startswith(text) for text in long)
        return everywhere and (name == "du" or "R" in short or any("--recursive".startswith(text) for text in long))
    return name == "diff" and ("r" in short or any("--recursive".startswith(text) for text in long))


def check_directories(command: Command, words: Sequence[Word], places: Places, bases: Sequence[str]) -> None:
    """`diff` looks through links in the directories it is given. Raises Unknown."""
    inner = effective(command)
    if inner is not None and any(part.name == "diff" for part in (inner, *(started_by(inner) or []))):
        for word in words:
            if any(map(os.path.isdir, resolve(word, places, bases))):
                raise Unknown("it follows links that may lead elsewhere")


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
    if text.startswith("-") and not _may_become_option(text, base):
        return []  # there is nothing it could match: the word stays an option
    if "\0" in word.skeleton or "[" in text:
        raise Unknown("its wildcards are not simple")
    pattern = places.home + text[1:] if word.is_tilde else text
    if any(part.startswith(".") and part != ".." and fnmatch.fnmatchcase("..", part) for part in pattern.split("/")):
        raise Unknown("its wildcards may lead upwards")  # many shells count `..` among the matches of `.*`
    if _may_become_option(text, base):
        raise Unknown("its wildcards may turn into an option")
    full = pattern if pattern.startswith("/") else os.path.join(glob.escape(base), pattern)
    found = [places.real(_literal_part(pattern), base)]
    for match in glob.iglob(full):
        found.append(places.real(match, base))
        if len(found) > _MOST_MATCHES:
            raise Unknown("its wildcards match too many files")
    return found


def _may_become_option(text: str, base: str) -> bool:
    """Whether a word with wildcards may match a file whose name begins with a dash."""
    pattern = re.sub(r"\[.*", "*", text.split("/")[0], flags=re.DOTALL)
    if pattern[:1] not in ("-", "*", "?"):
        return False
    try:
        return any(name.startswith("-") and fnmatch.fnmatchcase(name, pattern) for name in os.listdir(base))
    except OSError:
        return False


def _literal_part(pattern: str) -> str:
    parts = pattern.split("/")
    first = next(at for at, part in enumerate(parts) if any(char in part for char in "*?["))
    return "/".join(parts[:first]) or ("/" if pattern.startswith("/") else ".")
