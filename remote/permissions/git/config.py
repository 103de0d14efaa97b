"""Reads the configuration of a repository: which settings in it can make git run a program, or read files elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ccb.tunnel.wire.dataclass import dataclass


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


@dataclass(frozen=True)
class Setting:
    """One setting. `name` is its section and key in lower case; `value` is as written, None for a key alone."""

    section: str
    subsection: str
    key: str
    value: str | None

    @property
    def name(self) -> str:
        return f"{self.section}.{self.key}"


class NotPlain(Exception):
    """The file is written in a way that this reader does not follow."""


_BLANK = re.compile(r"[ \t]*(?:[#;].*)?")
_SECTION = re.compile(r"[ \t]*\[([A-Za-z0-9-]+)(?:[ \t]+\"([^\"\\]*)\")?\][ \t]*(?:[#;].*)?")
_KEY = re.compile(r"[ \t]*([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[ \t]*(.*))?")


def settings(text: str) -> Iterator[Setting]:
    """Yield the settings of a configuration file. Raise NotPlain for what git may read in another way: continued lines,
    and a section and a key on one line."""
    section = subsection = ""
    for line in text.split("\n"):
        line = line.rstrip("\r")
        if line.endswith("\\"):
            raise NotPlain("a line is continued")
        if _BLANK.fullmatch(line):
            continue
        header, key = _SECTION.fullmatch(line), _KEY.fullmatch(line)
        if header:
            section, subsection = header[1].lower(), header[2] or ""
        elif key and section:
            yield Setting(section, subsection, key[1].lower(), None if key[2] is None else key[2].strip())
        else:
            raise NotPlain("a line is unusual")


_ALL_KEYS = _names(
    "advice author branch checkout clone color column commit committer credential feature fetch gc"
    " gitflow grep gui http i18n index init maintenance pack protocol pull push rebase rerere sparse ssh"
    " stash submodule tag transfer url user versionsort worktree"
)
"""Sections of which no key makes a reading command run a program. Those about the network are among them: a reading
command asks no remote, unless it is a promisor."""

_KEYS = {
    "core": _names(
        "abbrev askpass autocrlf bare bigfilethreshold checkroundtripencoding checkstat commentchar"
        " commitgraph compression createobject deltabasecachelimit disambiguate editor eol filemode"
        " filesreflocktimeout fscache fsync fsyncmethod fsyncobjectfiles hidedotfiles ignorecase ignorestat"
        " logallrefupdates longpaths loosecompression maxtreedepth multipackindex notesref packedgitlimit"
        " packedgitwindowsize packedrefstimeout precomposeunicode preloadindex protecthfs protectntfs"
        " quotepath repositoryformatversion restrictinheritedhandles safecrlf sharedrepository sparsecheckout"
        " sparsecheckoutcone splitindex sshcommand symlinks trustctime unsetenvvars untrackedcache"
        " usereplacerefs warnambiguousrefs whitespace"
    ),
    "diff": _names(
        "algorithm autorefreshindex binary colormoved colormovedws context dirstat funcname guitool"
        " ignoresubmodules indentheuristic interhunkcontext mnemonicprefix noprefix relative renamelimit"
        " renames statgraphwidth statnamewidth suppressblankempty tool wordregex wserrorhighlight xfuncname"
    ),
    "merge": _names(
        "autostash branchdesc conflictstyle defaulttoupstream directoryrenames ff guitool log name recursive"
        " renamelimit renames stat suppressdest tool verbosity"
    ),
    "log": _names("abbrevcommit date decorate diffmerges excludedecoration follow graphcolors mailmap showroot"),
    "status": _names(
        "aheadbehind branch displaycommentprefix relativepaths renamelimit renames short showstash showuntrackedfiles"
    ),
    "remote": _names(
        "fetch followremotehead gh-resolved mirror prune prunetags push pushdefault pushurl skipdefaultupdate"
        " skipfetchall tagopt url"
    ),
    "blame": _names("blankboundary coloring date markignoredlines markunblamablelines showemail showroot"),
    "extensions": _names("compatobjectformat noop objectformat refstorage relativeworktrees worktreeconfig"),
    "lfs": _names("access locksverify repositoryformatversion"),
    "gpg": _names("format"),
    "interactive": _names("singlekey"),
}

FILES = _names("core.attributesfile core.excludesfile blame.ignorerevsfile commit.template diff.orderfile mailmap.file")
"""Settings whose value is the path of a file that git reads."""

_OFF = ("false", "no", "off", "0")


def names_program(setting: Setting, subcommands: frozenset[str]) -> bool:
    """Return whether a setting may make one of the reading `subcommands` run a program. Unknown settings may. The paths
    in `core.worktree`, `core.hooksPath` and FILES are for the caller to judge."""
    if setting.section == "alias":
        return setting.key in subcommands or setting.subsection in subcommands
    if setting.name == "core.fsmonitor":
        return (setting.value or "").lower() not in _OFF
    if setting.name in ("core.worktree", "core.hookspath") or setting.name in FILES:
        return False
    return setting.section not in _ALL_KEYS and setting.key not in _KEYS.get(setting.section, ())
