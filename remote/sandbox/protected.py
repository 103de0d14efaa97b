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

_STARTS, _PROGRAMS = "starts programs or holds credentials", "starts programs"
_INSTRUCTS, _INSIDE = "instructs agents", "is a directory of a tool"

_TABLE: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    # what a name does, who says so, and the names in lower case
    (_STARTS, "bash(1), dash(1), ksh(1)", (".bashrc", ".bash_profile", ".bash_login", ".bash_logout", ".bash_aliases",
        ".profile", ".kshrc", ".mkshrc", ".shrc", ".inputrc")),
    (_STARTS, "zsh(1)", (".zshrc", ".zshenv", ".zprofile", ".zlogin", ".zlogout")),
    (_STARTS, "tcsh(1), login(1), xonsh: run control files", (".login", ".logout", ".cshrc", ".tcshrc", ".xonshrc")),
    (_STARTS, "Xsession(5), startx(1)", (".xprofile", ".xsessionrc", ".xsession", ".xinitrc")),
    (_STARTS, "pam_env(8), sshd(8), sendmail: aliases(5)", (".pam_environment", ".rhosts", ".shosts", ".k5login",
        ".forward")),
    (_STARTS, "git-config(1), gitmodules(5)", (".gitconfig", ".gitmodules")),
    (_STARTS, "curl(1), wget(1), netrc(5), psql(1), sqlite3(1)", (".netrc", ".pgpass", ".psqlrc", ".sqliterc",
        ".curlrc", ".wgetrc")),
    (_STARTS, "npm: npmrc; Python packaging: .pypirc", (".npmrc", ".pypirc")),
    (_STARTS, "direnv(1), autoenv, zsh-autoenv: README, RVM: .rvmrc", (".envrc", ".autoenv", ".autoenv.zsh",
        ".autoenv_leave.zsh", ".rvmrc")),
    (_STARTS, "MCP: .mcp.json of a project; Claude Code: ~/.claude.json", (".mcp.json", ".claude.json")),
    (_PROGRAMS, "Vim and Neovim: 'exrc', Emacs: directory variables", (".exrc", "_exrc", ".vimrc", "_vimrc", ".gvimrc",
        "_gvimrc", ".nvimrc", ".nvim.lua", ".dir-locals.el", ".dir-locals-2.el", ".emacs", ".ycm_extra_conf.py",
        ".vimspector.json", ".lvimrc")),
    (_PROGRAMS, "gdb, lldb, pdb, GHCi, OCaml, R: Startup, Octave, irb, pry, iex(1): read in the current directory",
        (".gdbinit", ".lldbinit", ".pdbrc", ".pdbrc.py", ".ghci", ".ocamlinit", ".rprofile", ".renviron", ".rdata",
        ".octaverc", ".irbrc", ".pryrc", ".iex.exs")),
    (_PROGRAMS, "Yarn, pnpm, Bun: hooks, plugins and preloads of the configuration", (".yarnrc", ".yarnrc.yml",
        ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpmfile.js", "bunfig.toml", ".bunfig.toml")),
    (_PROGRAMS, "pre-commit, prek, Lefthook, Overcommit, simple-git-hooks, husky 4", (".pre-commit-config.yaml",
        "prek.toml", *(f"{dot}lefthook{local}.{end}" for dot in ("", ".") for local in ("", "-local")
        for end in ("yml", "yaml", "toml", "json", "jsonc")), ".overcommit.yml", ".simple-git-hooks.json",
        ".simple-git-hooks.js", ".simple-git-hooks.cjs", "simple-git-hooks.json", "simple-git-hooks.js",
        "simple-git-hooks.cjs", ".huskyrc", ".huskyrc.json", ".huskyrc.js")),
    (_PROGRAMS, "mise: configuration", tuple(f"{dot}{name}{local}.toml" for dot in ("", ".") for name in ("mise", "rtx")
        for local in ("", ".local"))),
    (_PROGRAMS, "Eclipse: builders of .project; Mercurial: hgrc(5); tmux(1), screen(1)", (".project", ".hgrc",
        ".tmux.conf", ".screenrc")),
    (_INSTRUCTS, "AGENTS.md, Claude Code, Codex, Gemini, Qwen, Crush, Warp, Copilot", ("claude.md", "claude.local.md",
        "agents.md", "agent.md", "agents.override.md", "gemini.md", "qwen.md", "crush.md", "warp.md",
        "copilot-instructions.md")),
    (_INSTRUCTS, "Cursor, Windsurf, Cline, Roo, Goose, Aider, Zed, Augment: rules and hints", (".cursorrules",
        ".windsurfrules", ".clinerules", ".roorules", ".roomodes", ".goosehints", ".aider.conf.yml",
        ".aider.model.settings.yml", ".rules", ".augment-guidelines")),
    (_INSTRUCTS, "OpenCode, Crush: configuration of a project", ("opencode.json", "opencode.jsonc", ".opencode.json",
        "crush.json", ".crush.json")),
    (_INSIDE, "git(1), ssh(1), gpg(1)", (".git", ".ssh", ".gnupg")),
    (_INSIDE, "Mercurial: hgrc(5), Sapling, Jujutsu before 0.38, Darcs, Pijul, Breezy: hooks of a repository", (".hg",
        ".sl", ".jj", "_darcs", ".pijul", ".bzr")),
    (_INSIDE, "husky, git: core.hooksPath by convention, Lefthook", (".husky", ".githooks", ".git-hooks",
        ".lefthook", ".lefthook-local")),
    (_INSIDE, "nix-direnv, devenv: direnvrc evaluates its cache; Devbox: generated hooks; Flox: activation by cd",
        (".direnv", ".devenv", ".devbox", ".flox")),
    (_INSIDE, "VS Code, JetBrains, Zed, Fleet, Visual Studio, Helix, Nova, Eclipse: tasks and settings of a project",
        (".vscode", ".idea", ".zed", ".fleet", ".vs", ".helix", ".nova", ".settings")),
    (_INSIDE, "containers.dev: development containers; Build Server Protocol: .bsp", (".devcontainer",
        ".devcontainer.json", ".bsp")),
    (_INSIDE, "Cargo, Maven, mise: configuration of a project", (".cargo", ".mvn", ".mise")),
    (_INSIDE, "agents: the directory of each in a project", (".cursor", ".codex", ".gemini", ".opencode", ".windsurf",
        ".continue", ".roo", ".kiro", ".qwen", ".crush", ".goose", ".amazonq", ".augment", ".junie", ".trae",
        ".factory", ".openhands", ".cline", ".kilocode", ".agents", ".agent", ".warp", ".copilot")),
)  # fmt: skip
_HARMLESS: tuple[tuple[str, tuple[str, ...]], ...] = (
    # why a new name with a dot may stay in a session's directory, and the names in lower case
    ("git: data about files", (".gitattributes", ".gitkeep", ".keep", ".mailmap", ".git-blame-ignore-revs")),
    ("results of a tool, which makes them again", (".angular", ".ansible", ".astro", ".aws-sam", ".benchmarks",
        ".build", ".buildinfo", ".config.old", ".coverage", ".dart_tool", ".depend", ".deps", ".dirstamp", ".doctrees",
        ".docusaurus", ".eggs", ".elixir_ls", ".expo", ".gradle", ".hypothesis", ".ipynb_checkpoints",
        ".jekyll-metadata", ".kotlin", ".libs", ".metals", ".molecule", ".netlify", ".next", ".ninja_deps",
        ".ninja_log", ".nitro", ".nox", ".nuxt", ".nx", ".nyc_output", ".objs", ".output", ".pdm-build", ".pdm-python",
        ".pio", ".pyre", ".pytype", ".react-router", ".rhistory", ".rproj.user", ".rspec_status", ".ruby-lsp",
        ".scannerwork", ".serverless", ".shadow-cljs", ".stack-work", ".svelte-kit", ".swiftpm", ".tanstack", ".tox",
        ".turbo", ".venv", ".vercel", ".version", ".vinxi", ".virtual_documents", ".vite", ".vitest", ".wireit",
        ".wrangler")),
    ("packages, which act where the project's own code does", (".bundle", ".lake", ".pixi", ".pnp.cjs",
        ".pnp.loader.mjs", ".pnpm-store", ".terraform", ".yarn")),
    ("acts when somebody runs its tool on the project, as a Makefile does", (".bazelrc", ".browserslistrc",
        ".changeset", ".clang-format", ".clang-tidy", ".coveragerc", ".editorconfig", ".flake8", ".formatter.exs",
        ".golangci.yaml", ".golangci.yml", ".isort.cfg", ".jshintrc", ".nycrc", ".oxlintrc.json", ".pylintrc", ".rspec",
        ".rubocop.yml", ".rustfmt.toml", ".standard.yml", ".storybook", ".style.yapf", ".swcrc", ".swiftlint.yml",
        ".yamllint", ".yamllint.yaml", ".yamllint.yml")),
    ("the version of a language or a tool", (".bazelversion", ".go-version", ".java-version", ".node-version", ".nvmrc",
        ".python-version", ".ruby-version", ".terraform-version")),
    ("acts on a server, after a push", (".circleci", ".codecov.yml", ".forgejo", ".gitea", ".github", ".gitlab",
        ".gitlab-ci.yml", ".readthedocs.yaml", ".readthedocs.yml", ".travis.yml")),
    ("Kconfig: a file; what acts in a directory of this name is listed by its own name", (".config",)),
    ("data", (".ds_store", ".env", ".metadata", ".nojekyll", ".well-known")),
)  # fmt: skip
_HARMLESS_NAMES = frozenset(name for _, names in _HARMLESS for name in names)
_HARMLESS_STARTS = (
    *(".babelrc.", ".coverage.", ".env.", ".eslintrc", ".mocharc.", ".postcssrc", ".prettierrc", ".stylelintrc"),
    *(".#", ".ccb-", ".fuse_hidden", ".nfs", ".temp", ".terraform.", ".tmp", ".~lock."),
)
"""The same for families of configuration, and for temporary files."""
_HARMLESS_ENDS = (
    *("cache", "ignore", "_history", ".bak", ".cmd", ".lock", ".log", ".o.d", ".orig", ".pid", ".tmp", "~"),
    *(".swn", ".swo", ".swp", ".swx"),
)
_WHY = {name: what for what, _, names in _TABLE for name in names}
_ENDINGS = (".code-workspace", ".sublime-project")
"""VS Code and Sublime Text: tasks and build systems of a workspace."""

_AGENT_PLACES = ("settings", "hooks", "commands", "agents", "skills", "plugins", "rules", "output-styles")

SET_ASIDE = ".stopped-by-ccb"
"""What the name of a file that was set aside ends with, or goes on with."""

REPOSITORY_HEAD = "HEAD"
"""The file without which git takes no directory for a repository."""

NAMES_IN_REPOSITORY = (REPOSITORY_HEAD, "commondir", "objects", "refs")


def why_protected(path: str) -> str:
    """Return why writing a path with these names needs the approval of a person wherever it is, "" if it does not.
    Letter case does not count."""
    parts = [part for part in path.casefold().split("/") if part]
    for part in parts:
        if _WHY.get(part) == _INSIDE:
            return f"it is inside {part}"
    last = parts[-1] if parts else ""
    if last in _WHY:
        return f"{last} {_WHY[last]}"
    if last.endswith(_ENDINGS):
        return f"{last} {_PROGRAMS}"
    return "it sets up the agent itself" if _sets_up_an_agent(parts) else ""


def _sets_up_an_agent(parts: Sequence[str]) -> bool:
    return any(above == ".claude" and name.startswith(_AGENT_PLACES) for above, name in zip(parts, parts[1:]))


def acts_later(name: str) -> bool:
    """Return whether a file or directory of this name acts outside of a cage later, in any directory."""
    lower = name.casefold()
    return lower in _WHY or lower == ".claude" or lower.endswith(_ENDINGS)


def is_unknown(name: str) -> bool:
    """Return whether a name belongs to a tool of which nobody knows here what it does with such a file. In the
    directory where people and their tools begin, that counts as what acts later."""
    lower = name.casefold()
    harmless = lower in _HARMLESS_NAMES or lower.startswith(_HARMLESS_STARTS) or lower.endswith(_HARMLESS_ENDS)
    return lower.startswith(".") and not harmless and SET_ASIDE not in lower and not acts_later(name)


def is_repository(names: Collection[str]) -> bool:
    """Return whether git takes a directory with these names in it for a repository, whatever its own name is."""
    return REPOSITORY_HEAD in names and ("commondir" in names or {"objects", "refs"} <= set(names))
