"""Which connections a run may share instead of logging in."""

from __future__ import annotations

from ..wire.dataclass import dataclass


@dataclass(frozen=True)
class Sharing:
    """What the person allows. `own_master`: use a master of theirs that is alive. `keep_s`: log in with the OpenSSH
    client, and keep that connection for so many seconds (0: do not)."""

    own_master: bool = True
    keep_s: float = 0


DEFAULT_SHARING = Sharing()
NOTHING_SHARED = Sharing(own_master=False)
