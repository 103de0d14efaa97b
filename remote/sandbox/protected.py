"""The names of what acts outside of a cage later: what git, agents, editors, shells and tools take from a directory by
themselves. The cage for the workspace keeps commands from them, and file tools ask before they write them."""

from __future__ import annotations

import enum
from collections.abc import Collection

from ccb.tunnel.wire.dataclass import dataclass


class Kind(enum.Enum):
    """What files of a name do. A directory of a tool counts with all that is in it."""

    STARTS = "starts programs or holds credentials"
    PROGRAMS = "starts programs"
    INSTRUCTS = "instructs agents"
    DIRECTORY = "is a directory of a tool"
    OTHER = "acts where somebody has set it up"
    HARMLESS = "acts on nobody by itself"


class AtTop(enum.Enum):
    """What holds for the names of a row in a session's directory, where people and agents begin, while a command runs.
    Elsewhere, and for DEFAULT, what is there cannot be changed and what is new is set aside, unless it is harmless."""

    MAY_NOT_BE_MADE = "the command cannot even make it"
    MAY_NOT_CHANGE = "the command cannot change it, whatever its kind is"
    DEFAULT = "as elsewhere"


@dataclass(frozen=True)
class Row:
    """Names of one kind, and who says so or why. `starts` and `ends` are those of names in lower case. In a directory
    with `inside`, only what begins with these words needs the approval of a person."""

    kind: Kind
    source: str
    names: tuple[str, ...] = ()
    at_top: AtTop = AtTop.DEFAULT
    starts: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    inside: tuple[str, ...] = ()


_TOP = AtTop.MAY_NOT_BE_MADE
_ROWS = (
    Row(Kind.DIRECTORY, "git(1)", (".git",), _TOP),
    Row(Kind.DIRECTORY, "Claude Code: settings", (".claude",), _TOP, inside=("settings", "hooks", "commands",
        "agents", "skills", "plugins", "rules", "output-styles")),
    Row(Kind.INSTRUCTS, "Claude Code, AGENTS.md, Gemini", ("CLAUDE.md", "CLAUDE.local.md", "AGENTS.md", "GEMINI.md"),
        _TOP),
    Row(Kind.STARTS, "MCP: .mcp.json of a project", (".mcp.json",), _TOP),
    Row(Kind.DIRECTORY, "Codex, Gemini, Cursor, VS Code, JetBrains: settings and tasks of a project", (".codex",
        ".gemini", ".cursor", ".vscode", ".idea"), _TOP),
    Row(Kind.STARTS, "direnv(1)", (".envrc",), _TOP),
    Row(Kind.OTHER, "asdf and mise: versions, ripgrep: a configuration that is named", (".tool-versions",
        ".ripgreprc"), AtTop.MAY_NOT_CHANGE),
    Row(Kind.STARTS, "bash(1), dash(1), ksh(1)", (".bashrc", ".bash_profile", ".bash_login", ".bash_logout",
        ".bash_aliases", ".profile", ".kshrc", ".mkshrc", ".shrc", ".inputrc")),
    Row(Kind.STARTS, "zsh(1)", (".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout")),
    Row(Kind.STARTS, "tcsh(1), login(1), xonsh: run control files", (".login", ".logout", ".cshrc", ".tcshrc",
        ".xonshrc")),
    Row(Kind.STARTS, "Xsession(5), startx(1)", (".xprofile", ".xsessionrc", ".xsession", ".xinitrc")),
    Row(Kind.STARTS, "pam_env(8), sshd(8), sendmail: aliases(5)", (".pam_environment", ".rhosts", ".shosts",
        ".k5login", ".forward")),
    Row(Kind.STARTS, "git-config(1), gitmodules(5)", (".gitconfig", ".gitmodules")),
    Row(Kind.STARTS, "curl(1), wget(1), netrc(5), psql(1), sqlite3(1)", (".netrc", ".pgpass", ".psqlrc", ".sqliterc",
        ".curlrc", ".wgetrc")),
    Row(Kind.STARTS, "npm: npmrc; Python packaging: .pypirc", (".npmrc", ".pypirc")),
    Row(Kind.STARTS, "autoenv, zsh-autoenv: README, RVM: .rvmrc", (".autoenv", ".autoenv.zsh", ".autoenv_leave.zsh",
        ".rvmrc")),
    Row(Kind.STARTS, "Claude Code: ~/.claude.json", (".claude.json",)),
    Row(Kind.PROGRAMS, "Vim and Neovim: 'exrc', Emacs: directory variables", (".exrc", "_exrc", ".vimrc", "_vimrc",
        ".gvimrc", "_gvimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".dir-locals-2.el", ".emacs",
        ".ycm_extra_conf.py", ".vimspector.json", ".lvimrc")),
    Row(Kind.PROGRAMS,
        "gdb, lldb, pdb, GHCi, OCaml, R: Startup, Octave, irb, pry, iex(1): read in the current directory",
        (".gdbinit", ".lldbinit", ".pdbrc", ".pdbrc.py", ".ghci", ".ocamlinit", ".rprofile", ".renviron", ".rdata",
        ".octaverc", ".irbrc", ".pryrc", ".iex.exs")),
    Row(Kind.PROGRAMS, "Yarn, pnpm, Bun: hooks, plugins and preloads of the configuration", (".yarnrc", ".yarnrc.yml",
        ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js", "bunfig.toml", ".bunfig.toml")),
    Row(Kind.PROGRAMS, "pre-commit, prek, Lefthook, Overcommit, simple-git-hooks, husky 4",
        (".pre-commit-config.yaml", "prek.toml", *(f"{dot}lefthook{local}.{end}" for dot in ("", ".") for local in
        ("", "-local") for end in ("yml", "yaml", "toml", "json", "jsonc")), ".overcommit.yml",
        ".simple-git-hooks.json", ".simple-git-hooks.js", ".simple-git-hooks.cjs", "simple-git-hooks.json",
        "simple-git-hooks.js", "simple-git-hooks.cjs", ".huskyrc", ".huskyrc.json", ".huskyrc.js")),
    Row(Kind.PROGRAMS, "mise: configuration", tuple(f"{dot}{name}{local}.toml" for dot in ("", ".") for name in
        ("mise", "rtx") for local in ("", ".local"))),
    Row(Kind.PROGRAMS, "Eclipse: builders of .project; Mercurial: hgrc(5); tmux(1), screen(1)", (".project", ".hgrc",
        ".tmux.conf", ".screenrc")),
    Row(Kind.INSTRUCTS, "AGENTS.md, Claude Code, Codex, Gemini, Qwen, Crush, Warp, Copilot", ("agent.md",
        "agents.override.md", "qwen.md", "crush.md", "warp.md", "copilot-instructions.md")),
    Row(Kind.INSTRUCTS, "Cursor, Windsurf, Cline, Roo, Goose, Aider, Zed, Augment: rules and hints", (".cursorrules",
        ".windsurfrules", ".clinerules", ".roorules", ".roomodes", ".goosehints", ".aider.conf.yml",
        ".aider.model.settings.yml", ".rules", ".augment-guidelines")),
    Row(Kind.INSTRUCTS, "OpenCode, Crush: configuration of a project", ("opencode.json", "opencode.jsonc",
        ".opencode.json", "crush.json", ".crush.json")),
    Row(Kind.DIRECTORY, "ssh(1), gpg(1)", (".ssh", ".gnupg")),
    Row(Kind.DIRECTORY,
        "Mercurial: hgrc(5), Sapling, Jujutsu before 0.38, Darcs, Pijul, Breezy: hooks of a repository", (".hg",
        ".sl", ".jj", "_darcs", ".pijul", ".bzr")),
    Row(Kind.DIRECTORY, "husky, git: core.hooksPath by convention, Lefthook", (".husky", ".githooks", ".git-hooks",
        ".lefthook", ".lefthook-local")),
    Row(Kind.DIRECTORY,
        "nix-direnv, devenv: direnvrc evaluates its cache; Devbox: generated hooks; Flox: activation by cd",
        (".direnv", ".devenv", ".devbox", ".flox")),
    Row(Kind.DIRECTORY,
        "VS Code, JetBrains, Zed, Fleet, Visual Studio, Helix, Nova, Eclipse: tasks and settings of a project",
        (".zed", ".fleet", ".vs", ".helix", ".nova", ".settings")),
    Row(Kind.DIRECTORY, "containers.dev: development containers; Build Server Protocol: .bsp", (".devcontainer",
        ".devcontainer.json", ".bsp")),
    Row(Kind.DIRECTORY, "Cargo, Maven, mise: configuration of a project", (".cargo", ".mvn", ".mise")),
    Row(Kind.DIRECTORY, "agents: the directory of each in a project", (".opencode", ".windsurf", ".continue", ".roo",
        ".kiro", ".qwen", ".crush", ".goose", ".amazonq", ".augment", ".junie", ".trae", ".factory", ".openhands",
        ".cline", ".kilocode", ".agents", ".agent", ".warp", ".copilot")),
    Row(Kind.PROGRAMS, "VS Code, Sublime Text: tasks and build systems of a workspace", ends=(".code-workspace",
        ".sublime-project")),
    Row(Kind.INSTRUCTS, "Copilot: .github/instructions, prompts, chatmodes and agents", ends=(".instructions.md",
        ".prompt.md", ".chatmode.md", ".agent.md")),
    Row(Kind.HARMLESS, "git: data about files", (".gitattributes", ".gitkeep", ".keep", ".mailmap",
        ".git-blame-ignore-revs")),
    Row(Kind.HARMLESS, "results of a tool, which makes them again", (".angular", ".ansible", ".astro", ".aws-sam",
        ".benchmarks", ".build", ".buildinfo", ".config.old", ".coverage", ".dart_tool", ".depend", ".deps",
        ".dirstamp", ".doctrees", ".docusaurus", ".eggs", ".elixir_ls", ".expo", ".gradle", ".hypothesis",
        ".ipynb_checkpoints", ".jekyll-metadata", ".kotlin", ".libs", ".metals", ".molecule", ".netlify", ".next",
        ".ninja_deps", ".ninja_log", ".nitro", ".nox", ".nuxt", ".nx", ".nyc_output", ".objs", ".output",
        ".pdm-build", ".pdm-python", ".pio", ".pyre", ".pytype", ".react-router", ".rhistory", ".rproj.user",
        ".rspec_status", ".ruby-lsp", ".scannerwork", ".serverless", ".shadow-cljs", ".stack-work", ".svelte-kit",
        ".swiftpm", ".tanstack", ".tox", ".turbo", ".venv", ".vercel", ".version", ".vinxi", ".virtual_documents",
        ".vite", ".vitest", ".wireit", ".wrangler")),
    Row(Kind.HARMLESS, "packages, which act where the project's own code does", (".bundle", ".lake", ".pixi",
        ".pnp.cjs", ".pnp.loader.mjs", ".pnpm-store", ".terraform", ".yarn")),
    Row(Kind.HARMLESS, "acts when somebody runs its tool on the project, as a Makefile does", (".bazelrc",
        ".browserslistrc", ".changeset", ".clang-format", ".clang-tidy", ".coveragerc", ".editorconfig", ".flake8",
        ".formatter.exs", ".golangci.yaml", ".golangci.yml", ".isort.cfg", ".jshintrc", ".nycrc", ".oxlintrc.json",
        ".pylintrc", ".rspec", ".rubocop.yml", ".rustfmt.toml", ".standard.yml", ".storybook", ".style.yapf",
        ".swcrc", ".swiftlint.yml", ".yamllint", ".yamllint.yaml", ".yamllint.yml")),
    Row(Kind.HARMLESS, "the version of a language or a tool", (".bazelversion", ".go-version", ".java-version",
        ".node-version", ".nvmrc", ".python-version", ".ruby-version", ".terraform-version")),
    Row(Kind.HARMLESS, "acts on a server, after a push", (".circleci", ".codecov.yml", ".forgejo", ".gitea",
        ".github", ".gitlab", ".gitlab-ci.yml", ".readthedocs.yaml", ".readthedocs.yml", ".travis.yml")),
    Row(Kind.HARMLESS, "Kconfig: a file; what acts in a directory of this name is listed by its own name",
        (".config",), AtTop.MAY_NOT_CHANGE),
    Row(Kind.HARMLESS, "data", (".ds_store", ".env", ".metadata", ".nojekyll", ".well-known")),
    Row(Kind.HARMLESS, "families of configuration", starts=(".babelrc.", ".coverage.", ".env.", ".eslintrc",
        ".mocharc.", ".postcssrc", ".prettierrc", ".stylelintrc")),
    Row(Kind.HARMLESS, "temporary files", starts=(".#", ".ccb-", ".fuse_hidden", ".nfs", ".temp", ".terraform.",
        ".tmp", ".~lock."), ends=("cache", "ignore", "_history", ".bak", ".cmd", ".lock", ".log", ".o.d", ".orig",
        ".pid", ".tmp", "~", ".swn", ".swo", ".swp", ".swx")),
)  # fmt: skip


def _named(at_top: AtTop) -> tuple[str, ...]:
    return tuple(name for row in _ROWS if row.at_top is at_top for name in row.names)


AT_THE_TOP = _named(AtTop.MAY_NOT_BE_MADE)
AT_THE_TOP_IF_THERE = _named(AtTop.MAY_NOT_CHANGE)
_HARMLESS = [row for row in _ROWS if row.kind is Kind.HARMLESS]
_ACTING = [row for row in _ROWS if row.kind not in (Kind.HARMLESS, Kind.OTHER)]
_HARMLESS_NAMES = frozenset(name.casefold() for row in _HARMLESS for name in row.names)
_HARMLESS_STARTS = tuple(start for row in _HARMLESS for start in row.starts)
_HARMLESS_ENDS = tuple(end for row in _HARMLESS for end in row.ends)
_BY_NAME = {name.casefold(): row for row in _ACTING for name in row.names}
_BY_END = {end: row for row in _ACTING for end in row.ends}
_ENDS = tuple(_BY_END)

SET_ASIDE = ".stopped-by-ccb"
"""What the name of a file that was set aside ends with, or goes on with."""

REPOSITORY_HEAD = "HEAD"
"""The file without which git takes no directory for a repository."""

NAMES_IN_REPOSITORY = (REPOSITORY_HEAD, "commondir", "objects", "refs")


def why_protected(path: str) -> str:
    """Return why writing a path with these names needs the approval of a person wherever it is, "" if it does not.
    Letter case does not count."""
    parts = [part for part in path.casefold().split("/") if part]
    for part, below in zip(parts, [*parts[1:], ""]):
        row = _BY_NAME.get(part)
        if row is not None and row.kind is Kind.DIRECTORY and not row.inside:
            return f"it is inside {part}"
        if row is not None and row.inside and below.startswith(row.inside):
            return "it sets up the agent itself"
    last = parts[-1] if parts else ""
    row = _BY_NAME.get(last) or next((row for end, row in _BY_END.items() if last.endswith(end)), None)
    return f"{last} {row.kind.value}" if row is not None and not row.inside else ""


def acts_later(name: str) -> bool:
    """Return whether a file or directory of this name acts outside of a cage later, in any directory."""
    lower = name.casefold()
    return lower in _BY_NAME or lower.endswith(_ENDS)


def is_unknown(name: str) -> bool:
    """Return whether a name looks like the file of a tool that is not in the table. At the top of a project, such a
    file counts as one that acts later."""
    lower = name.casefold()
    harmless = lower in _HARMLESS_NAMES or lower.startswith(_HARMLESS_STARTS) or lower.endswith(_HARMLESS_ENDS)
    return lower.startswith(".") and not harmless and SET_ASIDE not in lower and not acts_later(name)


def is_repository(names: Collection[str]) -> bool:
    """Return whether git takes a directory with these names in it for a repository, whatever its own name is."""
    return REPOSITORY_HEAD in names and ("commondir" in names or {"objects", "refs"} <= set(names))
