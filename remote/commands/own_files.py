"""The person's own commands and skills: they come with the options of a client, and are written to the session's
private directory, so that commands and the model find the files beside a skill there."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
from dataclasses import replace

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.kinds.own_files import unpack

log = logging.getLogger(__name__)

_WRITTEN = re.compile(r"own/[0-9a-f]{16}")


def written(options: SessionOptions, directory: str) -> SessionOptions:
    """Return options whose `own_files` name the directory with the files, below the session's `directory`. Without one
    ("") there are no own files."""
    packed = options.own_files
    if not packed or (directory and _WRITTEN.fullmatch(packed)):
        return options
    name = f"own/{hashlib.sha256(packed.encode()).hexdigest()[:16]}"
    try:
        if not directory:
            raise OSError("this session is in memory only")
        _write(packed, os.path.join(directory, name))
    except (OSError, ValueError) as error:
        log.warning("the person's own commands and skills are not there: %s", error)
        name = ""
    return replace(options, own_files=name)


def _write(packed: str, top: str) -> None:
    """Write the files to `top` unless they are there. Raise OSError, ValueError."""
    if os.path.isdir(top):
        return
    new = f"{top}.{os.getpid()}.new"
    shutil.rmtree(new, ignore_errors=True)
    for each in unpack(packed):
        path = os.path.join(new, ".claude", each.path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 | each.executable * 0o100), "w") as file:
            file.write(each.text)
    os.rename(new, top)
