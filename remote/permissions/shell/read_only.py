"""Commands that change nothing. Names are not enough (`find -delete`, `sort -o`), so each has a check of its own."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Callable

from .shell_parser import parse
from .shell_words import Command, NotUnderstood, Word, is_harmless_assignment, names
from .wrappers import effective, started_by

_VALUED = names("""-name -iname -path -ipath -wholename -iwholename -lname -ilname -regex -iregex -regextype -type
    -xtype -maxdepth -mindepth -size -perm -user -group -uid -gid -links -inum -samefile -newer -anewer -cnewer -newermt
    -newerct -mtime -mmin -atime -amin -ctime -cmin -used -printf -fstype""")
"""Tests and actions that take the next word, whatever it looks like."""

_BARE = names("""-empty -prune -print -print0 -ls -true -false -depth -d -mount -xdev -daystart -executable -readable
    -writable -nouser -nogroup -noleaf -ignore_readdir_race -warn -nowarn -quit""")

_JOINERS = names(", -o -or -a -and")
_OPENING, _CLOSING = _JOINERS | names("! -not ("), _JOINERS | names(")")
_FIND_WORDS = _VALUED | _BARE | _OPENING | _CLOSING | names("-follow -L -H -P -exec")


def check_plain_files(texts: Sequence[str], needs: Sequence[bool]) -> None:
    """Raise NotUnderstood unless each -exec with a true flag in `needs` gets plain files only, never a link: `-type f`
    must hold on every path to it. `texts` are the words after the directories."""
    plain, before = False, ""
    # of each open parenthesis: whether the file was surely plain at its start, and at the ends of its earlier branches
    around, branches = [False], [True]
    found: list[bool] = []
    for text, value in _terms(texts):
        if text == "(":
            around.append(plain)
            branches.append(before not in ("!", "-not"))
        elif text == ")":
            is_plain = branches.pop() and plain
            plain = around.pop() or is_plain
        elif text in (",", "-o", "-or"):
            branches[-1], plain = branches[-1] and plain, around[-1]
        elif text == "-exec":
            found.append(plain)
        elif (text, value) == ("-type", "f") and before not in ("!", "-not"):
            plain = True
        before = text
    if len(found) != len(needs) or any(need and not each for need, each in zip(needs, found)):
        raise NotUnderstood


def _terms(texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the operators, the parentheses, and the tests and actions with their values. Raise NotUnderstood."""
    rest, before, depth = list(texts), "(", 0
    while rest:
        text, value = rest.pop(0), ""
        if text == "(":
            depth += 1
        elif text == ")":
            depth -= 1
        if depth < 0 or (before in _OPENING and text in _CLOSING):
            raise NotUnderstood
        if text == "-exec":
            value = _pop_command(rest)
        elif text in _VALUED and rest:
            value = rest.pop(0)
        elif text not in _BARE | _OPENING | _CLOSING:
            raise NotUnderstood
        yield text, value
        before = text
    if depth or (texts and before in _OPENING):
        raise NotUnderstood


def _pop_command(rest: list[str]) -> str:
    """Take the words of a command of -exec, and return its end: `;` or `+`. Raise NotUnderstood if it has none."""
    last = value = ""
    while value != ";" and (last, value) != ("{}", "+"):
        if not rest:
            raise NotUnderstood
        last, value = value, rest.pop(0)
    return value


Words = Sequence[Word]  # the arguments, without the name
NULL_DEVICE = "/dev/null"


def is_read_only_command(command: str) -> bool:
    """Return whether nothing in the line can change anything. Which files it reads is not checked here."""
    try:
        commands = parse(command)
    except NotUnderstood:
        return False
    writes = any(each.writes and not is_null(each.target) for part in commands for each in part.redirects)
    return bool(commands) and not writes and reads_only_together(commands) and all(map(reads_only, commands))


def changes_directory(command: str) -> bool:
    """Return whether a line may leave the shell in another directory, so that it must not run beside others."""
    try:
        return any(inner is None or inner.name in _MOVERS for inner in map(effective, parse(command)))
    except NotUnderstood:
        return True


_MOVERS = ("cd", "pushd", "popd")


def is_null(target: Word) -> bool:
    return target.is_literal and target.text == NULL_DEVICE


def reads_only_together(commands: Sequence[Command]) -> bool:
    """Return whether read-only commands stay so together: after `cd`, git obeys the configuration of that directory."""
    changes = any(inner and inner.name in _MOVERS for inner in map(effective, commands))
    return not (changes and any(map(runs_git, commands)))


def runs_git(command: Command) -> bool:
    inner = effective(command)
    return inner is not None and (inner.name == "git" or any(map(runs_git, started_by(inner) or [])))


def reads_only(command: Command) -> bool:
    """Return whether a simple command is read-only, apart from its redirections."""
    inner = effective(command)
    if inner is None:
        return False
    if not all(is_harmless_assignment(word, bool(inner.words)) for word in inner.assignments):
        return False
    if not inner.words:
        return True
    check = _CHECKS.get(inner.name)
    if check is None:
        question = inner.words[1] if len(inner.words) == 2 and inner.words[1].is_literal else None
        return question is not None and question.text in _VERSIONED.get(inner.name, ()) and not _is_shim(inner.name)
    started = started_by(inner)
    return started is not None and all(map(reads_only, started)) and check(inner.words[1:])


def _is_shim(name: str) -> bool:
    """Return whether PATH finds a program that chooses the real one by files of the project, as those of pyenv and
    asdf: it lies among shims, or is a link to a program of another name."""
    found = shutil.which(name)
    if found is None:
        return False
    stem = name.rstrip("0123456789.")
    return "shims" in found.split("/") or stem not in os.path.basename(os.path.realpath(found))


def _settled(words: Words) -> bool:
    """Return whether no expansion or wildcard among the words can become an option."""
    return not any(word.dynamic or (word.is_glob and word.text[0] in "*?[-") for word in words)


def _options(short: str = "", long: str = "", valued: str = "", max_operands: int = 1000) -> Callable[[Words], bool]:
    """Return a check that allows only these options: `short` letters without a value, `valued` letters whose value is
    the rest of the word or the next word, `long` names (with or without `=value`)."""
    long_names = names(long)
    letters = re.compile(f"-[{short}]*(?:[{valued}](.*))?" if valued else f"-[{short}]*", re.DOTALL)

    def check(words: Words) -> bool:
        if not _settled(words) or (max_operands < 1000 and any(word.is_glob for word in words)):
            return False  # `uniq a*` writes to the second file that matches
        operands = 0
        rest = [word.text for word in words]
        while rest:
            text = rest.pop(0)
            if text == "--":
                operands += len(rest)
                break
            if text.startswith("--"):
                if text[2:].partition("=")[0] not in long_names:
                    return False
            elif text.startswith("-") and len(text) > 1:
                cluster = letters.fullmatch(text)
                if cluster is None:
                    return False
                del rest[: int(valued != "" and cluster[1] == "")]
            else:
                operands += 1
        return operands <= max_operands

    return check


def _only(pattern: str) -> Callable[[Words], bool]:
    """Return a check that allows only words with a dash, values too, that match as a whole."""
    allowed = re.compile(pattern, re.DOTALL)

    def check(words: Words) -> bool:
        texts = (word.text for word in words)
        return _settled(words) and all(allowed.fullmatch(text) for text in texts if text.startswith("-"))

    return check


def _find(words: Words) -> bool:
    before, inside = "", False
    for text in [word.text for word in words]:
        if inside:  # the command of -exec is checked as a command of its own
            inside = text != ";" and (before, text) != ("{}", "+")
        elif text.startswith("-") and text not in _FIND_WORDS:
            is_mode = before == "-perm" and re.fullmatch(r"-[ugoarwxst=+,]+", text)
            if not is_mode and not re.fullmatch(r"-[0-9]+[a-zA-Z]?", text):
                return False
        inside = inside or text == "-exec"
        before = text
    return _settled(words)


def _rg(words: Words) -> bool:
    if not _settled(words):
        return False
    for text in [word.text for word in words]:
        if text == "--":
            return True
        if text.startswith("--"):
            if text.startswith(("--pre", "--hostname-bin", "--search-zip")) and not text.startswith("--pretty"):
                return False
        elif text.startswith("-") and "z" in text:
            return False
    return True


_SED_REGEX = r"/(?:[^/\\\n\[]|\\[^\n]|\[\^?[^\]\^\[/\\\n][^\]\[/\\\n]*\])*/"
_SED_ADDRESS = rf"(?:[0-9]+(?:~[0-9]+)?|\$|{_SED_REGEX}I?)"
_SED_OTHER = "|".join(rf"s{sep}[^{sep}\\\n\[]*{sep}(?:[^{sep}\\\n]|\\[^\n])*{sep}" for sep in map(re.escape, "|#,@:!"))
_SED_COMMAND = (
    rf"\s*(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|[+~][0-9]+))?\s*)?(?:!\s*)?"
    rf"(?:[pdq=]|(?:s{_SED_REGEX}(?:[^/\\\n]|\\[^\n])*/|{_SED_OTHER})[gpiI0-9]*)\s*"
)
_SED_SCRIPT = re.compile(rf"{_SED_COMMAND}(?:;{_SED_COMMAND})*(?:;\s*)?")


def sed_only_edits(words: Words) -> bool:
    """Allow only addresses with p, d, q, = and plain substitutions: `w`, `e` and `-i` write files and run commands."""
    texts = [word.text for word in words]
    scripts: list[str] = []
    operands: list[str] = []
    while texts:
        text = texts.pop(0)
        if text in ("-e", "--expression") and texts:
            scripts.append(texts.pop(0))
        elif text == "-" or not text.startswith("-"):
            operands.append(text)
        elif not re.fullmatch(r"-[nErsu]+|--quiet|--silent|--regexp-extended|--sandbox|--posix", text):
            return False
    scripts = scripts or operands[:1]
    is_plain = all(len(script) < 1000 and _SED_SCRIPT.fullmatch(script) for script in scripts)
    return bool(scripts) and is_plain and _settled(words)


def _test(words: Words) -> bool:
    """Refuse `-v` and `-R`: they evaluate array subscripts, which can run commands."""
    return all(
        word.is_literal and word.text not in ("-v", "-R") and "$(" not in word.text and "`" not in word.text
        for word in words
    )


_PRINTF_FORMAT = re.compile(
    r"(?:[^%]|%%|%[-+ #0]{0,9}[0-9]{0,9}(?:\.[0-9]{0,9})?(?:[bcdiosuxXeEfFgGaAq]|\([^()]*\)T))*", re.DOTALL
)


def _printf(words: Words) -> bool:
    """Allow only formats with known conversions: `%n` sets a variable."""
    if not words or not words[0].is_literal or words[0].text.startswith("-"):
        return False
    is_known = len(words[0].text) < 1000 and _PRINTF_FORMAT.fullmatch(words[0].text) is not None
    numbers = re.search(r"%[^%a-zA-Z]*[diouxXeEfFgGaA(]", words[0].text)
    return is_known and not (numbers and any(word.dynamic for word in words))


_PS_VALUE = re.compile(r"-[A-Za-z]*[oOCuUgGtpqs]|--(?:[pP]id|ppid|[uU]ser|[gG]roup|format|sort|tty|sid)")


def _ps(words: Words) -> bool:
    """Refuse an `e` without a dash: it shows the environment of other processes, with their secrets."""
    for before, word in zip(["", *(word.text for word in words)], words):
        if "environ" in word.text:
            return False
        if not _PS_VALUE.fullmatch(before) and (word.dynamic or re.fullmatch(r"\w*e\w*|-[A-Za-z]*E\w*", word.text)):
            return False
    return True


_DATE_OPTION = re.compile(
    r"(?:\+|--date=|--reference=|--iso-8601|--rfc-3339=).*|-[uR]+|-I[a-z]*|--utc|--universal|--rfc-email", re.DOTALL
)


def _date(words: Words) -> bool:
    texts = [word.text for word in words]
    while texts:
        text = texts.pop(0)
        if text in ("-d", "--date", "-r", "--reference") and texts:
            texts.pop(0)
        elif not _DATE_OPTION.fullmatch(text):
            return False
    return _settled(words)


def _set(words: Words) -> bool:
    texts = " ".join(word.text for word in words)
    return all(w.is_literal for w in words) and bool(re.fullmatch(r"([-+][eux]+ ?|[-+][eux]*o pipefail ?)+", texts))


GIT_NEVER = (
    *("--output", "--output-directory", "--ext-diff", "--open-files-in-pager", "--exec", "--upload-pack", "--no-index"),
    "--show-signature",  # runs gpg
    "--submodule",  # runs git in directories with a configuration of their own
    "--help",  # runs a viewer
)
"""Options that write a file or run a program. git accepts any unambiguous abbreviation of them."""
RUNS_GPG = re.compile(r"%G|%\(signature")


def _is_git_hazard(text: str) -> bool:
    if RUNS_GPG.search(text):
        return True
    if not text.startswith("--") or len(text) == 2:
        return False
    name = text.partition("=")[0]
    if name.startswith("--output-indicator"):
        return False
    return any(hazard.startswith(name) or name.startswith(hazard) for hazard in GIT_NEVER)


def _git_listing(asks: str, allowed: str, valued: str) -> Callable[[list[str]], bool]:
    """Return a check that allows operands only with one of the options `asks` (such as --list). Without it, operands
    name something to create, move or delete."""
    flags, with_value, listers = names(allowed), names(valued), names(asks)

    def check(words: list[str]) -> bool:
        rest = list(words)
        listing = bool(listers.intersection(rest))
        while rest:
            text = rest.pop(0)
            if text in with_value:
                if not rest or rest.pop(0).startswith("-"):
                    return False
            elif text.startswith("-"):
                if text.partition("=")[0] not in flags | with_value | listers:
                    return False
            elif not listing:
                return False
        return True

    return check


_TOLD_OF_GIT = re.compile(r"(?:user|remote|branch|core|init|pull|push|submodule)\.[^=]+", re.IGNORECASE)


def _git_config(words: list[str]) -> bool:
    """Allow lists of the repository's own configuration only: the person's may hold passwords."""
    flags = ("--global", "--local", "--system", "--show-origin", "--show-scope", "--name-only", "-z", "--null")
    rest = [word for word in words if word not in flags]
    is_own = "--local" in words and "--global" not in words and "--system" not in words
    if rest in (["--list"], ["-l"]):
        return is_own
    if len(rest) != 2 or rest[1].startswith("-"):
        return False
    if rest[0] in ("--get", "--get-all"):
        return is_own or _TOLD_OF_GIT.fullmatch(rest[1]) is not None
    return rest[0] == "--get-regexp" and is_own


_QUIET_OF_GIT = ("--short", "-q", "--quiet")
_GIT_CHECKS: dict[str, Callable[[list[str]], bool]] = {
    **dict.fromkeys(
        names("""status log show diff whatchanged shortlog blame annotate rev-parse rev-list ls-files ls-tree describe
            merge-base name-rev diff-tree diff-index diff-files for-each-ref show-ref show-branch cat-file count-objects
            check-ignore check-attr cherry range-diff"""),
        lambda words: True,
    ),
    # -O opens a pager, also inside a cluster of letters
    "grep": lambda words: not any(re.match(r"-[A-Za-z]*O", word) for word in words),
    "branch": _git_listing(  # an old git takes -l for "create a reflog"
        "--list",
        "-a --all -r --remotes -v -vv --verbose --show-current --column --no-column --color --no-color -i"
        " --ignore-case",
        "--contains --no-contains --merged --no-merged --sort --format --points-at",
    ),
    "tag": _git_listing(
        "-l --list",
        "-n --column --no-column --color",
        "--contains --no-contains --merged --no-merged --sort --points-at",
    ),
    "stash": lambda words: words[:1] in (["list"], ["show"]),
    "worktree": lambda words: words[:1] == ["list"],
    "remote": lambda words: words in ([], ["-v"], ["--verbose"]) or (len(words) == 2 and words[0] == "get-url"),
    "reflog": lambda words: not words or words[0] == "show" or (words[0].startswith("-") and len(words) == 1),
    "config": _git_config,
    "symbolic-ref": lambda words: [word.startswith("-") for word in words if word not in _QUIET_OF_GIT] == [False],
}

GIT_READERS = frozenset(_GIT_CHECKS)  # the sub-commands that may be read-only


def _git(words: Words) -> bool:
    texts = [word.text for word in words]
    if "symbolic-ref" in texts and any(word.is_glob for word in words):
        return False  # a second file name would be written to
    while texts and texts[0] in ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"):
        texts.pop(0)
    check = _GIT_CHECKS.get(texts[0]) if texts else None
    reads = check is not None and not any(map(_is_git_hazard, texts[1:])) and check(texts[1:])
    return _settled(words) and (reads or texts in (["--version"], ["version"]))


def _cd(words: Words) -> bool:
    target = words[0] if len(words) == 1 else None
    return target is not None and not (target.dynamic or target.is_glob or target.text.startswith(("-", "+")))


_SS_FILTER = re.compile(
    r"(?:\s|[=!<>&|()]|(?:[sd]port|src|dst|and|or|not|eq|ne|lt|gt|le|ge|state|exclude|all|connected|synchronized"
    r"|bucket|big|listen(?:ing)?|established|syn-(?:sent|recv)|fin-wait-[12]|(?:time|close)-wait|closed|closing|last-ack)\b"
    r"|(?:[0-9]+(?:\.[0-9]+){3}(?:/[0-9]+)?|\[[0-9a-f:.]*\])?(?::(?:[0-9]+|[a-z]+))?(?=[\s)]|\Z))*"
)


def _ss(letter: str = "", name: str = "") -> Callable[[Words], bool]:
    """Return a check that refuses -K, which closes sockets, and names of hosts, for which it asks a server."""
    options = _only(
        rf"-[46aeilmnorstuwxH{letter}]+"
        rf"|--(?:all|extended|info|ipv[46]|listening|memory|numeric|options|summary|tcp|udp{name})"
    )
    return lambda words: (
        options(words)
        and all(
            word.text.startswith("-") or (len(word.text) < 100 and _SS_FILTER.fullmatch(word.text)) for word in words
        )
    )


ss_with_programs = _ss("p", "|processes")  # the cage hides them


_CHECKS: dict[str, Callable[[Words], bool]] = {
    **dict.fromkeys(
        names("""echo true false : basename dirname seq which type exit whoami id uname arch nproc groups logname uptime
            free tr sleep cat head tail wc stat ls du df cut nl tac rev od cmp comm join paste fold expand unexpand fmt
            column md5sum sha1sum sha224sum sha256sum sha384sum sha512sum cksum b2sum sum realpath readlink printenv
            whereis grep egrep fgrep jq xargs"""),
        lambda words: True,
    ),
    **dict.fromkeys(("pwd", "env", "hostname"), lambda words: not words),
    "ps": _ps,
    "sort": _options(
        "bdfghiMnRrVcCmsuz", "reverse numeric-sort unique human-numeric-sort version-sort key field-separator", "kt"
    ),
    "uniq": _options("cdDiuz", "count repeated unique ignore-case", "fsw", max_operands=1),
    "diff": _options(
        "abBcdeiNnpqrstTuwyEZ0123456789",
        "brief recursive unified context color side-by-side ignore-all-space ignore-space-change ignore-blank-lines"
        " ignore-case exclude new-file text minimal suppress-common-lines width label strip-trailing-cr stat",
        "UCxWIF",
    ),
    "journalctl": _only(  # -n and -b take the next word as their value only if it is a number
        r"-[abekmqrx]*(?:[gnoptuSU].*)?|--(?:all|boot|catalog|dmesg|grep|identifier|lines|list-boots|merge|no-hostname"
        r"|no-pager|no-tail|output|pager-end|priority|quiet|reverse|since|unit|until|user-unit|utc)(?:=.*)?"
    ),
    "last": _only(r"-[adFiRwx0-9]+|-[npst].*|--(?:dns|fullnames|fulltimes|ip|limit|nohostname|system)(?:=.*)?"),
    "ss": _ss(),
    "file": _options("bihLkN0", "brief mime mime-type mime-encoding dereference no-dereference"),
    "tree": _options("adfilpsughDFrtcnCJSvx", "noreport gitignore dirsfirst prune du ignore-case", "LIP"),
    "find": _find,
    "rg": _rg,
    "sed": sed_only_edits,
    "test": _test,
    "[": _test,
    "printf": _printf,
    "date": _date,
    "command": lambda words: len(words) >= 2 and words[0].is_literal and words[0].text in ("-v", "-V"),
    "set": _set,
    "cd": _cd,
    "git": _git,
}

# Not here: programs that obey files of the project even then, such as cargo, rustc, go, npm, yarn and poetry.
_VERSIONED = {
    **dict.fromkeys(names("python python3 pip pip3"), names("--version -V")),
    **dict.fromkeys(names("ruby gem perl php gcc g++ clang cmake make bash rg docker uv"), names("--version")),
    **dict.fromkeys(names("java javac"), names("--version -version")),
    "node": names("--version -v"),
}
