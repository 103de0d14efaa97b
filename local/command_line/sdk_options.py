"""The options that programs give to an agent of this family: the official SDKs, editors, scripts."""

from __future__ import annotations

from .option_declaration import (
    Group,
    Option,
    OptionKind,
    read_dollars,
    read_json_object,
    read_model,
    read_sources,
    read_tokens,
    read_uuid,
)

EFFORTS = ("low", "medium", "high", "xhigh", "max")
_FLAG, _VALUE, _VARIADIC = OptionKind.FLAG, OptionKind.VALUE, OptionKind.VARIADIC

SDK_OPTIONS = (
    Option(
        ("--tools",), Group.SDK, "tools", _VARIADIC,
        "Offer the model only these tools: names, `default` for all, or an empty value for none.", "names",
    ),
    Option(
        ("--json-schema",), Group.SDK, "json_schema", _VALUE,
        "End each turn with a value that fits this JSON schema; the result has it as structured_output.",
        "schema", read=read_json_object,
    ),
    Option(
        ("--agents",), Group.SDK, "agents", _VALUE,
        "Define sub-agents: a JSON object with description, prompt, tools and model for each name.",
        "json", read=read_json_object,
    ),
    Option(
        ("--agent",), Group.AGENT, "role", _VALUE,
        "Work as this agent, built-in or your own: with its prompt, its tools and its model.", "name",
    ),
    Option(
        ("--init",), Group.AGENT, "init", _FLAG,
        "Run the Setup hooks (matcher init) before a new session starts.",
    ),
    Option(
        ("--init-only",), Group.AGENT, "init_only", _FLAG,
        "Run the Setup hooks (matcher init) and the SessionStart hooks, and end without a prompt.",
    ),
    Option(
        ("--maintenance",), Group.AGENT, "maintenance", _FLAG,
        "Run the Setup hooks (matcher maintenance) before a new session starts.",
    ),
    Option(
        ("--mcp-config",), Group.SDK, "mcp_config", _VARIADIC,
        "Use these MCP servers: JSON texts, or JSON files of this machine, with an object mcpServers.", "json",
    ),
    Option(
        ("--strict-mcp-config",), Group.SDK, "strict_mcp_config", _FLAG,
        "Use only the MCP servers of --mcp-config.",
    ),
    Option(
        ("--setting-sources",), Group.SDK, "setting_sources", _VALUE,
        "Read only these settings: a list of user, project and local; an empty value reads none.",
        "names", read=read_sources,
    ),
    Option(
        ("--bare",), Group.SDK, "bare", _FLAG,
        "Let nothing count but the command line: no settings, hooks, instruction files, commands and skills, of yours "
        "or of the project (as --setting-sources with an empty value).",
    ),
    Option(
        ("--settings",), Group.SDK, "settings", _VALUE,
        "Add these settings: a JSON object, or the path of a file that holds one.", "json",
    ),
    Option(
        ("--system-prompt-file",), Group.SDK, "system_prompt_file", _VALUE,
        "Use the text of this file instead of the system prompt.", "file",
    ),
    Option(
        ("--append-system-prompt-file",), Group.SDK, "append_system_prompt_file", _VALUE,
        "Add the text of this file to the end of the system prompt.", "file",
    ),
    Option(
        ("--max-budget-usd",), Group.SDK, "max_budget_usd", _VALUE,
        "End a turn once this run has spent so many dollars on the model.", "dollars", read=read_dollars,
    ),
    Option(
        ("--fallback-model",), Group.SDK, "fallback_model", _VALUE,
        "Use this model while the chosen one is overloaded.", "model", read=read_model,
    ),
    Option(
        ("--max-thinking-tokens",), Group.SDK, "max_thinking_tokens", _VALUE,
        "Let the model think with at most this many tokens; 0 turns thinking off.", "n", read=read_tokens,
    ),
    Option(
        ("--effort",), Group.SDK, "effort", _VALUE,
        "Set how much effort the model spends: low, medium, high, xhigh or max.", "level", EFFORTS,
    ),
    Option(
        ("--include-hook-events",), Group.SDK, "include_hook_events", _FLAG,
        "With stream-json: also print when hooks start and what they answer.",
    ),
    Option(
        ("--allow-dangerously-skip-permissions",), Group.AGENT, "allow_bypass", _FLAG,
        "Let the person or a program choose the permission mode bypassPermissions later.",
    ),
    Option(
        ("--resume-session-at",), Group.SESSION, "resume_at", _VALUE,
        "With --resume: continue after this message (its UUID) and leave out what came later.",
        "uuid", read=read_uuid,
    ),
    Option(
        ("--betas",), Group.SDK, "betas", _VARIADIC,
        "Switch on these beta features of the model API, such as context-1m-2025-08-07.", "names",
    ),
    Option(
        ("--task-budget",), Group.SDK, "task_budget", _VALUE,
        "Tell the model how many tokens its task may take.", "tokens", read=read_tokens,
    ),
    Option(
        ("--thinking",), Group.SDK, "thinking", _VALUE,
        "Let the model think as much as it wants (adaptive, enabled), or not at all (disabled).",
        "mode", ("adaptive", "enabled", "disabled"),
    ),
    Option(
        ("--thinking-display",), Group.SDK, "thinking_display", _VALUE,
        "Get the model's thinking in full length, as a summary, or not at all, where the model offers that.",
        "mode", ("summarized", "omitted", "highlights"),
    ),
    Option(
        ("--no-session-persistence",), Group.SDK, "forget", _FLAG,
        "Remove the session from its host when it ends.",
    ),
    Option(
        ("--session-mirror",), Group.SDK, "mirror", _FLAG,
        "With stream-json: also print a copy of the transcript, from which SDKs fill their session stores.",
    ),
    Option(
        ("--plugin-dir",), Group.SDK, "plugin_dirs", OptionKind.REPEAT,
        "Load the plugin in this directory of the host: its commands, skills, agents, hooks and MCP servers; may be "
        "repeated.", "dir",
    ),
    Option(
        ("--debug-file",), Group.SDK, "debug_file", _VALUE,
        "Write the log of --debug to this file.", "file",
    ),
    Option(
        ("--await-initialize",), Group.SDK, "await_initialize", _FLAG,
        "With stream-json: read the first request before the session starts; its MCP servers, settings and denied "
        "tools count as those of the command line.",
    ),
    Option(
        ("--initialize-fields",), Group.SDK, "initialize_fields", _VALUE,
        "The fields of the first request that count so; ccb takes all that it finds.", "names",
    ),
    Option(
        ("--resume-drops-turn",), Group.SESSION, "drops_turn", _VALUE,
        "With --resume-session-at: refuse to go back if more than the turn of this prompt (its UUID) would be left "
        "out.", "uuid", read=read_uuid,
    ),
)  # fmt: skip
