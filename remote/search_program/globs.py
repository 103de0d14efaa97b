"""Glob patterns, .gitignore, file types."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Sequence
from functools import cached_property, lru_cache

from ..system.owners import only_we_write

_OF_THEIR_NAME = "cs csv dart elm fish go gradle jsonl less log lua nix rst svelte swift tsx txt vue zig"
_EXTENSIONS = {
    **{name: name for name in _OF_THEIR_NAME.split()},
    "asm": "asm s S", "bazel": "bazel bzl", "c": "c h H", "clojure": "clj cljc cljs cljx", "cmake": "cmake",
    "config": "cfg conf config ini", "cpp": "cpp hpp cc hh cxx hxx C H h inl", "css": "css scss",
    "elixir": "ex eex exs heex leex", "erlang": "erl hrl", "graphql": "graphql graphqls", "haskell": "hs lhs",
    "html": "htm html ejs", "java": "java jsp jspx properties", "js": "js jsx vue cjs mjs", "json": "json",
    "jupyter": "ipynb jpynb", "kotlin": "kt kts", "make": "mk mak", "markdown": "markdown md mdown mkdn mdx",
    "objc": "h m", "ocaml": "ml mli mll mly", "perl": "perl pl PL plh plx pm t", "php": "php php3 php4 php5 phtml",
    "protobuf": "proto", "ps": "cdxml ps1 ps1xml psd1 psm1", "python": "py pyi", "r": "R r Rmd Rnw",
    "ruby": "gemspec rb rbw", "rust": "rs", "sass": "sass scss", "scala": "scala sbt",
    "sh": "bash csh env ksh sh tcsh zsh", "sql": "sql psql", "tf": "tf tf.json tfvars tfvars.json", "toml": "toml",
    "typescript": "ts tsx cts mts", "vim": "vim", "xml": "xml xml.dist dtd xsl xslt xsd xjb rng sch xhtml",
    "yaml": "yaml yml", "zsh": "zsh",
}  # fmt: skip
_NAMES = {
    "bazel": "BUILD WORKSPACE", "cmake": "CMakeLists.txt", "docker": "*Dockerfile* *Containerfile*",
    "json": "composer.lock", "make": "[Gg][Nn][Uu]makefile [Mm]akefile", "ruby": "Gemfile Rakefile .irbrc config.ru",
    "sh": ".bashrc .profile .zshrc", "toml": "Cargo.lock", "vim": ".vimrc vimrc",
    "zsh": ".zshenv .zlogin .zlogout .zprofile .zshrc",
}  # fmt: skip
TYPES = {
    name: (*(f"*.{each}" for each in _EXTENSIONS.get(name, "").split()), *_NAMES.get(name, "").split())
    for name in {**_EXTENSIONS, **_NAMES}
}
for _short, _long in {"md": "markdown", "proto": "protobuf", "py": "python", "ts": "typescript"}.items():
    TYPES[_short] = TYPES[_long]

MAX_ALTERNATIVES = 256
_MAX_BRACES = 16
_BRACES = re.compile(r"(?<!\\)\{([^{}]*)\}")


class BadRequest(Exception):
    """The request cannot be answered, as of a pattern that is invalid or too complex; the text says why."""


def expand_braces(pattern: str) -> list[str]:
    """Expand `*.{a,b}` to `*.a` and `*.b`, nested braces too. An unclosed brace and one without a comma are literal.
    Raise BadRequest for too many patterns or braces."""
    if pattern.count("{") > _MAX_BRACES:
        raise BadRequest(f"the glob {pattern[:100]!r} has more than {_MAX_BRACES} opening braces")
    done: dict[str, None] = {}
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        inner = next((found for found in _BRACES.finditer(text) if "," in found[1]), None)
        if inner is None:
            done[text] = None
        else:
            waiting += [text[: inner.start()] + part + text[inner.end() :] for part in inner[1].split(",")]
        if len(done) + len(waiting) > MAX_ALTERNATIVES:
            raise BadRequest(f"the glob {pattern!r} stands for more than {MAX_ALTERNATIVES} patterns")
    return list(done)


@lru_cache(maxsize=1024)
def translate(glob: str) -> str:
    """Return the regular expression (for fullmatch) of a glob without braces. `*` and `?` stay inside a name; `**` as a
    whole component matches any number of directories."""
    out: list[str] = []
    at = 0
    while at < len(glob):
        char = glob[at]
        if char == "*":
            piece, at = _stars(glob, at)
        elif char == "?":
            piece, at = "[^/]", at + 1
        elif char == "[":
            piece, at = bracket(glob, at)
        elif char == "\\" and at + 1 < len(glob):
            piece, at = re.escape(glob[at + 1]), at + 2
        else:
            piece, at = re.escape(char), at + 1
        out.append(piece)
    return "".join(out)


def _stars(glob: str, start: int) -> tuple[str, int]:
    """Return the expression for a run of stars, and the index after it."""
    end = start
    while end < len(glob) and glob[end] == "*":
        end += 1
    if end - start >= 2 and (start == 0 or glob[start - 1] == "/"):
        if glob[end : end + 1] == "/":
            return "(?:[^/]+/)*", end + 1
        if end == len(glob):
            return ".+", end
    return "[^/]*", end


def bracket(glob: str, start: int) -> tuple[str, int]:
    """Return the expression for a set of characters, and the index after it."""
    at = start + 1
    negated = glob[at : at + 1] in ("!", "^")
    at += negated
    end = glob.find("]", at + 1)
    if end < 0:
        return re.escape("["), start + 1
    inner = re.sub(r"([\\\[\]^&~|])", r"\\\1", glob[at:end])
    piece = f"(?!/)[{'^' if negated else ''}{inner}]"
    try:
        re.compile(piece)
    except re.error:
        return re.escape(glob[start : end + 1]), end + 1
    return piece, end + 1


class Globs:
    """A set of globs that choose files. A pattern without a slash matches names at any depth; one with a slash is
    anchored where the search starts. A pattern that starts with `!` excludes files, and everything below the
    directories it matches."""

    def __init__(self, patterns: list[str]) -> None:
        wanted: list[str] = []
        unwanted: list[str] = []
        for pattern in patterns:
            negated = pattern.startswith("!")
            for glob in expand_braces(pattern[negated:]):
                glob = glob[2:] if glob.startswith("./") else glob
                glob += "**" if glob.endswith("/") else ""
                body = translate(glob.lstrip("/")) if "/" in glob else "(?:.*/)?" + translate(glob)
                if negated:
                    unwanted.append(f"{body}(?:/.*)?")
                else:
                    wanted.append(body)
        self._wanted = _any_of(wanted)
        self._unwanted = _any_of(unwanted)

    def match(self, path: str) -> bool:
        """Return whether the globs choose the file at this relative path."""
        if self._unwanted is not None and self._unwanted.fullmatch(path):
            return False
        return self._wanted is None or self._wanted.fullmatch(path) is not None


def _any_of(patterns: list[str]) -> re.Pattern[str] | None:
    return re.compile("|".join(f"(?:{each})" for each in patterns), re.DOTALL) if patterns else None


_MAX_BYTES = 1 << 20
_MAX_LINES = 10_000  # Python takes two seconds to compile as many patterns


class Rules:
    """One .gitignore file. Paths are relative to its directory. It is parsed when it is first asked."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def _parsed(self) -> list[tuple[str, bool, bool]]:
        lines = self._text.removeprefix("\ufeff").split("\n")
        return [rule for line in lines if (rule := _rule(line)) is not None][::-1]

    @cached_property
    def _any(self) -> re.Pattern[str] | None:
        return _any_of([body for body, _, _ in self._parsed])

    @cached_property
    def _rules(self) -> list[tuple[re.Pattern[str], bool, bool]]:
        return [(re.compile(body, re.DOTALL), negated, only) for body, negated, only in self._parsed]

    def verdict(self, path: str, is_directory: bool) -> bool | None:
        """Return True for an ignored path, False for a path that a `!` rule includes again, None if no rule matches.
        The last matching rule wins."""
        if self._any is None or not self._any.fullmatch(path):
            return None
        for pattern, negated, directories_only in self._rules:
            if (is_directory or not directories_only) and pattern.fullmatch(path):
                return not negated
        return None


def _rule(line: str) -> tuple[str, bool, bool] | None:
    """Return (regular expression, negated, directories only) for one line, None for a blank one or a comment."""
    line = line.removesuffix("\r")
    if line.startswith("#"):
        return None
    stripped = line.rstrip(" ")
    if len(stripped) < len(line) and (len(stripped) - len(stripped.rstrip("\\"))) % 2:
        stripped += " "
    negated = stripped.startswith("!")
    glob = stripped[negated:]
    only = glob.endswith("/")
    glob = glob[:-1] if only else glob
    if not glob or glob == "/":
        return None
    body = translate(glob.removeprefix("/"))
    return (body if "/" in glob else f"(?:.*/)?{body}"), negated, only


class Ignore:
    """The ignore rules in force in one directory. `excludes`: the files `.git/info/exclude` count too. `unobeyed` are
    the files that are not regular, as a link to a device or a pipe that never opens, or too large. `is_strangers`: the
    repository that ripgrep would see is one of somebody else, above the project."""

    def __init__(self, excludes: bool = False) -> None:
        self._frames: list[tuple[int, Rules]] = []  # (length of a directory's path with its slash), the innermost last
        self._in_repository = False
        self._excludes = excludes
        self.unobeyed: set[str] = set()
        self.is_strangers = False

    @staticmethod
    def at(root: str, project: Sequence[str] = (), excludes: bool = False) -> Ignore:
        """Return the rules in force where a search starts, including those of the parent directories in the same
        repository. Above the directories of the `project`, only those count to which nobody else may write."""
        found = Ignore(excludes)
        own = tuple(os.path.join(os.path.realpath(each), "") for each in project)
        directories, here, counts = [root], root, True
        while here != os.path.dirname(here) and not os.path.lexists(os.path.join(here, ".git")):
            here = os.path.dirname(here)
            counts = counts and (os.path.join(os.path.realpath(here), "").startswith(own) or only_we_write(here))
            if counts:
                directories.append(here)
        for directory in reversed(directories):
            found = found.below(directory)
        found.is_strangers = not counts and os.path.lexists(os.path.join(here, ".git"))
        return found

    def below(self, directory: str, names: set[str] | None = None) -> Ignore:
        """Return the rules inside `directory` (absolute). `names` are its entries, if the caller has them."""
        starts = os.path.lexists(os.path.join(directory, ".git")) if names is None else ".git" in names
        inside = starts or self._in_repository
        has_file = inside and (names is None or ".gitignore" in names)
        text = self._text(os.path.join(directory, ".gitignore")) if has_file else None
        if text is None and not starts:
            return self
        inner = Ignore(self._excludes)
        inner.unobeyed, inner._in_repository = self.unobeyed, inside
        excluded = self._text(os.path.join(directory, ".git/info/exclude")) if starts and self._excludes else None
        rules = [(len(directory.rstrip("/")) + 1, Rules(each)) for each in (excluded, text) if each is not None]
        inner._frames = rules if starts else self._frames + rules
        return inner

    def ignores(self, path: str, is_directory: bool) -> bool:
        """Return whether the rules exclude this entry (absolute path)."""
        for length, rules in reversed(self._frames):
            verdict = rules.verdict(path[length:], is_directory)
            if verdict is not None:
                return verdict
        return False

    def _text(self, path: str) -> str | None:
        try:
            with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC), "rb") as file:
                info = os.fstat(file.fileno())
                if stat.S_ISREG(info.st_mode) and info.st_size <= _MAX_BYTES:
                    data = file.read(_MAX_BYTES)
                    if data.count(b"\n") <= _MAX_LINES:
                        return os.fsdecode(data)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR):
                return None
            if error.errno == errno.EACCES and os.access(path, os.R_OK):
                return None  # the cage hides what is outside of the project
        self.unobeyed.add(path)
        return None
