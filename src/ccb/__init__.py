"""ccb: a coding agent that lives on the remote machine, its terminal and its secrets on the laptop."""

__version__ = "0.1.0"

VERSION_ANSWER = f"2.1.329 (Claude Code compatible: ccb {__version__})"
"""The answer to `ccb --version`. The official clients read the number at its start: it is
`tunnel.wire.session_options.CLAUDE_CODE_VERSION`, which cannot be imported here."""
