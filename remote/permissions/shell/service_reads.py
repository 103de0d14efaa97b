"""Commands of operators that only read, and that no cage can hold: docker, kubectl and systemctl ask a server, others
need a device or look into other processes. One rule of the person allows them all."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .harmless_options import HARMLESS
from .read_only import ss_with_programs
from .risky_options import uncovered
from .shell_words import Command, Word, is_harmless_assignment, names

_PROGRAMS = names("dmesg nvidia-smi")
_SUBCOMMANDS = {
    "docker": names("ps images logs inspect stats version info port"),
    "kubectl": names("get describe logs top version"),
    "systemctl": names("""status show cat list-units list-unit-files list-timers list-sockets list-dependencies
        list-jobs is-active is-enabled is-failed is-system-running get-default"""),
}
_BEFORE_SUBCOMMAND = {
    "kubectl": {"-n": 1, "--namespace": 1},
    "systemctl": dict.fromkeys(("--no-pager", "--user", "--system", "-l", "--full", "-a", "--all"), 0),
}
"""Options that may stand before the sub-command, with the number of values each takes."""

_SECRETS = re.compile(r"(?:.*,)?secrets?(?:[./,].*)?", re.IGNORECASE | re.DOTALL)
_FIELDS = "State|NetworkSettings|Networks|Mounts|Name|Id|Created|Image|RestartCount|IPAddress|Source|Destination|Type"
_ACTION = rf"\{{\{{ ?(?:end|(?:json |range |len )?\.(?:{_FIELDS})(?:\.\w+)*) ?\}}\}}"
_TEMPLATE = re.compile(rf"(?:[^{{}}]|{_ACTION})+")


def reads_service(command: Command) -> bool:
    """Return whether a command, without its wrappers, is such a call. All of it must be written out."""
    words, name = command.words, command.name
    if not all(word.is_literal for word in words):
        return False
    if not all(is_harmless_assignment(each, bool(words)) for each in command.assignments):
        return False
    if name == "ss":
        return ss_with_programs(words[1:])
    if name in _PROGRAMS:
        return _only_listed(words, 1)
    words = _subcommand_first(words)
    texts = [word.text for word in words[2:]]
    if len(words) < 2 or words[1].text not in _SUBCOMMANDS.get(name, ()) or not _only_listed(words, 2):
        return False
    if name == "kubectl":
        return not any(map(names_secrets, texts))
    return words[1].text != "inspect" or _shows_fields(texts)


def names_secrets(resource: str) -> bool:
    """Return whether a word of kubectl names secrets, among other things."""
    return _SECRETS.fullmatch(resource) is not None


def _only_listed(words: Sequence[Word], head: int) -> bool:
    """Return whether all options behind the first words are in the list of harmless ones."""
    listed = " ".join(word.text for word in words[:head]) in HARMLESS
    return listed and uncovered(words, head, lambda path: False, None) is None


def _subcommand_first(words: tuple[Word, ...]) -> tuple[Word, ...]:
    options, at = _BEFORE_SUBCOMMAND.get(words[0].text if words else "", {}), 1
    while at < len(words) and (option := words[at].text.partition("="))[0] in options:
        at += 1 if option[1] else 1 + options[option[0]]
    return (*words[:1], *words[at : at + 1], *words[1:at], *words[at + 1 :])


def _shows_fields(texts: Sequence[str]) -> bool:
    """Return whether `docker inspect` is told to show known fields only: the whole has the variables of a container,
    which often hold passwords."""
    given = [text.partition("=")[2] for text in texts if text.startswith("--format=")]
    given += [text for option, text in zip(texts, texts[1:]) if option in ("-f", "--format")]
    others = (text for text in texts if text.startswith("-") and not text.startswith("--format="))
    return bool(given) and all(map(_TEMPLATE.fullmatch, given)) and all(text in ("-f", "--format") for text in others)
