"""The directories of a session, path patterns of rules, and which files are protected or usually hold secrets."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.cage_rules import NAMES_IN_REPOSITORY, is_repository, why_protected
from ..search_program.globs import bracket
from ..session_store.session_registry import worker_directories
from ..system.host import is_under

ROOT_MARK = "/./"
"""Stands between a directory and a pattern that starts in it. No link below it leads an allow rule out of it."""

EVERYWHERE = "//**"  # the pattern of a rule without one

_WILD = re.compile(r"[*?\[]")
_IN_NAME, _DIRECTORIES = "[^/]*", "(?:[^/]+/)*"  # what `*` and `**/` match


@dataclass(frozen=True)
class PathScope:
    """The real paths of the working directories of a session: its own first, then added ones."""

    cwd: str
    home: str
    roots: tuple[str, ...]

    @staticmethod
    def of(cwd: str, home: str, add_dirs: Sequence[str] = ()) -> PathScope:
        real = os.path.realpath(cwd)
        added = [real_path(directory, real, home) for directory in add_dirs]
        return PathScope(real, home, (real, *dict.fromkeys(path for path in added if path != real)))

    def real(self, path: str, base: str = "") -> str:
        return real_path(path, base or self.cwd, self.home)

    def holds(self, real: str) -> bool:
        return any(is_under(real, root) for root in self.roots)


def expand(path: str, cwd: str, home: str) -> str:
    """Return an absolute path with `~` expanded, and `.` and `..` removed without looking at links."""
    return os.path.normpath(os.path.join(cwd, _from_home(path, home)))


def real_path(path: str, cwd: str, home: str) -> str:
    """Return the path with links resolved as the kernel does it. The last parts need not exist."""
    return os.path.realpath(os.path.join(cwd, _from_home(path, home)))


def _from_home(path: str, home: str) -> str:
    if "\0" in path:
        raise ValueError("a path contains a NUL")
    return home + path[1:] if path == "~" or path.startswith("~/") else path


@dataclass(frozen=True)
class PathPattern:
    """The content of a path rule. `//x` is absolute, `~/x` in the home directory, others start in the session's
    directory. A pattern without a slash matches at any depth, as in .gitignore."""

    text: str

    def allows(self, real: str, places: PathScope) -> bool:
        """Return whether an allow rule covers the real path. A wildcard at the end does not reach into directories."""
        return any(_matches(base, glob, real, strict=True) for base, glob in self.anchored(places))

    def opens(self, real: str, places: PathScope, is_secret: bool) -> bool:
        """Return whether an allow rule covers the path. One that covers whatever is in the home directory is about none
        of the secrets there, which the person has not seen."""
        if not is_secret or not self.allows(real, places):
            return self.allows(real, places)
        home = os.path.realpath(places.home)
        return not any(self.allows(os.path.join(home, name), places) for name in ("any name", ".any name/any name"))

    def forbids(self, path: str, places: PathScope, base: str = "") -> bool:
        """Return whether a deny rule covers the path. The path as given and the real path count, letter case is
        ignored, and everything below a match is covered too."""
        names = {expand(path, base or places.cwd, places.home), places.real(path, base)}
        anchored = self.anchored(places, wide=True)
        return any(_matches(root, glob, name, strict=False) for root, glob in anchored for name in names)

    def expressions(self, places: PathScope) -> list[str]:
        """Return regular expressions (for fullmatch) of the absolute paths, in lower case, that `forbids` forbids."""
        found: list[str] = []
        for root, glob in self.anchored(places, wide=True):
            base = re.escape(root.casefold().rstrip("/"))
            found.append(f"{base}/(?:{_regex(glob.casefold(), strict=False).pattern})" if glob else f"{base}(?:/.*)?")
        return list(dict.fromkeys(found))

    def anchored(self, places: PathScope, *, wide: bool = False) -> list[tuple[str, str]]:
        """Return the pattern as (real directory, pattern below it, "" for all of it). The literal head is resolved like
        any path, but a link in the project does not extend a relative allow rule to files outside the project. `wide`:
        as rules that deny take it."""
        text, within = self.text, ""  # where a link does not lead out of
        if text.startswith("//"):
            root, has_mark, glob = text[2:].partition(ROOT_MARK)
            within = os.path.realpath("/" + root) if has_mark else ""
            starts = [(within, "/" + glob) if has_mark else ("/", text[2:])]
        elif text == "~" or text.startswith("~/"):
            starts = [(places.home, text[2:] or "**")]
        else:
            within = "" if text.startswith("..") else places.cwd
            starts = [(places.cwd, text[2:] if text.startswith("./") else text)]
            if wide and text.startswith("/"):
                starts.append(("/", text[1:]))
        found: list[tuple[str, str]] = []
        for start, glob in starts:
            head, tail = _split_literal_head(glob)
            real = os.path.realpath(os.path.join(start, head))
            if wide:
                found.append((os.path.normpath(os.path.join(start, head)), tail))
            elif within and not is_under(real, within):
                continue
            found.append((real, tail))
        return found


def _split_literal_head(glob: str) -> tuple[str, str]:
    """Split `src/a/*.py` into `src/a` and `/*.py`. A pattern without a slash matches at any depth: it has no head."""
    rooted = glob.lstrip("/")
    if "/" not in glob.rstrip("/"):
        return "", rooted
    parts = rooted.split("/")
    head: list[str] = []
    while parts and not _WILD.search(parts[0]):
        head.append(parts.pop(0))
    return "/".join(head).rstrip("/"), "/" + "/".join(parts) if parts and parts != [""] else ""


def _matches(base: str, glob: str, path: str, strict: bool) -> bool:
    if not strict:
        base, glob, path = base.casefold(), glob.casefold(), path.casefold()
    if not is_under(path, base):
        return False
    if not glob:
        return True
    below = path[len(base.rstrip("/")) :].lstrip("/")
    return _regex(glob, strict).fullmatch(below) is not None


@lru_cache(maxsize=512)
def _regex(glob: str, strict: bool) -> re.Pattern[str]:
    anchored = glob.startswith("/") or "/" in glob.rstrip("/")
    body = glob.strip("/")
    last = body.rsplit("/", 1)[-1]
    out: list[str] = [] if anchored else ["(?:.*/)?"]
    at = 0
    while at < len(body):
        piece, at = _piece(body, at)
        out.append(piece)
    if body.endswith("/**"):  # a directory's contents, and the directory
        out[-2:] = ["(?:/.*)?"]
    elif not strict or not _WILD.search(last) or glob.endswith("/"):
        out.append("(?:/.*)?")
    return re.compile("".join(_decided(out)), re.DOTALL)


def _decided(pieces: list[str]) -> list[str]:
    """Return pieces that match the same in linear time: a wildcard ends where what follows first fits."""
    found = list(pieces)
    for wild, part, ends in ((_IN_NAME, "[^/]", ("/", _DIRECTORIES)), (_DIRECTORIES, "[^/]+/", ())):
        other = 0
        for at in reversed(range(len(found))):
            if found[at] == wild:
                if other:
                    found[at] = f"(?:(?!{''.join(found[at + 1 : other])}){part})*"
                other = at
            elif found[at] in ends:
                other = 0
    return found


def _piece(body: str, at: int) -> tuple[str, int]:
    """Return the regular expression for the pattern's element at an index, and the index behind it."""
    if body.startswith("**/", at) and (at == 0 or body[at - 1] == "/"):
        return _DIRECTORIES, at + 3
    if body[at:] == "**":
        return ".*", at + 2
    if body[at] == "*":
        return _IN_NAME, at + (2 if body.startswith("**", at) else 1)
    if body[at] == "?":
        return "[^/]", at + 1
    return bracket(body, at) if body[at] == "[" else (re.escape(body[at]), at + 1)


_HOME_PLACES = (
    *(".config/fish", ".config/git", ".config/systemd", ".config/autostart", ".config/ccb"),
    *(".local/bin", "bin", ".aws", ".kube", ".docker"),
)


def protection(real: str, home: str) -> str | None:
    """Return why writing the path always needs a person's approval, or None: it starts programs, holds keys or
    instructs agents, and so acts later, outside of any cage."""
    places = [
        *((_place(home, place), f"~/{place} starts programs") for place in _HOME_PLACES),
        *((os.path.realpath(place), f"ccb's worker starts from {place}") for place in worker_directories()),
        *((place, f"{place} is not made of files") for place in ("/dev", "/proc", "/sys")),
    ]
    found = (why for place, why in places if is_under(real.casefold(), place.casefold()))
    why = why_protected(real) or next(found, None)
    if why:
        return why
    above, name = os.path.split(real)
    while name and not os.path.lexists(os.path.join(above, ".git")):  # a repository may hold its work trees
        there = [each for each in NAMES_IN_REPOSITORY if each == name or os.path.lexists(os.path.join(above, each))]
        if is_repository(there):  # one without a `.git`, also if the path makes it one
            return f"{above} is a repository of git"
        above, name = os.path.split(above)
    return None


NAMES = (
    *(".env", ".env.local", ".env.*.local", ".env.dev*", ".env.prod*", ".env.stag*", "*.env"),
    *("*.pem", "*.key", "*.p12", "*.pfx", "*.jks", "*.keystore", "*.kdbx"),
    *("id_rsa", "id_dsa", "id_ecdsa", "id_ed25519", "*_rsa", "*_ed25519"),
    *(".netrc", ".pgpass", ".my.cnf", ".git-credentials", ".pypirc", ".htpasswd", ".vault-token"),
    *("credentials", "credentials.json", "client_secret*.json", "service-account*.json", "service_account*.json"),
    *("secrets.json", "secrets.toml", "secrets.yml", "secrets.yaml"),
)
_SENSITIVE_HOME_PLACES = (
    *(".ssh", ".aws", ".gnupg", ".kube", ".docker/config.json", ".config/gcloud", ".azure", ".config/gh"),
    *(".config/hub", ".config/op", ".config/rclone", ".password-store", ".local/share/keyrings", ".terraform.d"),
    *(".npmrc", ".cargo/credentials.toml", ".claude/.credentials.json", ".mozilla", ".config/google-chrome"),
    ".config/chromium",
)
_SYSTEM_PLACES = ("/etc/ssh", "/etc/ssl/private", "/run/secrets", "/var/run/secrets", "/proc", "/root")
_HOMES = ("/home", "/Users", "/var/home")
_MAX_ENTRIES = 1000
_MAY_NAME_ONE = re.compile(
    r"env|pem|key|p12|pfx|jks|kdbx|rsa|dsa|ed25519|netrc|pgpass|my\.cnf|cred|pypirc|htpasswd|token|secret"
    r"|account|\.ssh|\.aws|gnupg|kube|docker|gcloud|azure|config/(?:gh|hub|op|rclone|chromium)|password-store|npmrc|terraform|mozilla|chrome|[*?\[$`]",
    re.IGNORECASE,
)


def is_sensitive(real: str, home: str) -> bool:
    if _is_named_so(os.path.basename(real)):
        return True
    return any(is_under(real, _place(home, place)) for place in _SENSITIVE_HOME_PLACES)


def _place(home: str, place: str) -> str:
    return os.path.realpath(os.path.join(home, place))


def is_too_wide(directory: str, home: str) -> bool:
    """Return whether a rule for a directory would be about a home or above, or a place or directory with secrets."""
    if is_under(os.path.realpath(home), directory) or os.path.dirname(directory) in _HOMES or directory in _HOMES:
        return True
    if any(f"/{place}/" in f"{directory}/" for place in _SENSITIVE_HOME_PLACES):
        return True
    if any(is_under(_place(home, place), directory) for place in _SENSITIVE_HOME_PLACES):
        return True
    if any(is_under(directory, place) or is_under(place, directory) for place in _SYSTEM_PLACES):
        return True
    try:
        with os.scandir(directory) as found:
            return any(_is_named_so(each.name) for each in itertools.islice(found, _MAX_ENTRIES))
    except OSError:
        return False


def _is_named_so(name: str) -> bool:
    return any(fnmatchcase(name.casefold(), pattern) for pattern in NAMES)


def may_name_one(command: str) -> bool:
    """Return False only for a command line that names no sensitive file. It is quick."""
    return _MAY_NAME_ONE.search(command) is not None


def sensitive_patterns() -> list[str]:
    return [*NAMES, *(f"~/{place}/**" for place in _SENSITIVE_HOME_PLACES)]
