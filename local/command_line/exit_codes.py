"""The exit codes of `ccb`, one enum for every command."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Documented in the README; a test compares the two tables."""

    OK = 0
    AGENT_FAILED = (
        1  # the model or the agent failed, a turn was interrupted by request, no such session, doctor: something blocks
    )
    USAGE = 2  # wrong flag, wrong target, wrong combination
    PERMISSION_DENIED = 3  # ended well, but a tool call was denied as nobody could be asked; or one waits for an answer
    LIMIT_REACHED = 4  # --max-turns
    NO_SUCH_PATH = 66  # the directory does not exist on the host
    UNREACHABLE = 69  # name does not resolve, port closed, time-out, channel refused
    INTERNAL = 70  # a bug in ccb; the log file is named
    NO_PYTHON = 72  # the host has no Python >= 3.9
    NO_STORAGE = 73  # home or runtime directory not usable, disk full
    LINK_LOST = 75  # the connection was lost in the middle; the session may go on
    PROTOCOL = 76  # worker and laptop do not understand each other
    AUTH_FAILED = 77  # SSH authentication or model credential refused
    CONFIG = 78  # settings file, ssh_config or credential store unusable
    HOST_KEY = 79  # host key unknown (headless) or changed
    INTERRUPTED = 130  # SIGINT
    HANGUP = 129  # SIGHUP
    TERMINATED = 143  # SIGTERM
