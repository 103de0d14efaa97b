"""Checks of SSH: options, keys, login, shared connections."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import secrets
import stat
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from ccb.tunnel.errors import AuthFailed, CcbError, HostKeyError
from ccb.tunnel.openssh.kept_connections import KeptRoute, kept_directory, key_of, not_kept, read_record
from ccb.tunnel.openssh.shared_master import ANSWER_S, MasterTrial, master_problem
from ccb.tunnel.plain_text import neutralise
from ccb.tunnel.ssh.carrier import route
from ccb.tunnel.ssh_config.config_files import DEFAULT_KEYS
from ccb.tunnel.ssh_config.host_config import HostConfig
from ccb.tunnel.ssh_config.ssh_target import SshTarget, only_openssh
from ccb.tunnel.transports.host_keys import look_up
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.transports.pipe import DEFAULT_SHARING, Pipe, Sharing, Transport

from .doctor_findings import CONNECTION, HOST, JUMP_HOST, Finding, FindingState, error_finding

_MORE_SESSIONS = 2
_COMMAND_S = 10.0
_COMMANDS = ("proxycommand", "localcommand", "remotecommand", "knownhostscommand")
_NAME = "ControlMaster"

_finding = partial(Finding, CONNECTION)


async def ssh_findings(
    target: SshTarget, *, openssh: bool = False, words: Sequence[str] = ("ssh",), sharing: Sharing = DEFAULT_SHARING
) -> AsyncIterator[Finding]:
    """Yield the findings that need no login: those of each jump host first, then of the host. `openssh`: the OpenSSH
    client makes the connection, and `words` are the start of its command line. `sharing` says which connections
    sessions share."""
    try:
        hops = await route(target, words)
    except CcbError as error:
        yield error_finding(CONNECTION, "ssh options", error)
        return
    jumps = [each.shown for each, _ in hops[:-1]]
    for each, config in hops:
        where = CONNECTION if each is target else JUMP_HOST + each.shown
        through = f", through {', '.join(jumps)}" if jumps and each is target else ""
        async for finding in _hop_findings(config, through, openssh):
            yield replace(finding, where=where)
    if not openssh and sharing.keep_s:
        yield await kept_finding([hop.config for hop in hops], target, sharing.keep_s)
    if not openssh and (shared := await master_finding(hops[-1].config, target, allowed=sharing.own_master)):
        yield shared


async def _hop_findings(config: HostConfig, through: str, openssh: bool) -> AsyncIterator[Finding]:
    through = through or (", through a ProxyCommand" if config.route.proxy_command else "")
    yield _finding("address", FindingState.INFO, f"{config.user}@{config.hostname} port {config.port}{through}")
    lines = [f"{name} {_public_value(name, value)}" for name, values in config.given.items() for value in values]
    yield _finding("ssh options", FindingState.INFO, "\n".join(lines) or "all defaults")
    honoured = only_openssh(config.no_effect)
    if idle := [name for name in config.no_effect if not (openssh and name in honoured)]:
        fix = f"--transport ssh honours {', '.join(honoured)}." if honoured and not openssh else ""
        yield _finding("without effect", FindingState.INFO, ", ".join(idle), fix)
    yield await asyncio.to_thread(_known, config)
    yield await asyncio.to_thread(keys_finding, CONNECTION, config.identities.files)


def _public_value(name: str, value: str) -> str:
    """Return the value of an option, without parts that may be secret: people show the doctor's report to others."""
    if name == "setenv":
        return f"{value.partition('=')[0]}=…"
    if name in _COMMANDS:
        program, _, rest = value.strip().partition(" ")
        return f"{program} … (the rest is not shown)" if rest else program
    return value


def _known(config: HostConfig) -> Finding:
    trust = config.trust
    name, port = trust.name, trust.port
    files = ", ".join(str(path) for path in trust.known_hosts)
    try:
        known = look_up(trust.known_hosts, name, port)
    except CcbError as error:
        return error_finding(CONNECTION, "known_hosts", error)
    if port != 22:
        name = f"[{name}]:{port}"
    if known.unread:
        fix = "Make the file readable for yourself, or name another one."
        return _finding("known_hosts", FindingState.WARN, "\n".join(known.unread), fix)
    if known.places:
        return _finding("known_hosts", FindingState.OK, f"keys of {name} at {', '.join(known.places)}")
    if known.trusted or known.authorities:
        return _finding("known_hosts", FindingState.OK, f"{name} is vouched for in {files}")
    text = f"no key of {name} in {files} (StrictHostKeyChecking {trust.strict})"
    return _finding("known_hosts", FindingState.INFO, text)


def login_failed(error: CcbError) -> Finding:
    kinds = {HostKeyError: "host key", AuthFailed: "login"}
    name = next((name for kind, name in kinds.items() if isinstance(error, kind)), "reachability")
    return error_finding(CONNECTION, name, error)


def login_findings(transport: Transport, seconds: float, *, key_known: bool, verbose_login: str = "") -> list[Finding]:
    """`key_known`: the host's key was in known_hosts before. `verbose_login` is a command that logs in with -v."""
    from ccb.tunnel.openssh.openssh_transport import OpenSshTransport
    from ccb.tunnel.ssh.asyncssh_transport import SshTransport
    from ccb.tunnel.ssh.login_client import LoginClient

    took = f"within {seconds * 1000:.0f} ms"
    if not isinstance(transport, SshTransport):
        found = [_finding("reachability", FindingState.OK, f"connected {took}")]
        if isinstance(transport, OpenSshTransport):
            not_here = "not checked with this transport: "
            found.append(_finding("host key", FindingState.INFO, f"{not_here}ssh checks it itself"))
            found.append(_finding("login", FindingState.INFO, f"{not_here}`{verbose_login}` shows what ssh tries"))
        return found
    connection, client = transport.connection, transport.connection.get_owner()
    key, tried = connection.get_server_host_key(), client.tried() if isinstance(client, LoginClient) else ""
    user, server, cipher, compression = (
        neutralise(str(connection.get_extra_info(name) or ""))
        for name in ("username", "server_version", "send_cipher", "send_compression")
    )
    packed = f", {compression}" if compression not in ("", "none") else ""
    shown = f"{key.get_algorithm()} {key.get_fingerprint()}" if key is not None else ""
    accepted = "verified" if key_known else "accepted at this login"
    return [
        _finding("reachability", FindingState.OK, f"connected and logged in {took}"),
        _finding("SSH server", FindingState.INFO, f"{server} ({cipher}{packed})"),
        _finding("host key", FindingState.OK, f"{shown}, {accepted}"),
        _finding("login", FindingState.OK, f"as {user}. {tried}"),
        _finding("pipelined login", FindingState.INFO, neutralise(transport.pipelining.report())),
    ]


async def sessions_finding(transport: Transport) -> Finding:
    """Say how many commands run at a time on one connection: ccb needs one, a copy in a session a second."""
    from ccb.tunnel.openssh.openssh_transport import OpenSshTransport
    from ccb.tunnel.ssh.asyncssh_transport import SshTransport

    if not isinstance(transport, SshTransport | OpenSshTransport):
        return Finding(HOST, "MaxSessions", FindingState.INFO, "not tested: there is no SSH connection to share")
    async with contextlib.AsyncExitStack() as stack:
        more = sum(await asyncio.gather(*(_one_more(transport, stack) for _ in range(_MORE_SESSIONS))))
    if isinstance(transport, SshTransport) and transport.has_more:
        found = f"fewer than {_MORE_SESSIONS + 1} at a time on one connection; ccb opens more connections"
        return Finding(HOST, "MaxSessions", FindingState.INFO, found)
    several = f"{more + 1} or more" if more == _MORE_SESSIONS else str(more + 1)
    return Finding(HOST, "MaxSessions", FindingState.INFO, f"{several} at a time on one connection; ccb needs one")


async def _one_more(transport: Transport, stack: contextlib.AsyncExitStack) -> bool:
    """Start a command that runs until `stack` closes it. Return whether it prints its mark: so it runs."""
    mark = secrets.token_hex(8).encode()
    with contextlib.suppress(CcbError, TimeoutError):
        async with asyncio.timeout(_COMMAND_S):
            pipe = await transport.execute(
                f"exec /bin/sh -c 'echo {mark.decode()}; PATH=$PATH:/usr/bin:/bin; exec cat'"
            )
            stack.push_async_callback(_close, pipe)
            output = b""
            while data := await pipe.read():
                output = output[-len(mark) :] + data
                if mark in output:
                    return True
    return False


async def _close(pipe: Pipe) -> None:
    with contextlib.suppress(CcbError):
        await pipe.close()


def default_keys() -> list[Path]:
    """Return the key files that ssh tries if none is named. They may not exist."""
    return [_ssh_directory() / name for name in DEFAULT_KEYS]


def _ssh_directory() -> Path:
    """Return the directory `.ssh` as ssh finds it: ssh ignores HOME."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh"
    except KeyError:
        return Path.home() / ".ssh"


def keys_finding(where: str, paths: Sequence[Path]) -> Finding:
    """Check the private key files: which exist, whether they have a passphrase, whether others can read them."""
    lines, problems = [], []
    usual = (_ssh_directory(), Path.home() / ".ssh")  # without OpenSSH, ccb looks in the second
    for path in dict.fromkeys(paths):
        try:
            mode = path.stat().st_mode
        except OSError as error:
            if not (path.parent in usual and path.name.startswith("id_")):  # nobody named it
                problems.append(f"{path}: {error.strerror}")
            continue
        kind = _kind(path)
        lines.append(f"{path}: {kind}")
        if mode & (stat.S_IRWXG | stat.S_IRWXO) and not kind.startswith("public"):
            problems.append(f"{path} can be read by others, so ssh does not use it: chmod 600 {path}")
    text = "\n".join([*lines, *problems]) or "no key files: only an agent or a password can log in"
    if problems:
        fix = "Correct these files, or name others with -i or IdentityFile."
        return Finding(where, "keys", FindingState.WARN, text, fix)
    return Finding(where, "keys", FindingState.OK if lines else FindingState.INFO, text)


def _kind(path: Path) -> str:
    import asyncssh

    try:
        asyncssh.read_private_key(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        if "passphrase" in str(error).lower():
            return "with passphrase"
        with contextlib.suppress(ValueError):
            asyncssh.read_public_key(path)
            return "public key only: the agent must hold the private key"
        return "not a private key"
    return "without passphrase"


async def master_finding(config: HostConfig, target: SshTarget, *, allowed: bool) -> Finding | None:
    """Return what becomes of the master for `target`, or None. `allowed`: the settings let ccb use it."""
    socket, problem = config.control_path, master_problem(config, target)
    if socket is None or problem is None:
        return None
    if not allowed:
        problem = "controlMaster is false in the settings"
    if problem:
        return _finding(_NAME, FindingState.INFO, f"{socket} is not used: {problem}")
    trial = MasterTrial(socket, target, config, NobodyToAsk(), _no_login)
    began = time.monotonic()
    try:
        pipe = await trial.answering("exec /bin/sh -c 'echo in'")
    except CcbError:
        pipe = None
    finally:
        await trial.close()
    if pipe is None:
        text = f"{socket} does not answer within {ANSWER_S:g} s: each session waits that long, then logs in"
        return _finding(_NAME, FindingState.WARN, text, f"End it: `ssh -O exit {target.shown}`.")
    took_ms = (time.monotonic() - began) * 1000
    text = f"{socket} answers within {took_ms:.0f} ms: sessions go over it without a login"
    return _finding(_NAME, FindingState.OK, text)


async def kept_finding(configs: Sequence[HostConfig], target: SshTarget, keep_s: float) -> Finding:
    """Return what becomes of the connection to `target` after a run, with keepConnection in the settings."""
    route = KeptRoute(configs, target, keep_s, _no_login)
    if problem := await not_kept(route, kept_directory(os.environ)):
        return _finding("kept connection", FindingState.INFO, f"none is kept: {problem}")
    kept = read_record(kept_directory(os.environ) / f"{key_of(configs, target.host)}.json")
    if kept is None:
        text = f"none yet: the next login is kept for {keep_s / 60:g} minutes (keepConnection)"
    else:
        text = f"kept for {kept.left_s / 60:.0f} more minutes; `ccb disconnect {target.shown}` ends it"
    return _finding("kept connection", FindingState.INFO, text)


async def _no_login() -> Transport:
    raise AssertionError("a check of the master does not log in")
