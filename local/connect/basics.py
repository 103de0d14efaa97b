"""What every connection needs of this machine: the settings, and the worker's bundle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ccb.deploy import bundle
from ccb.deploy.bundle import Bundle

from ..config.settings import Settings, load_settings, settings_path


@dataclass(frozen=True)
class Basics:
    """`warnings` are sentences about the settings file."""

    settings: Settings
    warnings: tuple[str, ...]
    bundle: Bundle


def load_basics(environ: Mapping[str, str]) -> Basics:
    """Read the settings, build or read the bundle. Raises ConfigError."""
    settings = load_settings(environ)
    return Basics(settings, tuple(settings.warnings(settings_path(environ))), bundle.load())
