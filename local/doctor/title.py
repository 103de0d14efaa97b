"""The part of a `--transport` command that may be shown: the container's name. Its arguments may contain passwords."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import PurePath

from ..command_line.model import ConnectionOptions
from ..command_line.transport_choice import TransportKind, transport_kind

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./-]*")
_ENGINES = ("docker", "podman", "nerdctl")
_CLUSTERS = ("kubectl", "oc")
_FLAGS = re.compile(r"-[ditq]+|--(interactive|tty|detach|privileged|stdin|quiet)(=.*)?")
_WITH_VALUE = re.compile(
    r"-[ditq]*[euwnc]|--(env|env-file|user|workdir|detach-keys|namespace|container|context|kubeconfig|cluster|token|as)"
)
_HOLDS_VALUE = re.compile(r"--[a-z-]+=.*|-[euwnc].+", re.DOTALL)


def entered_container(connection: ConnectionOptions) -> str:
    """Return `docker exec web` for a `--transport` command that enters the container `web`.

    Return "" for every other command, and if it is uncertain which word is the name.
    """
    if (
        transport_kind(connection) is not TransportKind.COMMAND
        or connection.target is not None
        or connection.container is not None
    ):
        return ""
    words = shlex.split(str(connection.transport))
    programs = [PurePath(word).name for word in words]
    first = 1 if programs[0] == "sudo" else 0
    if (
        programs[first : first + 1]
        and programs[first] in (*_ENGINES, *_CLUSTERS)
        and words[first + 1 :][:1] == ["exec"]
    ):
        name = _first_argument(words[first + 2 :])
        if _NAME.fullmatch(name):
            return f"{programs[first]} exec {name}"
    return ""


def _first_argument(words: Sequence[str]) -> str:
    """Return the first word that is neither an option nor an option's value, or "" if an unknown option comes before
    it."""
    rest = iter(words)
    for word in rest:
        if _WITH_VALUE.fullmatch(word):
            next(rest, "")
        elif not word.startswith("-"):
            return word
        elif not (_FLAGS.fullmatch(word) or _HOLDS_VALUE.fullmatch(word)):
            return ""
    return ""
