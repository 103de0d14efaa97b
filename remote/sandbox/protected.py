"""Files of a project that act outside of a cage later: what git, agents, editors and shells take from it by
themselves."""

from __future__ import annotations

import os
from collections.abc import Sequence

_NAMES = (
    *(".git", ".claude", "CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", ".mcp.json", ".codex", ".gemini", "GEMINI.md"),
    *(".cursor", ".cursorrules", ".aider.conf.yml", ".vscode", ".idea", ".envrc", ".gitmodules", ".gitconfig"),
    *(".bashrc", ".bash_profile", ".profile", ".zshrc", ".zprofile", ".ripgreprc", ".ccb"),
)


def protected_paths(directories: Sequence[str]) -> tuple[str, ...]:
    """Return the paths in these directories that a command in the cage for the workspace may not change or create."""
    return tuple(os.path.join(directory, name) for directory in directories for name in _NAMES)
