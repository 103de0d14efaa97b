"""Which git commands are read-only. An unknown sub-command may be an alias, and an unknown option may run a program."""

from __future__ import annotations

import re
from typing import Callable

from .shell_words import names

Texts = list[str]
_Check = Callable[[Texts], bool]

_NEVER = (
    *("--output", "--output-directory", "--ext-diff", "--open-files-in-pager", "--exec", "--upload-pack", "--no-index"),
    "--show-signature",  # runs gpg
    "--submodule",  # runs git in directories with a configuration of their own
    "--help",  # runs a viewer
)
"""Options that write a file or run a program. git accepts any unambiguous abbreviation of them."""
RISKY = " ".join((*_NEVER, "--receive-pack --extcmd --separate-git-dir --upload-archive --config-env"))
"""The options that a rule with a wildcard does not cover, in the form of the tables of `risky_options`."""
RISKY_BEFORE_SUBCOMMAND = "-c --config-env --exec-path -C@ --git-dir@ --work-tree@ --help"
VALUED_BEFORE_SUBCOMMAND = names("-c -C --git-dir --work-tree --namespace --super-prefix --config-env --attr-source")
RISKY_OF_SUBCOMMAND = {
    "am": "--directory@ -S= -p= -C=",
    "archive": "-o --remote --add-file@",
    "bisect": "-x",
    "checkout": "--pathspec-from-file@",
    "index-pack": "-o@",
    "blame": "--contents@ -S@ -L=",
    "clone": "-u -c --config --template --reference --reference-if-able --bundle-uri -b= -j= -o=",
    "config": "-f --file --global --system --worktree --blob -e --edit",
    "difftool": "-x -t --tool",
    "format-patch": "-o --signature-file@ -v=",
    "grep": "-O -f@ -e= -A= -B= -C= -m=",
    "log": "-O@ -G= -S= -L= -n=",
    "diff": "-O@ -G= -S= -U= -l=",
    "show": "-O@ -G= -S= -n=",
    "checkout-index": "--prefix@",
    "fast-export": "--export-marks@ --import-marks@ --import-marks-if-exists@",
    "fast-import": "--export-marks@ --import-marks@ --import-marks-if-exists@ --export-pack-edges@",
    "maintenance": "--config-file",
    "read-tree": "--index-output@",
    "mergetool": "-t --tool -O@",
    "notes": "-F@ --file@ -m=",
    "push": "--repo -o=",
    "rebase": "-x -s --strategy -X= -C= -S=",
    "send-email": "--smtp-server --to-cmd --cc-cmd --header-cmd --sendmail-cmd --smtp-ssl-cert-path",
}
FINE = r"(?:-s ?|--strategy[= ])(?:ort|recursive|resolve|octopus|ours|subtree)|(?:-F ?|--file[= ])-"
RUNNING_SUBCOMMANDS = names(
    "filter-branch filter-repo remote-ext remote-fd shell credential credential-store credential-cache web--browse"
    " instaweb for-each-repo difftool--helper mergetool--lib submodule--helper bisect--helper p4 cvsserver daemon"
)
_RUNNING_WORDS = {"bisect": names("run"), "submodule": names("foreach"), "hook": names("run")}
_REMOTE = names("fetch pull push clone ls-remote remote submodule archive")
_URL = re.compile(r".*://.*|[^/:]+@[^/:]+:.*|[/~].*|\.\.?(?:/.*)?", re.DOTALL)
_KEY = re.compile(r"[a-z][a-z0-9-]*(?:\..*)?\.[a-z][a-z0-9-]*(?:=.*)?", re.DOTALL | re.IGNORECASE)
_HARMLESS_KEY = re.compile(
    r"user\.(?:name|email)|(?:color|advice|rerere)\.[\w.]+|pull\.(?:rebase|ff)|push\.(?:default|followtags|autosetupremote)"
    r"|init\.defaultbranch|fetch\.prune|merge\.conflictstyle|diff\.(?:algorithm|renames|colormoved)"
    r"|rebase\.auto(?:squash|stash)|core\.(?:autocrlf|eol|filemode|ignorecase|quotepath|abbrev)",
    re.IGNORECASE,
)
_RUNS_GPG = re.compile(r"%G|%\(signature")


def git_reads_only(words: Texts) -> bool:
    rest = list(words)
    while rest and rest[0] in ("--no-pager", "-P", "--no-optional-locks", "--literal-pathspecs"):
        rest.pop(0)
    if rest in (["--version"], ["version"]):
        return True
    check = _SUBCOMMANDS.get(rest[0]) if rest else None
    return check is not None and not any(map(_is_hazard, rest[1:])) and check(rest[1:])


def names_risk(subcommand: str, text: str, is_first: bool) -> bool:
    """Return whether an argument that is no option makes a sub-command run a program or reach another host than those
    of its remotes. `is_first`: no other operand stands before it."""
    if text in _RUNNING_WORDS.get(subcommand, ()):
        return True
    if subcommand in _REMOTE and "::" in text:
        return True  # names a program that speaks for the remote
    if subcommand in ("fetch", "pull", "push") and not text.startswith("-"):
        return _URL.fullmatch(text) is not None or (is_first and ":" in text)
    if subcommand == "config":
        return _KEY.fullmatch(text) is not None and not _HARMLESS_KEY.fullmatch(text)
    return subcommand in SUBCOMMANDS and _RUNS_GPG.search(text) is not None


def _is_hazard(text: str) -> bool:
    if _RUNS_GPG.search(text):
        return True
    if not text.startswith("--") or len(text) == 2:
        return False
    name = text.partition("=")[0]
    if name.startswith("--output-indicator"):
        return False
    return any(hazard.startswith(name) or name.startswith(hazard) for hazard in _NEVER)


def _listing(asks: str, allowed: str, valued: str) -> _Check:
    """Return a check that allows operands only with one of the options `asks` (such as --list). Without it, operands
    name something to create, move or delete."""
    flags, with_value, listers = names(allowed), names(valued), names(asks)

    def check(words: Texts) -> bool:
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


_TOLD = re.compile(r"(?:user|remote|branch|core|init|pull|push|submodule)\.[^=]+", re.IGNORECASE)


def _config(words: Texts) -> bool:
    """Allow lists of the repository's own configuration only: the person's may hold passwords."""
    flags = ("--global", "--local", "--system", "--show-origin", "--show-scope", "--name-only", "-z", "--null")
    rest = [word for word in words if word not in flags]
    is_own = "--local" in words and "--global" not in words and "--system" not in words
    if rest in (["--list"], ["-l"]):
        return is_own
    if len(rest) != 2 or rest[1].startswith("-"):
        return False
    if rest[0] in ("--get", "--get-all"):
        return is_own or _TOLD.fullmatch(rest[1]) is not None
    return rest[0] == "--get-regexp" and is_own


_QUIETLY = ("--short", "-q", "--quiet")
_SUBCOMMANDS: dict[str, _Check] = {
    **dict.fromkeys(
        names(
            "status log show diff whatchanged shortlog blame annotate rev-parse rev-list ls-files ls-tree describe"
            " merge-base name-rev diff-tree diff-index diff-files for-each-ref show-ref show-branch cat-file"
            " count-objects check-ignore check-attr cherry range-diff"
        ),
        lambda words: True,
    ),
    # -O opens a pager, also inside a cluster of letters
    "grep": lambda words: not any(re.match(r"-[A-Za-z]*O", word) for word in words),
    "branch": _listing(  # an old git takes -l for "create a reflog"
        "--list",
        "-a --all -r --remotes -v -vv --verbose --show-current --column --no-column --color --no-color -i"
        " --ignore-case",
        "--contains --no-contains --merged --no-merged --sort --format --points-at",
    ),
    "tag": _listing(
        "-l --list",
        "-n --column --no-column --color",
        "--contains --no-contains --merged --no-merged --sort --points-at",
    ),
    "stash": lambda words: words[:1] in (["list"], ["show"]),
    "worktree": lambda words: words[:1] == ["list"],
    "remote": lambda words: words in ([], ["-v"], ["--verbose"]) or (len(words) == 2 and words[0] == "get-url"),
    "reflog": lambda words: not words or words[0] == "show" or (words[0].startswith("-") and len(words) == 1),
    "config": _config,
    "symbolic-ref": lambda words: [word.startswith("-") for word in words if word not in _QUIETLY] == [False],
}

SUBCOMMANDS = frozenset(_SUBCOMMANDS)
"""The sub-commands that may be read-only."""
