"""The doctor's checks of connections that sessions share: the person's own master, and what ccb keeps."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from ccb.tunnel.errors import CcbError
from ccb.tunnel.login.prompter import NobodyToAsk
from ccb.tunnel.openssh.kept_login import KeptRoute, not_kept
from ccb.tunnel.openssh.kept_records import kept_directory, key_of, read_record
from ccb.tunnel.openssh.live_master import find_master
from ccb.tunnel.openssh.trial import ANSWER_S, over_master
from ccb.tunnel.ssh_config.host_config import HostConfig
from ccb.tunnel.ssh_config.target import SshTarget
from ccb.tunnel.transports.pipe import Transport

from .findings import CONNECTION, Finding, State

_NAME = "ControlMaster"


async def master_finding(config: HostConfig, target: SshTarget, *, allowed: bool) -> Finding | None:
    """Return what becomes of the master for `target`, or None. `allowed`: the settings let ccb use it."""
    found = find_master(config, target)
    if found is None:
        return None
    if not allowed:
        text = f"{found.socket} is not used: controlMaster is false in the settings"
        return Finding(CONNECTION, _NAME, State.INFO, text)
    if found.problem:
        return Finding(CONNECTION, _NAME, State.INFO, f"{found.socket} is not used: {found.problem}")
    trial = over_master(found.socket, config, target, NobodyToAsk(), _no_login)
    began = asyncio.get_running_loop().time()
    try:
        pipe = await trial.answering("exec /bin/sh -c 'echo in'")
        took_ms = (asyncio.get_running_loop().time() - began) * 1000
    except CcbError:
        pipe = None
    finally:
        await trial.close()
    if pipe is None:
        return Finding(
            CONNECTION,
            _NAME,
            State.WARN,
            f"{found.socket} does not answer within {ANSWER_S:g} s: each session waits that long, then logs in",
            f"End it: `ssh -O exit {target.shown}`.",
        )
    text = f"{found.socket} answers within {took_ms:.0f} ms: sessions go over it without a login"
    return Finding(CONNECTION, _NAME, State.OK, text)


async def kept_finding(configs: Sequence[HostConfig], target: SshTarget, keep_s: float) -> Finding:
    """Return what becomes of the connection to `target` after a run, with keepConnection in the settings."""
    route = KeptRoute(configs, target, keep_s, _no_login)
    if problem := await not_kept(route, kept_directory(os.environ)):
        return Finding(CONNECTION, "kept connection", State.INFO, f"none is kept: {problem}")
    kept = read_record(kept_directory(os.environ) / f"{key_of(configs, target.host)}.json")
    if kept is None:
        text = f"none yet: the next login is kept for {keep_s / 60:g} minutes (keepConnection)"
    else:
        text = f"kept for {kept.left_s / 60:.0f} more minutes; `ccb disconnect {target.shown}` ends it"
    return Finding(CONNECTION, "kept connection", State.INFO, text)


async def _no_login() -> Transport:
    raise AssertionError("a check of the master does not log in")
