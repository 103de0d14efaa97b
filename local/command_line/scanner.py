"""Cut argv into words and option values.

Both `--name value` and `--name=value` work; options of one letter also take their value attached (`-P22`). `--` ends
the options. Everything after the first word belongs to that command if it is one of OWN_WORDS.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from ccb.tunnel.errors import UsageError
from ccb.tunnel.wire.dataclass import dataclass

from .option_declaration import Option, OptionKind, OptionValue, is_session_id, is_worktree_name, shortened, split_rules
from .options import BY_NAME, OWN_WORDS

_RECURSIVE = ("-r", "-R")
_PRINT = ("-p", "--print")
_WHOLE_WORDS = ("add_dirs", "mcp_config")


@dataclass(frozen=True)
class Scanned:
    """The words that are not options, in order, and the value of each option.

    `variadic` is the last option that took more than one word: it may have swallowed a prompt. `ended_at_start` says
    that the first word came after `--`, so it is not a command. `unknown` are
    options that were passed over, each as the person reads it. `printed_at` is the index of the first word after -p, -1
    without -p.
    """

    words: tuple[str, ...]
    values: Mapping[Option, OptionValue]
    variadic: str = ""
    ended_at_start: bool = False
    unknown: tuple[str, ...] = ()
    printed_at: int = -1


def scan(argv: Sequence[str]) -> Scanned:
    """Cut `argv` into words and option values. Raises UsageError for unknown options and wrong values."""
    return _Scanner(argv).scan()


class _Scanner:
    def __init__(self, argv: Sequence[str]) -> None:
        self._argv = list(argv)
        self._next = 0
        self._words: list[str] = []
        self._values: dict[Option, OptionValue] = {}
        self._variadic = ""
        self._unknown: list[str] = []
        self._tolerant = _speaks_json(self._argv)

    def scan(self) -> Scanned:
        words = self._words
        ended_at_start, printed_at = False, -1
        while self._next < len(self._argv):
            word = self._argv[self._next]
            self._next += 1
            if word == "--":
                ended_at_start = not words
                words += self._argv[self._next :]
                break
            if word.startswith("-") and word != "-":
                self._take_option("--recursive" if word in _RECURSIVE and words[:1] == ["cp"] else word)
                printed_at = len(words) if word in _PRINT else printed_at
                continue
            words.append(word)
            if len(words) == 1 and words[0] in OWN_WORDS:
                words += self._argv[self._next :]
                break
        return Scanned(tuple(words), self._values, self._variadic, ended_at_start, tuple(self._unknown), printed_at)

    def _take_option(self, word: str) -> None:
        option, attached = _named(word)
        if option is None:
            self._pass_over(word)
            return
        match option.kind:
            case OptionKind.FLAG:
                if attached is not None:
                    raise UsageError(f"error: option '{option.shown}' takes no value")
                self._values[option] = True
            case OptionKind.OPTIONAL:
                if attached is None:
                    attached = self._worktree_name() if option.field == "worktree" else self._session_id()
                    self._values[option] = attached
                else:
                    self._values[option] = _read(option, attached)
            case OptionKind.VARIADIC:
                words = [attached] if attached is not None else self._following(option)
                self._append(option, words if option.field in _WHOLE_WORDS else _rules(words))
            case OptionKind.REPEAT:
                self._append(option, [str(_read(option, self._value(option, attached)))])
            case OptionKind.VALUE:
                self._values[option] = _read(option, self._value(option, attached))

    def _pass_over(self, word: str) -> None:
        """Pass over an option that this version does not know, together with its value: what follows `=`, or the one
        next word if it does not start with `-`. Only programs that speak JSON may use such options: a person meant
        another one."""
        name, equals, _ = word.partition("=")
        if not self._tolerant:
            import difflib

            near = difflib.get_close_matches(name, BY_NAME, n=2, cutoff=0.7)
            do = f"Did you mean {' or '.join(near)}?" if near else "See `ccb help`."
            raise UsageError(f"error: unknown option '{shortened(name)}'", do=do)
        swallowed = ""
        if not equals and self._next < len(self._argv) and not self._argv[self._next].startswith("-"):
            swallowed = f" and its value {shortened(self._argv[self._next])!r}"
            self._next += 1
        self._unknown.append(f"unknown option '{shortened(name)}'{swallowed} ignored")

    def _append(self, option: Option, items: Sequence[str]) -> None:
        before = self._values.get(option, ())
        assert isinstance(before, tuple)
        self._values[option] = (*before, *items)

    def _value(self, option: Option, attached: str | None) -> str:
        return attached if attached is not None else self._one(option)

    def _one(self, option: Option) -> str:
        """Return the next word as the option's value."""
        if self._next >= len(self._argv) or self._argv[self._next] == "--":
            raise UsageError(f"error: option '{option.shown}' argument missing")
        value = self._argv[self._next]
        if value.startswith("-") and len(value) > 1 and value.partition("=")[0] in BY_NAME:
            raise UsageError(
                f"error: option '{option.shown}' argument missing",
                do=f"A value that starts with - is written {option.names[0]}={value}.",
            )
        self._next += 1
        return value

    def _session_id(self) -> str:
        """Return the next word if it is a session's ID, else `""`: the word after the option may also be a prompt."""
        if self._next < len(self._argv) and is_session_id(self._argv[self._next]):
            self._next += 1
            return self._argv[self._next - 1].lower()
        return ""

    def _worktree_name(self) -> str:
        """Return the next word if it can only be the name of a worktree, else `""`: it may also be the place where the
        session works, which comes first."""
        word = self._argv[self._next] if self._next < len(self._argv) else ""
        placed = len(self._words) > (self._words[:1] == ["ssh"])
        if not (placed or self._tolerant) or not is_worktree_name(word):
            return ""
        self._next += 1
        return word

    def _following(self, option: Option) -> list[str]:
        """Return the words up to the next option, at least one."""
        found = [self._one(option)]
        while self._next < len(self._argv) and not self._argv[self._next].startswith("-"):
            found.append(self._argv[self._next])
            self._next += 1
        if len(found) > 1:
            self._variadic = option.names[0]
        return found


def _speaks_json(argv: Sequence[str]) -> bool:
    """Return whether a program drives this run: both formats are stream-json."""
    pairs = {*argv, *(f"{name}={value}" for name, value in pairwise(argv))}
    return {"--input-format=stream-json", "--output-format=stream-json"} <= pairs


def _named(word: str) -> tuple[Option | None, str | None]:
    """Return the option that `word` names, None for an unknown one, and the value attached to it."""
    name, equals, attached = word.partition("=")
    if not word.startswith("--") and len(word) > 2 and word[:2] in BY_NAME:
        name, equals, attached = word[:2], "=", word[2:]
    return BY_NAME.get(name), attached if equals else None


def _rules(words: Sequence[str]) -> list[str]:
    return [rule for word in words for rule in split_rules(word)]


def _read(option: Option, value: str) -> str | int | float:
    if option.choices and value not in option.choices:
        raise UsageError(
            f"error: option '{option.shown}' argument '{shortened(value)}' is invalid. "
            f"Allowed choices are {', '.join(option.choices)}."
        )
    return option.read(value, option.shown)
