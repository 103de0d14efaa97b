"""Where a cloud is asked for models: its region and project, from the settings or the variables of its own tools."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ccb.tunnel.errors import ConfigError

from ..config.provider_settings import ProviderSettings

_NAME = re.compile(r"[a-z0-9][a-z0-9.:-]{0,62}")
_REGIONS = {"bedrock": ("AWS_REGION", "AWS_DEFAULT_REGION"), "vertex": ("CLOUD_ML_REGION",)}
_PROJECTS = ("ANTHROPIC_VERTEX_PROJECT_ID", "GOOGLE_CLOUD_PROJECT")


def region_of(kind: str, own: ProviderSettings, environ: Mapping[str, str]) -> str:
    """Return the region of a cloud, "" if it is not set. Raise ConfigError for what cannot be one."""
    return own.region or _first(_REGIONS.get(kind, ()), environ)


def project_of(own: ProviderSettings, environ: Mapping[str, str]) -> str:
    """Return the project of Vertex, "" for that of the credentials. Raise ConfigError for what cannot be one."""
    return own.project or _first(_PROJECTS, environ)


def cloud_base(kind: str, own: ProviderSettings, environ: Mapping[str, str]) -> str:
    """Return the base URL of a cloud, "" for a provider that is none. Raise ConfigError if its place is not known."""
    if kind == "bedrock":
        region = region_of(kind, own, environ)
        if not region:
            raise ConfigError("the region of Bedrock is not known", do="Set AWS_REGION, or providers.bedrock.region.")
        return f"https://bedrock-runtime.{region}.amazonaws.com"
    if kind == "vertex":
        from ccb.tunnel.proxy.providers.clouds.vertex import vertex_base

        return vertex_base(region_of(kind, own, environ) or "global")
    if kind == "foundry" and (resource := _first(("ANTHROPIC_FOUNDRY_RESOURCE",), environ)):
        return f"https://{resource}.services.ai.azure.com/anthropic"
    return ""


def _first(names: tuple[str, ...], environ: Mapping[str, str]) -> str:
    """Return the first of these variables that is set. It becomes a part of a host's name, so it must look like one."""
    for name in names:
        value = environ.get(name, "").strip()
        if value and not _NAME.fullmatch(value):
            raise ConfigError(f"{name} is no name of a region, a project or a resource", do=f"Correct {name}.")
        if value:
            return value
    return ""
