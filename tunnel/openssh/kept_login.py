"""Log in once for several runs: a master of the OpenSSH client that a keeper holds after this run has ended."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from ..errors import Unreachable
from ..link.wake import source_addresses
from ..login.askpass import Askpass, private_directory
from ..login.prompter import Prompts, tell_once
from ..ssh_config.host_config import HostConfig, Identities
from ..ssh_config.resolve import ssh_says
from ..ssh_config.target import SshTarget
from ..transports.command import said_by
from ..transports.environment import without_secrets
from ..transports.pipe import Transport
from ..wire.dataclass import dataclass
from . import keeper
from .keeper import has_slept, slept_s
from .kept_records import Kept, has_keeper, kept_directory, key_of, private, read_record
from .live_master import peer_problem
from .master import MasterCommand, log_in
from .transport import NO_COMMAND, OpenSshTransport, literal, login_options, stored_place
from .trial import ANSWER_S, LogIn, commands_over, over_master

log = logging.getLogger(__name__)

_UNDOUBTED_ANSWER_S = 5.0
"""Seconds for the first answer over a kept connection while nothing speaks against it: the same network, no sleep."""

_AGENT_S = 2.0
_TOUCHED = (b"sk-ssh-ed25519@openssh.com", b"sk-ecdsa-sha2-nistp256@openssh.com")
_MAX_KEY = 64 * 1024


@dataclass(frozen=True)
class KeptRoute:
    """Which connection is kept: the options of every hop to `target`, and for how long. `plain` logs in without keeping
    anything."""

    configs: Sequence[HostConfig]
    target: SshTarget
    keep_s: float
    plain: LogIn


async def share_kept(route: KeptRoute, prompts: Prompts) -> Transport:
    """Return a transport over the connection that is kept for this route, or log in and keep that connection.

    Where nothing may be kept, log in with `route.plain`, and tell the person once.
    """
    directory = kept_directory(os.environ)
    record = directory / f"{key_of(route.configs, route.target.host)}.json"
    found = await asyncio.to_thread(read_record, record) if private(directory) else None
    slept, addresses = prompts.memory.kept_connections.get(record, (0.0, None))
    if found is None and addresses == source_addresses() and not has_slept(slept):
        return await route.plain()  # its end was wanted: this run must not bring it back when it reconnects
    prompts.memory.kept_connections[record] = slept_s(), source_addresses()
    if found is None or found.over or peer_problem(found.socket):
        return await _log_in(route, prompts, record, found)
    config = route.configs[-1]
    trial = over_master(found.socket, config, route.target, prompts, lambda: _log_in(route, prompts, record, found))
    same_network = found.addresses == source_addresses()
    trial.answer_s = _UNDOUBTED_ANSWER_S if same_network else ANSWER_S
    return trial


async def _log_in(route: KeptRoute, prompts: Prompts, record: Path, old: Kept | None) -> Transport:
    """Log in, in the place of `old`, and keep the connection if that is allowed."""
    if problem := await not_kept(route, record.parent):
        tell_once(prompts, f"The connection to {route.target.shown} is not kept: {problem}.")
        return await route.plain()
    if old is not None and not await asyncio.to_thread(old.stop_sharing):
        log.warning("the kept connection to %s does not end", old.host)
        return await route.plain()
    return await _keep(route, prompts, record)


async def not_kept(route: KeptRoute, directory: Path) -> str:
    """Return why no connection may be kept for this route, "" if one may be."""
    if shutil.which("ssh") is None:
        return "this machine has no OpenSSH client"
    if not private(directory, make=True):
        return f"other users can enter {directory}"
    for config in route.configs:
        keys = config.identities
        if keys.agent_keeps is not None and keys.agent_keeps[0]:
            return "its key asks for confirmation (AddKeysToAgent confirm)"
        if await asyncio.to_thread(_needs_touch, keys.files) or (not keys.only and await _agent_needs_touch(keys)):
            return "a key on a security key asks for a touch at each login (IdentitiesOnly leaves it out)"
    return ""


def _needs_touch(files: Sequence[Path]) -> bool:
    """Return whether an identity file belongs to a security key. Its public half says so, also in a locked file."""
    for path in files:
        for each in (path, path.with_name(path.name + ".pub")):
            try:
                with each.open("rb") as file:
                    text = file.read(_MAX_KEY)
            except OSError:
                continue
            if text.startswith(_TOUCHED) or any(name in _decoded(text) for name in _TOUCHED):
                return True
    return False


def _decoded(text: bytes) -> bytes:
    """Return the bytes of a private key in the format of OpenSSH, b"" for anything else."""
    if not text.startswith(b"-----BEGIN OPENSSH PRIVATE KEY-----"):
        return b""
    try:
        return base64.b64decode(b"".join(text.split(b"\n")[1:-1]), validate=False)
    except ValueError:
        return b""


async def _agent_needs_touch(keys: Identities) -> bool:
    if keys.agent is None or shutil.which("ssh-add") is None:
        return False
    env = {**without_secrets(os.environ), "SSH_AUTH_SOCK": keys.agent}
    try:
        _, listed, _ = await said_by(["ssh-add", "-L"], env=env, deadline_s=_AGENT_S)
    except TimeoutError:
        return True
    return any(line.encode().startswith(_TOUCHED) for line in listed.splitlines())


async def _keep(route: KeptRoute, prompts: Prompts, record: Path) -> Transport:
    """Log in and keep the connection. If another ccb is just doing that, only log in."""
    env, target, socket = without_secrets(os.environ), route.target, record.with_suffix("")
    base = ["ssh", *NO_COMMAND, *target.flags()]
    configured = await ssh_says([*base, "-G"], target.host, env)
    async with AsyncExitStack() as stack:
        directory = private_directory(env)
        stack.callback(shutil.rmtree, directory, ignore_errors=True)
        askpass = await stack.enter_async_context(Askpass(directory, prompts, stored_place(configured)))
        argv = [*base, *login_options(configured, prompts), "-S", literal(socket), "-M", "-N", "-T"]
        argv += ["-o", "ControlPersist=no", "--", target.host]
        about = {"host": target.shown, "addresses": source_addresses()}
        runner = [sys.executable, "-I", "-S", keeper.__file__, str(socket), str(record), str(route.keep_s)]
        command = MasterCommand(argv, socket, target.shown, target.shell_command(), (*runner, json.dumps(about)))
        try:
            master = await log_in(command, env={**env, **askpass.variables}, prompts=prompts, gave_up=askpass.gave_up)
        except Unreachable:
            if not await asyncio.to_thread(has_keeper, record):
                raise
            log.info("another ccb is making the connection that is kept")
            return await route.plain()
        await master.let_go()
    minutes = max(1, round(route.keep_s / 60))
    tell_once(
        prompts,
        f"The connection to {target.shown} is kept for {minutes} minute{'s' if minutes > 1 else ''}: a password or a "
        f"code is asked once in that time. `ccb disconnect {target.shown}` ends it.",
    )
    return OpenSshTransport(commands_over(socket, route.configs[-1], target), master, AsyncExitStack())
