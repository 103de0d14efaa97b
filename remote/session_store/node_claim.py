"""Which of the nodes that share a home owns a session: the file `owner.N` with the highest number names that node.

A node that starts the session makes the next file, whole, by a name that only one of two nodes can have: so one of
them wins, whatever locks the file system keeps. A worker that ends leaves its file empty. Nobody takes the session of
another node, unless a person has said that this node is gone: then the journal becomes a new file, so that what its
worker may still write goes nowhere, and that worker ends when it finds its own file missing. Imported before hello.
"""

from __future__ import annotations

import errno
import json
import os

from .locks import boot_id, elsewhere, kept_elsewhere, own_node

Owner = dict[str, object]

PREFIX = "owner."
_TAKING = "taking"  # key of a record whose node has not yet made the journal a new file
_GONE = (errno.ENOENT, errno.ESTALE)
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class NodeClaim:
    """The file that makes this node the owner of a session; "" for a session that no other node can see. `renewed`:
    the journal has become a new file."""

    def __init__(self, path: str = "", *, renewed: bool = False) -> None:
        self.path, self.renewed = path, renewed

    def holds(self) -> bool:
        """Return whether this node still owns the session. Opening the file asks the server of a shared home."""
        if not self.path:
            return True
        try:
            os.close(os.open(self.path, os.O_RDONLY))
            return True
        except OSError as error:
            return error.errno not in _GONE  # another error is no answer, and writing the journal fails, too

    def check(self) -> None:
        """Raise OSError if another node has taken the session."""
        if not self.holds():
            raise OSError(errno.ESTALE, "the session was taken over on another node, or its files were removed")

    def release(self) -> None:
        """Let any node start the session. Nothing happens to a session that another node has taken."""
        try:
            if self.path:
                os.close(os.open(self.path, os.O_WRONLY | os.O_TRUNC))
        except OSError:
            pass


UNSHARED = NodeClaim()


def _numbers(state: str) -> list[int]:
    names = (name[len(PREFIX) :] for name in os.listdir(state) if name.startswith(PREFIX))
    return sorted(int(name) for name in names if name.isdigit())


def owner_of(state: str, summary: Owner) -> Owner:
    """Return the owner of a session: the node of its record, and the worker of its `summary`."""
    return {**summary, **_last(state)[1]}


def _last(state: str) -> tuple[int, Owner]:
    while True:
        numbers = _numbers(state) if os.path.isdir(state) else []
        if not numbers:
            return 0, {}
        try:
            with open(os.path.join(state, PREFIX + str(numbers[-1])), encoding="utf-8") as file:
                record = json.loads(file.read(4096) or "{}")
            return numbers[-1], record if isinstance(record, dict) else {}
        except ValueError:
            return numbers[-1], {}
        except OSError as error:
            if error.errno not in _GONE:
                raise


def take(state: str, summary: Owner, gone: str = "") -> NodeClaim:
    """Make this node the owner of the session of a state directory. Raise HostRefusal if another node is, unless that
    is the one of the boot `gone`."""
    while True:
        number, record = _last(state)
        owner = {**summary, **record}
        if elsewhere(owner, gone):
            raise kept_elsewhere(owner)
        renew = bool(record.get(_TAKING)) or owner.get("boot", boot_id()) != boot_id()
        path = os.path.join(state, PREFIX + str(number + 1))
        try:
            if _make(path, {**own_node(), _TAKING: renew}):
                break
        except OSError as error:
            if error.errno not in _FULL or record.get("boot") != boot_id() or renew:
                raise
            return NodeClaim(os.path.join(state, PREFIX + str(number)))  # of a worker here that was killed
    for each in _numbers(state):
        if each <= number:
            _unlink(os.path.join(state, PREFIX + str(each)))
    claim = NodeClaim(path, renewed=renew)
    if renew:
        _renew(os.path.join(state, "journal.jsonl"), claim)
        _write(path, own_node(), os.O_TRUNC)
    return claim


def _make(path: str, record: Owner) -> bool:
    """Make a record, whole at once. Return whether it is the last one: another node may have been faster."""
    whole = "%s-%s" % (path, os.urandom(8).hex())
    try:
        _write(whole, record, os.O_CREAT | os.O_EXCL)
        try:
            os.link(whole, path)
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            _write(path, record, os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return False
    finally:
        _unlink(whole)
    if path.endswith(PREFIX + str(_numbers(os.path.dirname(path))[-1])):
        return True
    _unlink(path)
    return False


def _write(path: str, record: Owner, flags: int) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o600)
    try:
        os.write(fd, json.dumps(record).encode())
    finally:
        os.close(fd)


def _renew(journal: str, claim: NodeClaim) -> None:
    """Make the journal a new file, unless this node has lost the session meanwhile: the copy would undo what the next
    owner has written. Raise OSError."""
    import shutil  # only a session that is taken over needs it

    if not os.path.exists(journal):
        return  # the session never began
    new = "%s.new-%d" % (journal, os.getpid())
    try:
        with open(journal, "rb") as old, open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            shutil.copyfileobj(old, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
        claim.check()
        os.replace(new, journal)
    except BaseException:
        _unlink(new)
        raise


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass
