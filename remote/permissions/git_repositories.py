"""Where a reading git command is safe to run: what the files of a repository may make git do."""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator, Sequence

from ccb.tunnel.wire.dataclass import dataclass

from ..sandbox.outliving import read_regular
from ..system.host import is_under
from ..system.owners import is_ours
from .shell.read_only import GIT_READERS
from .shell.shell_words import names


@dataclass(frozen=True)
class Setting:
    """One setting. `name` is its section and key in lower case; `value` is as written, None for a key alone."""

    name: str
    subsection: str
    value: str | None


class UnsafeRepository(Exception):
    """Git is not safe to run in a directory; the text says why."""


_BLANK = re.compile(r"[ \t]*(?:[#;].*)?")
_SECTION = re.compile(r"[ \t]*\[([A-Za-z0-9-]+)(?:[ \t]+\"([^\"\\]*)\")?\][ \t]*(?:[#;].*)?")
_KEY = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(.*))?")


def _settings(path: str, text: str) -> Iterator[Setting]:
    """Yield the settings of a configuration file. Raise UnsafeRepository for what git may read in another way."""
    section = subsection = ""
    for line in text.split("\n"):
        line = line.rstrip("\r")
        if line.endswith("\\"):
            raise UnsafeRepository(f"{path} is unusual: a line is continued")
        if _BLANK.fullmatch(line):
            continue
        header, key = _SECTION.fullmatch(line), _KEY.fullmatch(line)
        if header:
            section, subsection = header[1].lower(), header[2] or ""
        elif key and section:
            yield Setting(f"{section}.{key[1].lower()}", subsection, None if key[2] is None else key[2].strip())
        else:
            raise UnsafeRepository(f"{path} is unusual: a line is unusual")


_ALL_KEYS = names("""advice author branch checkout clone color column commit committer credential feature fetch gc
    gitflow grep gui http i18n index init maintenance pack protocol pull push rebase rerere sparse ssh stash submodule
    tag transfer url user versionsort worktree""")
"""Sections of which no key makes a reading command run a program. Those about the network are among them: a reading
command asks no remote, unless it is a promisor."""

_KEYS = {
    "core": names("""abbrev askpass autocrlf bare bigfilethreshold checkroundtripencoding checkstat commentchar
        commitgraph compression createobject deltabasecachelimit disambiguate editor eol filemode filesreflocktimeout
        fscache fsync fsyncmethod fsyncobjectfiles hidedotfiles ignorecase ignorestat logallrefupdates longpaths
        loosecompression maxtreedepth multipackindex notesref packedgitlimit packedgitwindowsize packedrefstimeout
        precomposeunicode preloadindex protecthfs protectntfs quotepath repositoryformatversion restrictinheritedhandles
        safecrlf sharedrepository sparsecheckout sparsecheckoutcone splitindex sshcommand symlinks trustctime
        unsetenvvars untrackedcache usereplacerefs warnambiguousrefs whitespace"""),
    "diff": names("""algorithm autorefreshindex binary colormoved colormovedws context dirstat funcname guitool
        ignoresubmodules indentheuristic interhunkcontext mnemonicprefix noprefix relative renamelimit renames
        statgraphwidth statnamewidth suppressblankempty tool wordregex wserrorhighlight xfuncname"""),
    "merge": names("""autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff guitool log name
        recursive renamelimit renames stat suppressdest tool verbosity"""),
    "log": names("abbrevcommit date decorate diffmerges excludedecoration follow graphcolors mailmap showroot"),
    "status": names(
        "aheadbehind branch displaycommentprefix relativepaths renamelimit renames short showstash showuntrackedfiles"
    ),
    "remote": names("""fetch followremotehead gh-resolved mirror prune prunetags push pushdefault pushurl
        skipdefaultupdate skipfetchall tagopt url"""),
    "blame": names("blankboundary coloring date markignoredlines markunblamablelines showemail showroot"),
    "extensions": names("compatobjectformat noop objectformat refstorage relativeworktrees worktreeconfig"),
    "lfs": names("access locksverify repositoryformatversion"),
    "gpg": names("format"),
    "interactive": names("singlekey"),
}

FILES = names("core.attributesfile core.excludesfile blame.ignorerevsfile commit.template diff.orderfile mailmap.file")
"""Settings whose value is the path of a file that git reads."""

_OFF = ("false", "no", "off", "0")


def _names_program(setting: Setting) -> bool:
    """Return whether a setting may make a reading sub-command run a program. Paths are for the caller to judge."""
    section, _, key = setting.name.partition(".")
    if section == "alias":
        return key in GIT_READERS or setting.subsection in GIT_READERS
    if setting.name == "core.fsmonitor":
        return (setting.value or "").lower() not in _OFF
    if setting.name in ("core.worktree", "core.hookspath") or setting.name in FILES:
        return False
    return section not in _ALL_KEYS and key not in _KEYS.get(section, ())


_GITLINK = 0o160000
_MODE = struct.Struct(">I")


def _submodules(data: bytes, hash_bytes: int) -> list[bytes]:
    """Return the paths of the submodules in an index. Raise ValueError, IndexError or struct.error for other data."""
    if _MODE.pack(_GITLINK) not in data:
        return []
    magic, version, count = struct.unpack_from(">4sII", data)
    if magic != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    found: list[bytes] = []
    at, path = 12, b""
    for _ in range(count):
        mode = _MODE.unpack_from(data, at + 24)[0]
        flags = struct.unpack_from(">H", data, at + 40 + hash_bytes)[0]
        start = at + 42 + hash_bytes + (2 if version > 2 and flags & 0x4000 else 0)
        kept = b""
        if version == 4:  # the path begins like the one before, but for so many bytes, in git's encoding of offsets
            dropped = data[start] & 0x7F
            while data[start] & 0x80:
                start += 1
                dropped = ((dropped + 1) << 7) | (data[start] & 0x7F)
            kept = path[: len(path) - dropped]
            start += 1
        end = data.index(b"\0", start)
        path = kept + data[start:end]
        at = end + 1 if version == 4 else at + (end - at + 8) // 8 * 8
        if mode == _GITLINK:
            found.append(path)
    return found


_MAX_CONFIG = 256 << 10
_MAX_INDEX = 64 << 20
_MAX_SUBMODULES = 100
_MAX_DEPTH = 4
_HOOK = "post-index-change"  # the only hook that reading commands run: `git status` refreshes the index


def why_unsafe(directory: str, roots: Sequence[str], home: str, strict: bool = False) -> str:
    """Return why a reading git command in `directory` (a real path) may run a program or read a directory outside
    `roots` (real paths); "" if it does not. `strict`: the person's own configuration may name no program either."""
    try:
        if strict:
            for path in _own_files(home):
                _check_settings(path, directory, (), is_own=True)
        _check(directory, roots, home, 0)
    except UnsafeRepository as reason:
        return str(reason)
    except (OSError, ValueError) as error:  # such as a NUL in a path
        return f"its files are unusual ({error})"
    return ""


def _check(directory: str, roots: Sequence[str], home: str, depth: int) -> None:
    """Search as git does, from the directory up. `.git` in a directory comes before the directory itself."""
    top = directory
    while True:
        inner = os.path.join(top, ".git")
        if os.path.lexists(inner):
            if top != directory and not is_ours(inner):
                raise UnsafeRepository(f"{inner} is another user's, or others may write to {top}")
            _Repository(inner, top, (*roots, top)).check(home, depth)
            if os.path.isfile(inner) or _is_surely_repository(inner):
                return
        if os.path.lexists(os.path.join(top, "HEAD")):
            raise UnsafeRepository(f"{top} looks like a repository itself, whose configuration can start programs")
        if top == os.path.dirname(top):
            return
        top = os.path.dirname(top)


def _is_surely_repository(directory: str) -> bool:
    head = _text(os.path.join(directory, "HEAD")) or ""
    return re.match(r"ref: refs/|[0-9a-f]{40}", head) is not None and all(
        os.path.isdir(os.path.join(directory, name)) and os.access(os.path.join(directory, name), os.X_OK)
        for name in ("objects", "refs")
    )


class _Repository:
    """What `.git` (`entry`) in a work tree stands for: its own directory, and the one that it shares."""

    def __init__(self, entry: str, top: str, roots: Sequence[str]) -> None:
        self._top = top
        self._roots = roots
        is_file, own = os.path.isfile(entry), entry
        if is_file:
            mark, _, path = (_text(entry) or "").rstrip("\r\n").partition("gitdir: ")
            if mark or not path:
                raise UnsafeRepository(f"{entry} is unusual")
            own = os.path.join(top, path)
        self._own = self._common = own = os.path.realpath(own)
        is_linked = is_file and _points_back(own, entry)
        if not is_linked:
            _check_place(own, roots, f"{entry} leads to {own}")
        shared = os.path.join(own, "commondir")
        if os.path.lexists(shared):
            self._common = os.path.realpath(os.path.join(own, (_text(shared) or "").strip("\r\n")))
            if not (is_linked and os.path.dirname(os.path.dirname(own)) == self._common):
                _check_place(self._common, roots, f"{shared} leads to {self._common}")

    def check(self, home: str, depth: int) -> None:
        directories = list(dict.fromkeys((self._common, self._own)))
        for directory in directories:
            _check_links(directory)
        hooks = [os.path.join(directory, "hooks") for directory in directories]
        hooks += [os.path.join(self._top, hook) for hook in _own_hooks(home)]
        hash_bytes = self._check_configuration(directories, home, hooks)
        for directory in hooks:
            if os.path.lexists(os.path.join(directory, _HOOK)):
                raise UnsafeRepository(f"{os.path.join(directory, _HOOK)} is a program that git starts")
        self._check_alternates()
        for path in self._submodules(hash_bytes):
            if os.path.lexists(os.path.join(path, ".git")):
                if depth >= _MAX_DEPTH:
                    raise UnsafeRepository("its submodules are nested too deeply")
                _check(path, self._roots, home, depth + 1)

    def _check_configuration(self, directories: Sequence[str], home: str, hooks: list[str]) -> int:
        """Add the directories of hooks that are set. Return the bytes of a hash."""
        hash_bytes = 20
        files = [os.path.join(each, name) for each in directories for name in ("config", "config.worktree")]
        for path in filter(os.path.lexists, files):
            for setting in _check_settings(path, self._top, self._roots):
                if setting.name == "core.worktree":
                    tree = os.path.realpath(os.path.join(self._own, _value(setting)))
                    _check_place(tree, self._roots, f"{path} sets core.worktree to {tree}")
                elif setting.name == "core.hookspath":
                    hooks.append(os.path.join(self._top, _expanded(_value(setting), home)))
                elif setting.name == "extensions.objectformat" and setting.value == "sha256":
                    hash_bytes = 32
        return hash_bytes

    def _check_alternates(self) -> None:
        objects = os.path.join(self._common, "objects")
        path = os.path.join(objects, "info", "alternates")
        if not os.path.lexists(path):
            return
        for line in (_text(path) or '"').split("\n"):
            if line.startswith('"'):
                raise UnsafeRepository(f"{path} is unusual")
            if line and not line.startswith("#"):
                target = os.path.realpath(os.path.join(objects, line))
                _check_place(target, self._roots, f"{path} leads to {target}")

    def _submodules(self, hash_bytes: int) -> list[str]:
        if not os.path.isdir(self._own):
            return []
        try:
            files = [name for name in os.listdir(self._own) if name == "index" or name.startswith("sharedindex.")]
            contents = [read_regular(os.path.join(self._own, name), _MAX_INDEX + 1) for name in files]
            if any(len(data) > _MAX_INDEX for data in contents):
                raise ValueError
            paths = [path for data in contents for path in _submodules(data, hash_bytes)]
        except (OSError, ValueError, IndexError, struct.error):
            raise UnsafeRepository(f"the index in {self._own} is unusual") from None
        if len(paths) > _MAX_SUBMODULES:
            raise UnsafeRepository("it has too many submodules")
        return [os.path.realpath(os.path.join(self._top, os.fsdecode(path))) for path in paths]


def _points_back(own: str, entry: str) -> bool:
    """Return whether a linked work tree names the `.git` that leads to it, as only this user or root arranged."""
    back = _text(os.path.join(own, "gitdir")) or ""
    return (
        is_ours(own)
        and is_ours(os.path.dirname(os.path.dirname(own)))
        and bool(back)
        and os.path.realpath(os.path.join(own, back.strip("\r\n"))) == os.path.realpath(entry)
    )


def _check_place(path: str, roots: Sequence[str], what: str) -> None:
    if not any(is_under(path, root) for root in roots):
        raise UnsafeRepository(f"{what}, outside the working directories")


def _check_links(directory: str) -> None:
    for path in (directory, *(os.path.join(directory, name) for name in ("info", "objects/info"))):
        try:
            with os.scandir(path) as entries:
                link = next((entry.path for entry in entries if entry.is_symlink()), "")
        except OSError:
            continue
        if link:
            raise UnsafeRepository(f"{link} is a link")
    for name in ("objects", "objects/pack", "refs", "refs/heads"):
        if os.path.islink(os.path.join(directory, name)):
            raise UnsafeRepository(f"{os.path.join(directory, name)} is a link")


def _check_settings(path: str, top: str, roots: Sequence[str], is_own: bool = False) -> list[Setting]:
    text = _text(path)
    if text is None:
        raise UnsafeRepository(f"{path} cannot be read")
    if "\0" in text:  # git ends the value there
        raise UnsafeRepository(f"{path} contains a NUL character")
    held = list(_settings(path, text))
    for setting in held:
        if _names_program(setting):
            raise UnsafeRepository(f"{path} sets {setting.name}, which can start a program")
        if setting.name in FILES and not is_own:
            target = os.path.realpath(os.path.join(top, _value(setting)))
            _check_place(target, roots, f"{path} sets {setting.name} to {target}")
    return held


def _value(setting: Setting) -> str:
    value = setting.value or ""
    if re.search(r"[\"\\#;~%]", value):
        raise UnsafeRepository(f"the value of {setting.name} is unusual")
    return value


def _expanded(path: str, home: str) -> str:
    return os.path.join(home, path[2:]) if path.startswith("~/") else path


def _own_files(home: str) -> Iterator[str]:
    settings_home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    for path in (os.path.join(home, ".gitconfig"), os.path.join(settings_home, "git/config"), "/etc/gitconfig"):
        if os.path.lexists(path):
            yield path


def _own_hooks(home: str) -> list[str]:
    """Return the directories of hooks that the person names relative to a work tree."""
    found: list[str] = []
    for path in _own_files(home):
        lines = re.findall(r"^[ \t]*hookspath[ \t]*=[ \t]*(.*)$", _text(path) or "", re.IGNORECASE | re.MULTILINE)
        found += [_expanded(line.strip().strip('"'), home) for line in lines]
    return [path for path in found if not os.path.isabs(path)]


def _text(path: str) -> str | None:
    try:
        data = read_regular(path, _MAX_CONFIG + 1)
    except OSError:
        return None
    return os.fsdecode(data) if len(data) <= _MAX_CONFIG else None
