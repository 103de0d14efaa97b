"""Read the configuration of MCP servers."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from ccb.tunnel.errors import ConfigError, UsageError
from ccb.tunnel.wire.mcp_messages import LIMIT_VARIABLE, SERVER_NAME, filled_in, limit_of

from ..command_line.option_values import shortened

Json = dict[str, object]


def mcp_servers(configs: Sequence[str]) -> dict[str, Json]:
    """Return the servers of JSON texts or files by name; a later one replaces others. Raises UsageError."""
    servers: dict[str, Json] = {}
    for config in configs:
        try:
            text = config if config.lstrip().startswith("{") else Path(config).expanduser().read_text(encoding="utf-8")
            found = json.loads(text)
        except (OSError, ValueError, RecursionError) as error:
            what = f"--mcp-config {shortened(config)}: it cannot be read"
            raise UsageError(what, evidence=str(error)[:200]) from None
        given = found.get("mcpServers") if isinstance(found, dict) else None
        if not isinstance(given, dict) or not all(isinstance(server, dict) for server in given.values()):
            raise UsageError(
                f"--mcp-config {shortened(config)}: it has no object mcpServers with one object for each server",
                do='Write {"mcpServers": {"name": {"type": "sdk", "name": "name"}}}.',
            )
        servers.update(given)
    return servers


class _Server(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    timeout: object = None  # milliseconds for a call. Anything but a number counts as if it were not there.

    @property
    def call_s(self) -> float:
        return limit_of(self.timeout, os.environ.get(LIMIT_VARIABLE))


class StdioServer(_Server):
    type: Literal["stdio"] = "stdio"
    command: str
    args: list[str] = Field(default_factory=list)
    env: dict[str, str] = Field(default_factory=dict)

    @property
    def reached(self) -> str:
        """What patterns of a policy are about."""
        return shlex.join([self.command, *self.args])

    @property
    def shown(self) -> str:
        names = "".join(f"{name}=… " for name in self.env)
        return f"{names}{' '.join([self.command, *self.args])}"


class OAuthClient(BaseModel):
    """What a server that registers no clients wants to know: ccb's id there, and the port to come back to."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    clientId: str = ""
    callbackPort: int = Field(default=0, ge=0, le=65535)


class HttpServer(_Server):
    type: Literal["http"]
    url: str = Field(pattern=r"^https?://")
    headers: dict[str, str] = Field(default_factory=dict)
    oauth: OAuthClient | None = None

    @property
    def reached(self) -> str:
        return self.url

    @property
    def shown(self) -> str:
        """The address, for the person. It leaves out the values of headers, because they may be secrets."""
        return " ".join([self.url, *(f"{name}: …" for name in self.headers)])


ServerConfig = StdioServer | HttpServer
_ADAPTER: TypeAdapter[ServerConfig] = TypeAdapter(Annotated[ServerConfig, Field(discriminator="type")])


def server_configs(
    described: Mapping[str, Mapping[str, object]], environ: Mapping[str, str] = os.environ
) -> dict[str, ServerConfig]:
    """Return the servers of this laptop, not of an SDK client."""
    own = {name: each for name, each in described.items() if each.get("type") != "sdk"}
    return {name: server_config(name, each, environ) for name, each in own.items()}


def server_config(name: str, described: Mapping[str, object], environ: Mapping[str, str]) -> ServerConfig:
    if not SERVER_NAME.fullmatch(name):
        raise _wrong(name, "a name has letters, digits, - and single _ between them, at most 64 characters")
    try:
        return _ADAPTER.validate_python(_expanded({"type": "stdio", **described}, environ))
    except KeyError as error:
        raise _wrong(name, f"the variable {error.args[0]} is not set") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"][1:])
        raise _wrong(name, f"{where}: {first['msg']}" if where else str(first["msg"])) from None


def _wrong(name: str, reason: str) -> ConfigError:
    return ConfigError(
        f"the MCP server {name!r} is not configured correctly",
        evidence=reason,
        do="Correct mcpServers in your settings, or remove the server: ccb mcp remove NAME",
    )


def _expanded(value: object, environ: Mapping[str, str]) -> object:
    if isinstance(value, str):
        return filled_in(value, environ)
    if isinstance(value, list):
        return [_expanded(each, environ) for each in value]
    if isinstance(value, Mapping):
        return {name: _expanded(each, environ) for name, each in value.items()}
    return value
