"""The names of what acts outside of a cage later: what git, agents, editors, shells and tools take from a directory by
themselves. The cage for the workspace keeps commands from them, and file tools ask before they write them."""

from __future__ import annotations

from collections.abc import Collection, Sequence

AT_THE_TOP = (
    *(".git", ".claude", "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".mcp.json", ".codex", ".gemini", "GEMINI.md"),
    *(".cursor", ".vscode", ".idea", ".envrc"),
)
"""What a command cannot even make in a session's directory while it runs: people and agents begin there."""

AT_THE_TOP_IF_THERE = (".tool-versions", ".ripgreprc", ".config")
"""What else a command cannot change in a session's directory. It acts only where somebody has set it up."""

_SHELL_START = {
    *(".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases", ".profile", ".inputrc", ".login"),
    *(
        ".zshrc",
        ".zshenv",
        ".zprofile",
        ".zlogin",
        ".zlogout",
        ".kshrc",
        ".cshrc",
        ".tcshrc",
        ".xprofile",
        ".xsessionrc",
    ),
    *(".gitconfig", ".gitmodules", ".netrc", ".pgpass", ".npmrc", ".pypirc", ".envrc", ".mcp.json", ".claude.json"),
}
_EDITOR_START = {".exrc", ".vimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".dir-locals-2.el", ".emacs"}
_TOOL_START = {".yarnrc", ".yarnrc.yml", ".pre-commit-config.yaml", "lefthook.yml", ".mise.toml", "mise.toml"}
_INSTRUCTIONS = {
    *("claude.md", "claude.local.md", "agents.md", "agents.override.md", "gemini.md", "copilot-instructions.md"),
    *(".cursorrules", ".windsurfrules", ".clinerules", ".aider.conf.yml"),
}
_DIRECTORIES = {
    *(".git", ".ssh", ".gnupg", ".husky", ".githooks"),
    *(".vscode", ".idea", ".zed", ".fleet", ".devcontainer"),
    *(".cursor", ".codex", ".gemini", ".opencode", ".windsurf", ".continue", ".roo", ".kiro"),
}
_AGENT_PLACES = ("settings", "hooks", "commands", "agents", "skills", "plugins", "rules", "output-styles")
_NAMES = {".claude", *_SHELL_START, *_EDITOR_START, *_TOOL_START, *_INSTRUCTIONS, *_DIRECTORIES}

REPOSITORY_HEAD = "HEAD"
"""The file without which git takes no directory for a repository."""

NAMES_IN_REPOSITORY = (REPOSITORY_HEAD, "commondir", "objects", "refs")


def why_protected(path: str) -> str:
    """Return why writing a path with these names needs the approval of a person wherever it is, "" if it does not.
    Letter case does not count."""
    parts = [part for part in path.casefold().split("/") if part]
    for part in parts:
        if part in _DIRECTORIES:
            return f"it is inside {part}"
    last = parts[-1] if parts else ""
    if last in _SHELL_START:
        return f"{last} starts programs or holds credentials"
    if last in _EDITOR_START or last in _TOOL_START:
        return f"{last} starts programs"
    if last in _INSTRUCTIONS:
        return f"{last} instructs agents"
    return "it sets up the agent itself" if _sets_up_an_agent(parts) else ""


def _sets_up_an_agent(parts: Sequence[str]) -> bool:
    return any(above == ".claude" and name.startswith(_AGENT_PLACES) for above, name in zip(parts, parts[1:]))


def acts_later(name: str) -> bool:
    """Return whether a file or directory of this name acts outside of a cage later, in any directory."""
    return name.casefold() in _NAMES


def is_repository(names: Collection[str]) -> bool:
    """Return whether git takes a directory with these names in it for a repository, whatever its own name is."""
    return REPOSITORY_HEAD in names and ("commondir" in names or {"objects", "refs"} <= set(names))
