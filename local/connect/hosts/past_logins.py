"""What the built-in SSH may know of earlier logins of this person."""

from __future__ import annotations

from collections.abc import Mapping

from ccb.tunnel.errors import ConfigError
from ccb.tunnel.ssh.pipelining.past_logins import PastLogins

from ...command_line.model import ConnectionOptions
from ...config.log import state_dir
from ...config.settings import settings_path
from ...config.settings_file import read_settings_file


def past_logins(connection: ConnectionOptions, environ: Mapping[str, str]) -> PastLogins | None:
    """Return the earlier logins, None if an option or a setting wants logins step by step.

    The login does not wait until the settings are checked. Whatever is wrong with them is told by that check.
    """
    if connection.plain_login:
        return None
    try:
        settings = read_settings_file(settings_path(environ), environ) or {}
    except ConfigError:
        return None
    if settings.get("pipelinedLogin", True) is not True:
        return None
    return PastLogins(state_dir(environ) / "logins")
