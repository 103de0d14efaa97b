"""`ccb doctor` on the host: check everything that could keep a session from running, with evidence and one thing to
do."""

from __future__ import annotations

from typing import Callable

from ..findings import HostFinding
from ..report import Reports

_Check = Callable[[], "list[HostFinding]"]


def examine(reports: Reports, bundle: str) -> None:
    """Report the result of each check as soon as it is done. Then answer the laptop's measurements until the laptop
    ends them."""
    from . import storage, system
    from .network_probe import serve
    from .sandbox import sandbox

    checks: list[tuple[str, _Check]] = [
        ("system", system.system),
        ("user", system.user),
        ("worker python", system.python),
        ("login shell", system.login_shell),
        ("directories", storage.directories),
        ("bundle cache", lambda: storage.bundle_cache(bundle)),
        ("sessions", storage.running_sessions),
        ("limits", system.limits),
        ("memory", system.memory),
        ("logout", system.logout),
        ("sshd settings", system.sshd_settings),
        ("sandbox", sandbox),
        ("tools", system.tools),
        ("locale", system.locale_names),
        ("secrets", system.secrets),
    ]
    for name, check in checks:
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
            text = "this check failed: %s: %s" % (type(error).__name__, error)
            found = [HostFinding(name, "warn", text, "Run with --debug and report it.")]
        for each in found:
            reports.check(each)
    serve(reports)
