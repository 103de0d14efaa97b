"""A parser for the expression of `find`, which decides which files -exec gets."""

from __future__ import annotations

from collections.abc import Sequence

from .words import names

VALUED = names(
    "-name -iname -path -ipath -wholename -iwholename -lname -ilname -regex -iregex -regextype -type -xtype -maxdepth"
    " -mindepth -size -perm -user -group -uid -gid -links -inum -samefile -newer -anewer -cnewer -newermt -newerct"
    " -mtime -mmin -atime -amin -ctime -cmin -used -printf -fstype"
)
"""Tests and actions that take the next word, whatever it looks like."""

BARE = names(
    "-empty -prune -print -print0 -ls -true -false -depth -d -mount -xdev -daystart -executable -readable -writable"
    " -nouser -nogroup -noleaf -ignore_readdir_race -warn -nowarn -quit"
)

OPERATORS = names("! ( ) , -not -o -or -a -and")


class Unclear(Exception):
    """The expression is not understood, or does not guarantee that -exec gets plain files only."""


def check_plain_files(texts: Sequence[str], needs: Sequence[bool]) -> None:
    """Raise Unclear unless each -exec with a true flag in `needs` (one flag for each -exec, in order) gets plain files
    only, never a link: `-type f` must hold on every path to it. `texts` are the words after the directories."""
    expression = _Expression(texts, needs)
    if texts:
        expression.whole(False)
    expression.end()


class _Expression:
    """A recursive-descent parser: `!` binds closest, then -a, then -o, then the comma. The argument of each method says
    whether the file is known to be plain before this part. The method returns whether it is known to be plain after
    this part was true."""

    def __init__(self, texts: Sequence[str], needs: Sequence[bool]) -> None:
        self._rest = list(texts)
        self._needs = list(needs)

    def whole(self, plain: bool) -> bool:
        found = self._any(plain)
        while self._take(","):
            found = self._any(plain)
        return found

    def end(self) -> None:
        if self._rest or self._needs:
            raise Unclear

    def _any(self, plain: bool) -> bool:
        found = self._all(plain)
        while self._take("-o", "-or"):
            found = self._all(plain) and found
        return found

    def _all(self, plain: bool) -> bool:
        plain = self._one(plain)
        while self._rest and self._rest[0] not in (")", ",", "-o", "-or"):
            self._take("-a", "-and")
            plain = self._one(plain)
        return plain

    def _one(self, plain: bool) -> bool:
        if self._take("!", "-not"):
            self._one(plain)
            return plain
        if self._take("("):
            found = self.whole(plain)
            if not self._take(")"):
                raise Unclear
            return found
        return self._test(plain)

    def _test(self, plain: bool) -> bool:
        text = self._next()
        if text == "-exec":
            self._skip_command()
            if not self._needs or (self._needs.pop(0) and not plain):
                raise Unclear
            return plain
        if text in VALUED:
            return (text, self._next()) == ("-type", "f") or plain
        if text not in BARE:
            raise Unclear
        return plain

    def _skip_command(self) -> None:
        before, text = "", self._next()
        while text != ";" and not (text == "+" and before == "{}"):
            before, text = text, self._next()

    def _take(self, *texts: str) -> bool:
        if self._rest and self._rest[0] in texts:
            self._rest.pop(0)
            return True
        return False

    def _next(self) -> str:
        if not self._rest:
            raise Unclear
        return self._rest.pop(0)
