"""`doctor`: what of this host could be in the way of a session, with evidence and one way out each."""

from __future__ import annotations

from typing import Callable

from .findings import Finding
from .report import Reports

_Check = Callable[[], "list[Finding]"]


def examine(reports: Reports, bundle: str) -> None:
    """Report every check as it is done, then serve the laptop's measurements until it has enough."""
    from . import doctor_storage, doctor_system
    from .measuring import serve

    checks: list[tuple[str, _Check]] = [
        ("system", doctor_system.system),
        ("user", doctor_system.user),
        ("worker python", doctor_system.python),
        ("login shell", doctor_system.login_shell),
        ("directories", doctor_storage.directories),
        ("bundle cache", lambda: doctor_storage.bundle_cache(bundle)),
        ("sessions", doctor_storage.running_sessions),
        ("limits", doctor_system.limits),
        ("memory", doctor_system.memory),
        ("logout", doctor_system.logout),
        ("sshd settings", doctor_system.sshd_settings),
        ("tools", doctor_system.tools),
        ("locale", doctor_system.locale_names),
        ("secrets", doctor_system.secrets),
    ]
    for name, check in checks:
        try:
            found = check()
        except Exception as error:  # noqa: BLE001 - one check that fails must not hide the others
            text = "this check failed: %s: %s" % (type(error).__name__, error)
            found = [Finding(name, "warn", text, "Run with --debug and report it.")]
        for each in found:
            reports.check(each)
    serve(reports)
