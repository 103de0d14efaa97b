"""What the client that drives a session adds to it: its MCP servers, and the fields of its `initialize` request."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from ccb.tunnel.wire import SessionOptions
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.kinds.mcp import LAPTOP_MCP_MESSAGE, MCP_MESSAGE
from ccb.tunnel.wire.requests import RequestRefused

from ...agent.announced import Announced
from ...agent.deps import AgentConfig
from ...agent.limits.run_limits import Budget, StructuredOutput
from ...ports import Broker
from ...tools.registry import ToolRegistry

if TYPE_CHECKING:
    from ...mcp.servers import McpServers

Json = dict[str, Any]


@dataclass(frozen=True)
class Initialize:
    """The fields of an `initialize` request that change the session, under the names of its options. `hooks`: the
    request has hooks."""

    options: Json = field(default_factory=dict)
    hooks: bool = False

    @staticmethod
    def read(fields: Json) -> Initialize:
        """Read a request. Unknown fields are for other versions. Raise RequestRefused."""
        options: Json = {}
        texts = fields.get("systemPrompt")
        if texts is not None:
            parts = texts if isinstance(texts, list) else [texts]
            options["system_prompt"] = "\n\n".join(_text(each, "systemPrompt") for each in parts)
        if fields.get("appendSystemPrompt") is not None:
            options["append_system_prompt"] = _text(fields["appendSystemPrompt"], "appendSystemPrompt")
        for name, option in (("agents", "agents"), ("jsonSchema", "json_schema"), ("hooks", "client_hooks")):
            value = fields.get(name)
            if value is None:
                continue
            if not isinstance(value, dict):
                raise RequestRefused(f"{name} must be an object")
            options[option] = value
        servers = fields.get("sdkMcpServers")
        if servers is not None:
            if not isinstance(servers, list):
                raise RequestRefused("sdkMcpServers must be a list")
            options["client_mcp"] = [_text(each, "sdkMcpServers") for each in servers]
        return Initialize(options, "client_hooks" in options)


class ClientSetup:
    """The MCP servers of a session. They are loaded when the first one is named."""

    def __init__(self, registry: ToolRegistry, broker: Broker, announced: Announced) -> None:
        self._registry = registry
        self._broker = broker
        self._announced = announced
        self._servers: McpServers | None = None

    def use(self, options: SessionOptions) -> None:
        """Connect the servers inside the client and on the laptop that `options` name, and drop the others."""
        if not (options.client_mcp or options.laptop_mcp) and self._servers is None:
            return
        from ...mcp.channels import RequestChannel
        from ...mcp.servers import IN_CLIENT, ON_LAPTOP

        for place, kind, names in (
            (IN_CLIENT, MCP_MESSAGE, options.client_mcp),
            (ON_LAPTOP, LAPTOP_MCP_MESSAGE, options.laptop_mcp),
        ):
            self.servers.use(place, {name: RequestChannel(self._broker, kind, name) for name in names})

    @property
    def servers(self) -> McpServers:
        """The servers of the session, from whatever place."""
        if self._servers is None:
            from ...mcp.servers import McpServers

            self._servers = McpServers(self._registry)
            self._announced.add("mcp_servers", self._servers.summary)
        return self._servers

    @property
    def status(self) -> list[Json]:
        """What clients are told about each server."""
        return self._servers.status() if self._servers is not None else []

    async def settle(self, options: SessionOptions, patience_s: float | None = None) -> None:
        """Return when every server that `options` name is connected or has failed, or after `patience_s`. A server
        inside the client that had failed is tried again."""
        self.use(options)
        if self._servers is not None:
            for each in self._servers.status():
                if each["status"] == "failed" and each["name"] in options.client_mcp:
                    self._servers.reconnect(each["name"])
            await self._servers.ready(patience_s)

    async def close(self) -> None:
        """Stop connecting."""
        if self._servers is not None:
            await self._servers.close()


def demanded(config: AgentConfig, options: SessionOptions, cost: float) -> AgentConfig:
    """Return the configuration with what a client demands of each turn. `cost` is what the session has cost so far.
    Raise ValueError for a schema that is not one of objects."""
    structured, schema = config.structured, options.json_schema
    if schema is None:
        if structured is not None:
            config.tools.remove([structured.name])
        structured = None
    else:
        if schema.get("type", "object") != "object":
            raise ValueError("the JSON schema must be one of an object")
        schema = {"type": "object", **schema}
        if structured is None or structured.input_schema != schema:
            structured = StructuredOutput(schema)
            config.tools.add([structured])
    limit = options.max_budget_usd
    budget = Budget(limit, cost + limit) if limit is not None else None
    if structured is config.structured and budget == config.budget:
        return config
    return replace(config, structured=structured, budget=budget)


def _text(value: object, name: str) -> str:
    if not isinstance(value, str):
        raise RequestRefused(f"{name} must be text")
    return value
