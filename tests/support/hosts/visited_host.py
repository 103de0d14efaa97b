"""A host that ccb has visited before, with the worker bundle and its compiled copy, which would take 0.3 s."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from tests.support.worker.compiled import files_of

from ccb.deploy.bundle import CACHE, Bundle, load
from ccb.remote.daemon import compiled_copy
from ccb.remote.daemon.copy_writer import write_copy


def visit(home: Path, owner: int = -1) -> None:
    """Leave in `home` what a first session leaves there for the next one. The files belong to the user `owner`."""
    bundle, compiled = _left_behind()
    cache_directory = home / ".cache" / "ccb" / "worker"
    for step in (home / ".cache", home / ".cache" / "ccb", cache_directory):
        if not step.exists():
            step.mkdir(mode=0o700)
            os.chown(step, owner, -1)
    path = cache_directory / f"{bundle.sha256}.bundle"
    for file, data in ((path, bundle.data), (Path(compiled_copy.copy_path(str(path))), compiled)):
        file.touch(0o600)
        file.write_bytes(data)
        os.chown(file, owner, -1)


@cache
def _left_behind() -> tuple[Bundle, bytes]:
    """Return the bundle and its compiled copy for this Python, which is kept from one run of the tests to the next."""
    bundle, directory = load(), CACHE / "visited"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = str(directory / f"{bundle.sha256}.bundle")
    if compiled_copy.load(path, bundle.sha256)[1]:
        for older in directory.iterdir():
            if not older.name.startswith((bundle.sha256, ".")):  # the other processes of this run write there too
                older.unlink(missing_ok=True)
        Path(path).touch()
        sources = {file: source.encode() for file, source in files_of(bundle.data).items()}
        write_copy(path, bundle.sha256, sources)
    return bundle, Path(compiled_copy.copy_path(path)).read_bytes()
