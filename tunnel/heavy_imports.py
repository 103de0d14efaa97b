"""Import large packages without the parts that make it slow."""

from __future__ import annotations

import gc
import importlib
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

_LOADER_CACHE = Path("/etc/ld.so.cache")
_X509 = "asyncssh.crypto.x509"
_replacing = threading.Lock()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage in this context, which only imports: the collector would look at all the new objects again and
    again, 80 ms with the interface. If something was imported, what exists at the end is kept out of later collections;
    with each session of a fleet that would be for ever what ended sessions have left."""
    was_enabled, known = gc.isenabled(), len(sys.modules)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            if len(sys.modules) > known:
                gc.freeze()
            gc.enable()


def collect_rarely() -> None:
    """Let the collector look at everything seldom: drawing makes many objects, and a look takes longer than a frame."""
    gc.set_threshold(5_000, 3, 160)


def take_short_turns() -> None:
    """Let the threads of this process take turns every half millisecond instead of every five: while one of them
    imports, the one that serves the network would wait for its turn at each step of a login, 100 ms in all."""
    sys.setswitchinterval(0.0005)


def load_asyncssh() -> None:
    """Import asyncssh without X.509 certificates (15 ms), and without a compiler that looks for missing libraries."""
    with collection_paused(), _quick_library_search(), _without(_X509):
        importlib.import_module("asyncssh")
    # asyncssh looks the name up when it reads such a certificate, although it knows that it has no such function.
    vars(importlib.import_module("asyncssh.public_key")).setdefault("import_x509_certificate", _no_x509_certificate)


def load_aiohttp() -> None:
    with collection_paused():
        importlib.import_module("aiohttp")


@contextmanager
def _without(name: str) -> Iterator[None]:
    """Let an import of the module `name` fail, unless it is imported already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment] # how Python is told that there is no such module
    try:
        yield
    finally:
        sys.modules.pop(name, None)


def _no_x509_certificate(_: bytes) -> None:
    raise ValueError("X.509 certificates are not supported")


@contextmanager
def _quick_library_search() -> Iterator[None]:
    """Let `find_library`, which runs ldconfig, gcc and ld (50 ms or more) for asyncssh, answer at once that a library
    is missing. The answer stays the same: what the cache of the dynamic loader does not name cannot be loaded."""
    from ctypes import util  # 4 ms, which only asyncssh needs

    with _replacing:
        search: Callable[[str], str | None] = util.find_library
        util.find_library = quick_search(search, _LOADER_CACHE, os.environ)  # type: ignore[assignment]
        try:
            yield
        finally:
            util.find_library = search  # type: ignore[assignment]


def quick_search(
    search: Callable[[str], str | None], cache: Path, environ: Mapping[str, str]
) -> Callable[[str], str | None]:
    """Return a function like `search` that asks it only about libraries of which the `cache` has several versions;
    `search` itself where there is no cache (macOS, musl) or the environment names other directories."""
    try:
        known = cache.read_bytes()
    except OSError:
        return search
    if environ.get("LD_LIBRARY_PATH"):
        return search

    def find_library(name: str) -> str | None:
        pattern = rb"[\0/](lib" + re.escape(name.encode()) + rb"\.so[^\0/]*)(?=\0)"
        names = {found.decode("ascii", "replace") for found in re.findall(pattern, known)}
        if len(names) > 1:
            names.discard(f"lib{name}.so")  # for compilers: the loader's own list has it behind the others
        return search(name) if len(names) > 1 else next(iter(names), None)

    return find_library
