"""The request with which a zygote starts a command."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from .rules import CageKind, CageRules

_NO_RULES = CageRules(CageKind.READ_ONLY, (), (), ())


def start_request(
    argv: Sequence[str],
    cwd: str,
    env: Mapping[str, str],
    rules: CageRules | None,
    temporary: str,
    abi: int,
    program: str | None = None,
) -> dict[str, object]:
    """Return what the zygote is asked, so that it starts a command, without a cage if there are no rules. The `program`
    is by default what the first word names. Raise FileNotFoundError if there is no such program."""
    import shutil

    program = program or (argv[0] if "/" in argv[0] else shutil.which(argv[0], path=env.get("PATH", os.defpath)))
    if program is None:
        raise FileNotFoundError(2, os.strerror(2), argv[0])
    whole = {**env, **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), temporary)} if temporary else dict(env)
    caged, rules = rules is not None, rules or _NO_RULES
    return {
        "ask": "start",
        "caged": caged,
        "abi": abi,
        "program": os.fsencode(program),
        "argv": [os.fsencode(each) for each in argv],
        "cwd": os.fsencode(cwd),
        "environment": [os.fsencode(part) for pair in whole.items() for part in pair],
        "workspace": rules.kind is CageKind.WORKSPACE,
        "read": [os.fsencode(each) for each in rules.read],
        "write": [os.fsencode(each) for each in rules.write],
        "execute": [os.fsencode(each) for each in rules.execute],
        "protected": [os.fsencode(each) for each in rules.protected],
        "linked": [os.fsencode(each) for each in rules.linked],
        "temporary": os.fsencode(temporary),
        "network": rules.network,
        "own": rules.own,
    }
