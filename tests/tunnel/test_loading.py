"""Imports without garbage collection and without a compiler, which leave nothing behind."""

from __future__ import annotations

import ctypes.util
import gc
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ccb.tunnel.heavy_imports import collect_rarely, collection_paused, quick_search


def test_the_collector_is_paused_and_goes_on_and_looks_at_everything_seldom() -> None:
    with collection_paused():
        assert not gc.isenabled()
        with collection_paused():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ImportError), collection_paused():
        raise ImportError
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    with collection_paused():
        pass  # nothing new: garbage that is there must not stay for ever
    assert gc.get_freeze_count() <= frozen
    before = gc.get_threshold()
    try:
        collect_rarely()
        objects = gc.get_threshold()
        assert objects[0] * objects[1] * objects[2] > 1_000_000
    finally:
        gc.set_threshold(*before)


def test_two_threads_that_import_leave_the_collector_on() -> None:
    inside, leave = threading.Event(), threading.Event()

    def first() -> None:
        with collection_paused():
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=first)
    thread.start()
    assert inside.wait(10)
    with collection_paused():
        leave.set()
        thread.join(10)
    assert gc.isenabled()


def test_a_search_is_run_only_for_what_is_there_in_several_versions(tmp_path: Path) -> None:
    names = ("libnettle.so.8", "/usr/lib/libnettle.so", "/usr/lib/liboqs.so.5", "libssl.so.3", "libssl.so.1.1")
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(b"glibc-ld.so.cache1.1\0" + b"".join(each.encode() + b"\0" for each in names))
    asked: list[str] = []

    def search(name: str) -> str:
        asked.append(name)
        return f"lib{name}.so.9"

    quick = quick_search(search, cache, {})
    found = {name: quick(name) for name in ("oqs", "liboqs", "nettle", "m", "ssl")}
    assert found == {"oqs": "liboqs.so.5", "liboqs": None, "nettle": "libnettle.so.8", "m": None, "ssl": "libssl.so.9"}
    assert asked == ["ssl"]
    assert quick_search(search, cache, {"LD_LIBRARY_PATH": "/opt/lib"}) is search
    assert quick_search(search, tmp_path / "none", {}) is search


def test_asyncssh_finds_the_libraries_that_are_here_and_loads_no_more_than_ssh_has() -> None:
    code = "import asyncssh\nfrom asyncssh.crypto import pq, umac\nprint(umac._nettle_lib, pq._oqs_lib)"
    plain = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    quick = (
        "import ctypes.util, sys\n"
        "before, started = ctypes.util.find_library, []\n"
        "sys.addaudithook(lambda name, args: name == 'subprocess.Popen' and started.append(str(args[0])))\n"
        "from ccb.tunnel.heavy_imports import load_asyncssh\nload_asyncssh()\n"
        "assert ctypes.util.find_library is before\n"
        "assert not started, started\n"
        "assert not [name for name in sys.modules if 'x509' in name]\n"
        "try:\n"
        "    import asyncssh\n"
        "    asyncssh.import_certificate(b'-----BEGIN CERTIFICATE-----\\nMAA=\\n-----END CERTIFICATE-----\\n')\n"
        "except asyncssh.KeyImportError:\n"
        "    pass\n" + code
    )
    done = subprocess.run([sys.executable, "-c", quick], check=True, capture_output=True, text=True)
    assert done.stdout == plain.stdout
    assert ctypes.util.find_library.__module__ == "ctypes.util"
