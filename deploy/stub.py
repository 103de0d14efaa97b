# The first program of ccb that runs on a host: Python 3.9, standard library only. It is sent compressed inside the
# command line, so it must stay short; comments and blank lines are left out.
# argv: marker, SHA-256 of the bundle, size of the bundle in bytes, parameters (JSON in base64).
# It sends a message behind the marker, reads the packed bundle from stdin unless a cached copy has the right SHA-256,
# and becomes the bridge in the same process.
from __future__ import annotations

import base64
import hashlib
import json
import marshal
import os
import select
import stat
import sys
import zlib
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.abc import Loader
else:
    Loader = object  # importing importlib.abc would take a third of the time to hello

marker, digest, size, params = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
KEEP = 4  # bundles: the last two versions, each with its host commands
notes: list[str] = []  # why a place cannot be used


def say(**facts: object) -> None:
    os.write(1, ("\n" + marker + " " + json.dumps(facts) + "\n").encode())


def places() -> Iterator[str]:
    # Directories for the cached bundle, the best first.
    home = os.environ.get("HOME") or os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME") or ""
    runtime = os.environ.get("XDG_RUNTIME_DIR") or ""
    if not cache.startswith("/") and home.startswith("/"):
        cache = os.path.join(home, ".cache")
    for top in (cache, runtime):
        if top.startswith("/"):
            yield os.path.join(top, "ccb", "worker")
    yield os.path.join("/tmp", "ccb-%d" % os.getuid(), "worker")


made: list[str] = []  # the directories that this run has made, outer ones first


def ours(path: str, make: bool) -> bool:
    # Return whether `path` exists. Raise OSError unless it is a directory, no link, and belongs to this user; close it
    # to others. With `make`, make it first.
    parent = os.path.dirname(path)
    top = os.path.dirname(parent)
    missing = []
    while make and not os.path.isdir(top):
        missing.append(top)
        top = os.path.dirname(top)
    for step in missing[::-1]:
        mkdir(step)
    for step in (parent, path):
        if make:
            mkdir(step)
        elif not os.path.lexists(step):
            return False
        if missing:  # `ccb clean` removes the directories listed here, see ccb.remote.session_store.session_paths
            fd = os.open(os.path.join(step, ".made"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(fd, "w") as file:
                file.write("\n".join(missing))
            missing = []
        info = os.lstat(step)
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
            raise OSError(17, "is not a directory of ours", step)
        if stat.S_IMODE(info.st_mode) & 0o077:
            os.chmod(step, 0o700)
    return True


def mkdir(path: str) -> None:
    try:
        os.mkdir(path, 0o700)
        made.append(path)
    except FileExistsError:
        pass


def undo() -> None:
    # Remove the directories of a place that could not hold the bundle.
    while made:
        path = made.pop()
        for remove, each in ((os.unlink, os.path.join(path, ".made")), (os.rmdir, path)):
            try:
                remove(each)
            except OSError:
                pass


def prune(directory: str, keep: str) -> None:
    # Keep the newest bundles. Remove temporary files of uploads that broke off more than a day ago.
    found = []
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        try:
            when = os.lstat(path).st_mtime
            if name.endswith((".bundle", ".zip")):  # older versions of ccb kept zips
                found.append((path == keep, when, path))
            elif name.startswith(".") and when < os.lstat(directory).st_mtime - 86400:
                os.unlink(path)
        except OSError:
            pass
    for _, _, path in sorted(found, reverse=True)[KEEP:]:
        try:
            os.unlink(path)
        except OSError:
            pass


said: list[bytes] = []  # the laptop's word to go on, if it was read already


def no_input() -> bool:
    # Return whether stdin is closed. The laptop sends nothing before it is asked but its word to go on, so what else
    # can be read now is the end of stdin, or a file that a start-up file has put in its place.
    try:
        if stat.S_ISREG(os.fstat(0).st_mode):
            return True
        if os.isatty(0) or not select.select([0], [], [], 0)[0]:
            return False
        said.append(os.read(0, 1))
        return not said[0]
    except OSError:
        return True


def go_on() -> None:
    # Wait for the word of the laptop. Exit if it has given this connection up.
    if not said:
        said.append(os.read(0, 1))
    if not said[0]:
        sys.exit(96)


def some(most: int) -> bytes:
    chunk = os.read(0, min(most, 262144))
    if not chunk:
        sys.exit(96)
    return chunk


def receive(left: int) -> bytes:
    chunks = []
    while left:
        chunks.append(some(left))
        left -= len(chunks[-1])
    return b"".join(chunks)


def packing() -> str:
    # Return the smallest form of a packed bundle that this Python can unpack. Not every one is built with lzma.
    try:
        import lzma
    except ImportError:
        return "zlib"
    return "xz" if lzma else ""


def upload(size: int) -> tuple[bytes, dict[str, CodeType]]:
    # Read the form of the bundle (x: xz, z: zlib, r: raw), its length in nine digits, and the bytes. What would become
    # larger than the bundle is cut, and so has another SHA-256. Also return the code of modules: while the network is
    # slower than this machine, those that have come are compiled. None is run before the SHA-256 is known.
    form, length = receive(1), int(receive(9))
    left = min(length, size + 999)
    data, at = bytearray(), 0
    codes: dict[str, CodeType] = {}
    unpack, errors = unpacker(form)
    while left:
        chunk = some(left)
        left -= len(chunk)
        try:
            data += unpack(chunk, size + 1 - len(data)) if len(data) <= size else b""
        except errors:
            data += bytes(size + 1)
        while left and not select.select([0], [], [], 0)[0]:
            before, at = at, compile_next(data, at, codes)
            if at == before:
                break
    return bytes(data), codes


def unpacker(form: bytes) -> tuple[Callable[[bytes, int], bytes], tuple[type[Exception], ...]]:
    # Return a function that unpacks the next bytes, to as many as may come, and the errors it raises.
    if form == b"x":
        import lzma

        return lzma.LZMADecompressor(memlimit=1 << 26).decompress, (lzma.LZMAError, EOFError)
    if form == b"z":
        return zlib.decompressobj().decompress, (zlib.error,)
    return lambda chunk, most: chunk, ()


def compile_next(data: bytearray, at: int, codes: dict[str, CodeType]) -> int:
    # Compile the module that begins at `at`, if all of it has come. Return where the next one begins.
    name = data.find(0, at)
    end = data.find(0, name + 1)
    if min(name, end) < 0:
        return at
    try:
        file = data[at:name].decode()
        codes[file] = compiled(bytes(data[name + 1 : end]), file)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return at  # the module is compiled again when it is imported, and the error is shown then
    return end + 1


def compiled(source: bytes, file: str) -> CodeType:
    code: CodeType = compile(source, "<ccb>/" + file, "exec", dont_inherit=True)
    return code


class HostBundle:
    # A bundle that this run needs. Without `data` it has to be sent.
    def __init__(self, digest: str, size: int) -> None:
        self.digest = digest
        self.size = size
        self.path = ""  # where it is kept
        self.codes: dict[str, CodeType] = {}
        self.where: list[tuple[str, str]] = []  # the places that may keep it, and its path there
        self.data = self.find()

    def find(self) -> bytes:
        for directory in places():
            path = os.path.join(directory, self.digest + ".bundle")
            try:
                data = self.good(path) if ours(directory, False) else b""
            except OSError as error:
                note(error, directory)
                continue
            self.where.append((directory, path))
            if data:
                self.path = path
                return data
        return b""

    def good(self, path: str) -> bytes:
        # Return the bytes of a cached bundle, none if it is missing or its SHA-256 is wrong.
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return b""
        with os.fdopen(fd, "rb") as file:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return b""
            try:
                data = file.read(self.size + 1)
            except OSError:
                return b""
        return data if hashlib.sha256(data).hexdigest() == self.digest else b""

    def receive(self, version: str, keep: bool) -> None:
        self.data, self.codes = upload(self.size)
        if hashlib.sha256(self.data).hexdigest() != self.digest:
            say(error="the bundle arrived damaged", py=version)
            sys.exit(95)
        for directory, path in self.where if keep else ():
            try:
                made.clear()
                ours(directory, True)
                self.put(directory, path, self.data)
                self.path = path
                prune(directory, path)
                break
            except OSError as error:
                undo()
                note(error, directory)

    def put(self, directory: str, path: str, data: bytes) -> None:
        # Write the bundle atomically. `ccb gc` reads the pid; random bytes follow it, because hosts may share a home.
        temp = os.path.join(directory, ".%s.%d-%s" % (self.digest[:16], os.getpid(), os.urandom(8).hex()))
        fd = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.rename(temp, path)
        finally:
            try:
                os.unlink(temp)
            except OSError:
                pass  # it has its name


def note(error: OSError, directory: str) -> None:
    text = "%s: %s" % (error.filename or directory, error.strerror or error)
    if text not in notes:
        notes.append(text)


class BundleImporter(Loader):
    # Imports modules from bundles: each file as its name and its source, with a zero byte behind.
    def __init__(self, data: bytes, early: dict[str, CodeType]) -> None:
        parts = data.split(b"\0")
        self.entries = {name.decode(): source for name, source in zip(parts[::2], parts[1::2])}
        self.early = early
        self.compiled: dict[str, bytes] = {}  # what the compiled copy has of the modules, see daemon.compiled_copy

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        base = name.replace(".", "/")
        for file, package in ((base + "/__init__.py", True), (base + ".py", False)):
            if file in self.entries:
                return ModuleSpec(name, self, origin="<ccb>/" + file, is_package=package)
        return None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        exec(self.get_code(module.__name__), module.__dict__)

    def compile(self, file: str) -> CodeType:
        if file not in self.early:
            self.early[file] = compiled(self.entries[file], file)
        return self.early[file]

    def file(self, name: str) -> str:
        spec = self.find_spec(name)
        return str(spec and spec.origin)[6:]

    def get_code(self, name: str) -> CodeType:
        file = self.file(name)
        stored = self.compiled.get(file)
        return marshal.loads(stored) if stored else self.compile(file)

    def get_source(self, name: str) -> str:  # for tracebacks
        return self.entries[self.file(name)].decode()


def bundles_here(more: tuple[str, int] | None, keep: bool, version: str, waits: bool) -> list[HostBundle]:
    bundles = [HostBundle(digest, size)]
    if more:
        bundles.append(HostBundle(*more))
    missing = [bundle for bundle in bundles if not bundle.data]
    facts = {"need": [bundle.digest for bundle in missing], "packed": packing()} if missing else {"have": True}
    say(**facts, py=version, exe=sys.executable, notes=notes)
    if waits and missing:
        go_on()
    for bundle in bundles:
        if bundle in missing:
            bundle.receive(version, keep)
        else:
            try:
                os.utime(bundle.path)
            except OSError:
                pass
    return bundles


def main() -> None:
    version = "%d.%d.%d" % sys.version_info[:3]
    for fd in (0, 1):
        try:
            os.set_blocking(fd, True)  # a start-up file, or what started the shell, may have changed it
        except OSError:
            pass  # it is closed
    if no_input():
        say(input=False, py=version)
        sys.exit(96)
    start_params = json.loads(base64.b64decode(params))
    waits = start_params.pop("wait", False)
    bundles = bundles_here(start_params.get("more"), start_params.get("keep", True), version, waits)
    chosen = bundles[0].path
    start_params.update(notes=notes, bundle_path=chosen)
    early = {file: code for bundle in bundles for file, code in bundle.codes.items()}
    importer = BundleImporter(b"".join(bundle.data for bundle in bundles), early)
    del bundles, early
    sys.meta_path.insert(0, importer)
    sys.argv[1:] = []
    if chosen and "ccb/remote/daemon/compiled_copy.py" in importer.entries:
        from ccb.remote.daemon.compiled_copy import load

        importer.compiled, start_params["no_copy"] = load(chosen, digest)
    from ccb.remote.main import start

    if waits and start_params.get("create"):
        from ccb.remote.daemon.daemon_start import import_ahead

        import_ahead(lambda: said or select.select([0], [], [], 0)[0])
    if waits:
        go_on()
    sys.exit(start(start_params, digest, "disk" if chosen else "memory"))


main()
