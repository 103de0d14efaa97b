"""What the pipelined login and the limits of a flood need of asyncssh beyond its documented interface.

Its tests run against the oldest and the newest asyncssh that ccb supports. Where a name or a parameter is not there,
ccb does not use its own SSH: no flood would have a limit.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import asyncssh
from asyncssh.auth import ClientAuth
from asyncssh.channel import SSHClientChannel

_PARAMETERS: tuple[tuple[type, str, str], ...] = (
    (asyncssh.SSHClientConnection, "__init__", "loop options acceptor error_handler wait"),
    (asyncssh.SSHClientConnection, "send_service_request", "service"),
    (asyncssh.SSHClientConnection, "send_packet", "pkttype args handler"),
    (asyncssh.SSHClientConnection, "try_next_auth", "next_method"),
    (asyncssh.SSHClientConnection, "send_userauth_request", "method args key trivial"),
    (asyncssh.SSHClientConnection, "get_server_host_key", ""),
    (asyncssh.SSHClientConnection, "set_extra_info", "kwargs"),
    (asyncssh.SSHClientConnectionOptions, "construct", "options kwargs"),
    (ClientAuth, "__init__", "conn method"),
    (ClientAuth, "_start", ""),
    (ClientAuth, "send_request", "args key trivial"),
    (ClientAuth, "auth_succeeded", ""),
    (ClientAuth, "auth_failed", ""),
    (SSHClientChannel, "__init__", "conn loop utf8_decode_errors encoding errors window max_pktsize"),
    (
        SSHClientChannel,
        "create",
        "session_factory command subsystem env request_pty term_type term_size term_modes x11_forwarding x11_display"
        " x11_auth_path x11_single_connection agent_forwarding",
    ),
    (SSHClientChannel, "_open", "chantype args"),
    (SSHClientChannel, "process_open_confirmation", "send_chan send_window send_pktsize packet"),
    (SSHClientChannel, "_accept_data", "data datatype"),
    (SSHClientChannel, "_deliver_data", "data datatype"),
    (SSHClientChannel, "_flush_recv_buf", "exc"),
    (SSHClientChannel, "_flush_send_buf", ""),
    (SSHClientChannel, "_pause_resume_writing", ""),
    (asyncssh.SSHClientConnection, "pause_writing", ""),
    (asyncssh.SSHClientConnection, "resume_writing", ""),
    (asyncssh.SSHClientConnection, "_send_deferred_packets", ""),
    (asyncssh.SSHClientConnection, "_force_close", "exc"),
    (asyncssh.SSHClientConnection, "send_newkeys", "k h"),
    (asyncssh.SSHClientProcess, "connection_made", "chan"),
    (asyncssh.SSHClientProcess, "data_received", "data datatype"),
)

_ATTRIBUTES: tuple[tuple[type, str, str], ...] = (
    (asyncssh.SSHClientConnection, "_auth", "try_next_auth"),
    (asyncssh.SSHClientConnection, "_auth_complete", "send_packet"),
    (asyncssh.SSHClientConnection, "_kex_complete", "send_packet"),
    (asyncssh.SSHClientConnection, "_channels", "add_channel"),
    (asyncssh.SSHClientConnection, "_next_decompressor", "send_newkeys"),
    (asyncssh.SSHClientConnection, "_global_request_queue", "_process_global_request"),
    (SSHClientChannel, "_send_chan", "process_open_confirmation"),
    (SSHClientChannel, "_send_buf", "_flush_send_buf"),
    (SSHClientChannel, "_recv_buf", "_accept_data"),
    (SSHClientChannel, "_recv_window", "_process_data"),
    (SSHClientChannel, "_recv_state", "_process_data"),
    (SSHClientChannel, "_init_recv_window", "get_recv_window"),
    (SSHClientChannel, "_session", "_deliver_data"),
    (asyncssh.SSHClientProcess, "_limit", "connection_made"),
    (asyncssh.SSHClientProcess, "_recv_buf", "feed_recv_buf"),
    (asyncssh.SSHClientProcess, "_recv_buf_len", "feed_recv_buf"),
)
"""Attributes of instances, each with the method that sets it."""


def unexpected() -> str:
    """Return what is not as ccb needs it, "" if everything is."""
    for owner, name, parameters in _PARAMETERS:
        method = getattr(owner, name, None)
        if method is None or _parameters(method) != parameters.split():
            return f"{owner.__name__}.{name}"
    for owner, name, setter in _ATTRIBUTES:
        code = inspect.unwrap(getattr(owner, setter)).__code__
        if name not in code.co_names:
            return f"{owner.__name__}.{name}"
    if "waiter" not in inspect.get_annotations(asyncssh.SSHClientConnectionOptions.__mro__[1]):
        return "SSHConnectionOptions.waiter"
    return ""


def _parameters(method: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(method).parameters if name != "self"]
