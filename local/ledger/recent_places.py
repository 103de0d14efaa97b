"""The hosts and directories of the last sessions, from the ledger of this machine."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ccb.tunnel.openssh.kept_records import all_kept
from ccb.tunnel.wire.dataclass import dataclass

from ..config.log import state_dir
from .store import read_ledger


@dataclass(frozen=True)
class RecentPlace:
    """A host and a directory, with the seconds since the last model call there. `kept`: a connection is kept."""

    host: str
    directory: str
    ago_s: float
    kept: bool = False


def recent_places(environ: Mapping[str, str]) -> list[RecentPlace]:
    """Return the places, the one used last first. Raise ConfigError if the ledger cannot be read."""
    found: list[tuple[str, str, float]] = read_ledger(state_dir(environ), lambda ledger: ledger.places(), [])
    now, kept = time.time(), {each.host for each in all_kept(environ)}
    return [RecentPlace(host, directory, max(0.0, now - last), host in kept) for host, directory, last in found]
