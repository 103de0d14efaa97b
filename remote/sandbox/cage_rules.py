"""What cages allow, and the table of protected names."""

from __future__ import annotations

import enum
import os
import sys
from collections.abc import Collection, Mapping, Sequence

from ccb.tunnel.wire.dataclass import dataclass

_SYSTEM = """/usr /bin /sbin /lib /lib32 /lib64 /libx32 /opt /nix/store /gnu/store /run/current-system /snap
    /etc/alternatives /etc/profiles"""
_BESIDE = {  # by directories with a `bin` on PATH: what may be read beside it, as they also hold passwords
    "/.cargo": ("../.rustup", "config.toml", "env"),
    "/.local": ("lib", "share/uv", "share/pipx", "pipx", "share/mise/installs", "share/pnpm"),
    "/go": ("pkg/mod",),
    **dict.fromkeys(("/.docker", "/.fly", "/.azure", "/.aws", "/.kube", "/.gem", "/.npm", "/.config", "/.rd"), ()),
    "/.krew": ("store",),
    "/.composer": ("vendor",),
}
_MAX_SIBLINGS = 4000


def program_directories(excluded: Sequence[str], environ: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return the directories of programs, which hold nothing `excluded` but with a whole one of the system."""
    home = os.path.realpath(home) if os.path.isabs(home) else ""
    found = [*map(os.path.realpath, _SYSTEM.split()), *_of_login(excluded, environ, home)]
    existing = [each for each in dict.fromkeys(found) if os.path.exists(each)]
    outer = [each for each in existing if not any(_is_in(each, other) for other in existing if other != each)]
    return tuple(dict.fromkeys(part for each in outer for part in _without(each, excluded)))


def _of_login(excluded: Sequence[str], environ: Mapping[str, str], home: str) -> list[str]:
    """Return the tool chains on PATH, and the worker's own Python, unless they are in an excluded directory."""
    found = []
    for each in environ.get("PATH", os.defpath).split(os.pathsep):
        if os.path.isabs(each) and not any(_is_in(os.path.realpath(each), root) for root in excluded):
            found += _tool_chain(os.path.realpath(each), home)
    for prefix in map(os.path.realpath, (sys.base_prefix, sys.prefix)):
        if not _is_in(home, prefix) and not any(_is_in(prefix, root) for root in excluded):
            found.append(prefix)
    return found


def _tool_chain(directory: str, home: str) -> list[str]:
    """Return what programs in a directory of PATH need: what is above `bin`, unless it holds other things, too."""
    above = os.path.dirname(directory)
    for ending, names in _BESIDE.items():
        if above == home + ending:
            return [directory, *(os.path.normpath(os.path.join(above, name)) for name in names)]
    if above == "/" or _is_in(home, above) or os.path.basename(directory) not in ("bin", "sbin", "shims"):
        return [directory]
    return [above]


def _without(directory: str, excluded: Sequence[str]) -> list[str]:
    """Return paths that cover a directory without the excluded ones in it: rules of the kernel only allow."""
    inner = [each for each in excluded if _is_in(each, directory) and each != directory]
    if not inner:
        return [directory]
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    paths = [os.path.join(directory, name) for name in names[:_MAX_SIBLINGS]]
    return [part for path in paths if path not in inner for part in _without(path, inner)]


def _is_in(path: str, directory: str) -> bool:
    return bool(path) and (path == directory or path.startswith(directory.rstrip("/") + "/"))


def found_outside(name: str, env: Mapping[str, str], tops: Sequence[str]) -> str | None:
    import shutil

    places = [place for place in env.get("PATH", os.defpath).split(os.pathsep) if os.path.isabs(place)]
    outside = [each for each in places if not f"{os.path.realpath(each)}/".startswith(tuple(f"{top}/" for top in tops))]
    return shutil.which(name, path=os.pathsep.join(outside))


class Kind(enum.Enum):
    """What files of a name do. A directory of a tool counts with all that is in it."""

    STARTS = "starts programs or holds credentials"
    PROGRAMS = "starts programs"
    INSTRUCTS = "instructs agents"
    DIRECTORY = "is a directory of a tool"
    OTHER = "acts where somebody has set it up"
    HARMLESS = "acts on nobody by itself"


@dataclass(frozen=True)
class Row:
    """Names of one kind, with blanks between them, and who says so. What is there cannot be changed while a command
    runs, and what is new is set aside unless it is harmless. At the top of a session's directory, a command cannot even
    make what is `barred`, nor change what is `fixed`, whatever its kind is. `starts` and `ends` are in lower case. Of
    `inside`, only that needs approval."""

    kind: Kind
    source: str
    names: str = ""
    barred: bool = False
    fixed: bool = False
    starts: str = ""
    ends: str = ""
    inside: str = ""


_LEFTHOOK = " ".join(
    f"{start}lefthook{local}.{end}"
    for start, local in (("", ""), ("", "-local"), (".", ""), (".", "-local"))
    for end in ("yml", "yaml", "toml", "json", "jsonc")
)
_ROWS = (
    Row(Kind.DIRECTORY, "git(1)", ".git", barred=True),
    Row(Kind.DIRECTORY, "Claude Code: settings", ".claude", barred=True, inside="settings hooks commands agents skills"
        " plugins rules output-styles"),
    Row(Kind.INSTRUCTS, "Claude Code, AGENTS.md, Gemini", "CLAUDE.md CLAUDE.local.md AGENTS.md GEMINI.md", barred=True),
    Row(Kind.STARTS, "MCP: .mcp.json of a project", ".mcp.json", barred=True),
    Row(Kind.DIRECTORY, "Codex, Gemini, Cursor, VS Code, JetBrains: settings and tasks of a project", ".codex .gemini"
        " .cursor .vscode .idea", barred=True),
    Row(Kind.STARTS, "direnv(1)", ".envrc", barred=True),
    Row(Kind.OTHER, "asdf and mise: versions, ripgrep: a configuration that is named", ".tool-versions .ripgreprc",
        fixed=True),
    Row(Kind.STARTS, "bash(1), dash(1), ksh(1)", ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases"
        " .profile .kshrc .mkshrc .shrc .inputrc"),
    Row(Kind.STARTS, "zsh(1)", ".zshrc .zshenv .zprofile .zlogin .zlogout"),
    Row(Kind.STARTS, "tcsh(1), login(1), xonsh: run control files", ".login .logout .cshrc .tcshrc .xonshrc"),
    Row(Kind.STARTS, "Xsession(5), startx(1)", ".xprofile .xsessionrc .xsession .xinitrc"),
    Row(Kind.STARTS, "pam_env(8), sshd(8), sendmail: aliases(5)", ".pam_environment .rhosts .shosts .k5login .forward"),
    Row(Kind.STARTS, "git-config(1), gitmodules(5)", ".gitconfig .gitmodules"),
    Row(Kind.STARTS, "curl(1), wget(1), netrc(5), psql(1), sqlite3(1)", ".netrc .pgpass .psqlrc .sqliterc .curlrc"
        " .wgetrc"),
    Row(Kind.STARTS, "npm: npmrc; Python packaging: .pypirc", ".npmrc .pypirc"),
    Row(Kind.STARTS, "autoenv, zsh-autoenv: README, RVM: .rvmrc", ".autoenv .autoenv.zsh .autoenv_leave.zsh .rvmrc"),
    Row(Kind.STARTS, "Claude Code: ~/.claude.json", ".claude.json"),
    Row(Kind.PROGRAMS, "Vim and Neovim: 'exrc', Emacs: directory variables", ".exrc _exrc .vimrc _vimrc .gvimrc"
        " _gvimrc .nvimrc .nvim.lua .dir-locals.el .dir-locals-2.el .emacs .ycm_extra_conf.py .vimspector.json"
        " .lvimrc"),
    Row(Kind.PROGRAMS,
        "gdb, lldb, pdb, GHCi, OCaml, R: Startup, Octave, irb, pry, iex(1): read in the current directory", ".gdbinit"
        " .lldbinit .pdbrc .pdbrc.py .ghci .ocamlinit .rprofile .renviron .rdata .octaverc .irbrc .pryrc .iex.exs"),
    Row(Kind.PROGRAMS, "Yarn, pnpm, Bun: hooks, plugins and preloads of the configuration", ".yarnrc .yarnrc.yml"
        " .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js bunfig.toml .bunfig.toml"),
    Row(Kind.PROGRAMS, "pre-commit, prek, Lefthook, Overcommit, simple-git-hooks, husky 4", ".pre-commit-config.yaml"
        f" prek.toml {_LEFTHOOK} .overcommit.yml .simple-git-hooks.json .simple-git-hooks.js .simple-git-hooks.cjs"
        " simple-git-hooks.json simple-git-hooks.js simple-git-hooks.cjs .huskyrc .huskyrc.json .huskyrc.js"),
    Row(Kind.PROGRAMS, "mise: configuration", "mise.toml mise.local.toml rtx.toml rtx.local.toml"
        " .mise.toml .mise.local.toml .rtx.toml .rtx.local.toml"),
    Row(Kind.PROGRAMS, "Eclipse: builders of .project; Mercurial: hgrc(5); tmux(1), screen(1)", ".project .hgrc"
        " .tmux.conf .screenrc"),
    Row(Kind.INSTRUCTS, "AGENTS.md, Claude Code, Codex, Gemini, Qwen, Crush, Warp, Copilot", "agent.md"
        " agents.override.md qwen.md crush.md warp.md copilot-instructions.md"),
    Row(Kind.INSTRUCTS, "Cursor, Windsurf, Cline, Roo, Goose, Aider, Zed, Augment: rules and hints", ".cursorrules"
        " .windsurfrules .clinerules .roorules .roomodes .goosehints .aider.conf.yml .aider.model.settings.yml .rules"
        " .augment-guidelines"),
    Row(Kind.INSTRUCTS, "OpenCode, Crush: configuration of a project", "opencode.json opencode.jsonc .opencode.json"
        " crush.json .crush.json"),
    Row(Kind.DIRECTORY, "ssh(1), gpg(1)", ".ssh .gnupg"),
    Row(Kind.DIRECTORY, "Mercurial: hgrc(5), Sapling, Jujutsu before 0.38, Darcs, Pijul, Breezy: hooks of a repository",
        ".hg .sl .jj _darcs .pijul .bzr"),
    Row(Kind.DIRECTORY, "husky, git: core.hooksPath by convention, Lefthook", ".husky .githooks .git-hooks .lefthook"
        " .lefthook-local"),
    Row(Kind.DIRECTORY,
        "nix-direnv, devenv: direnvrc evaluates its cache; Devbox: generated hooks; Flox: activation by cd", ".direnv"
        " .devenv .devbox .flox"),
    Row(Kind.DIRECTORY,
        "VS Code, JetBrains, Zed, Fleet, Visual Studio, Helix, Nova, Eclipse: tasks and settings of a project", ".zed"
        " .fleet .vs .helix .nova .settings"),
    Row(Kind.DIRECTORY, "containers.dev: development containers; Build Server Protocol: .bsp", ".devcontainer"
        " .devcontainer.json .bsp"),
    Row(Kind.DIRECTORY, "Cargo, Maven, mise: configuration of a project", ".cargo .mvn .mise"),
    Row(Kind.DIRECTORY, "agents: the directory of each in a project", ".opencode .windsurf .continue .roo .kiro .qwen"
        " .crush .goose .amazonq .augment .junie .trae .factory .openhands .cline .kilocode .agents .agent .warp"
        " .copilot"),
    Row(Kind.PROGRAMS, "VS Code, Sublime Text: tasks and build systems of a workspace", ends=".code-workspace"
        " .sublime-project"),
    Row(Kind.INSTRUCTS, "Copilot: .github/instructions, prompts, chatmodes and agents", ends=".instructions.md"
        " .prompt.md .chatmode.md .agent.md"),
    Row(Kind.HARMLESS, "git: data about files", ".gitattributes .gitkeep .keep .mailmap .git-blame-ignore-revs"),
    Row(Kind.HARMLESS, "results of a tool, which makes them again", ".angular .ansible .astro .aws-sam .benchmarks"
        " .build .buildinfo .config.old .coverage .dart_tool .depend .deps .dirstamp .doctrees .docusaurus .eggs"
        " .elixir_ls .expo .gradle .hypothesis .ipynb_checkpoints .jekyll-metadata .kotlin .libs .metals .molecule"
        " .netlify .next .ninja_deps .ninja_log .nitro .nox .nuxt .nx .nyc_output .objs .output .pdm-build"
        " .pdm-python .pio .pyre .pytype .react-router .rhistory .rproj.user .rspec_status .ruby-lsp .scannerwork"
        " .serverless .shadow-cljs .stack-work .svelte-kit .swiftpm .tanstack .tox .turbo .venv .vercel .version"
        " .vinxi .virtual_documents .vite .vitest .wireit .wrangler"),
    Row(Kind.HARMLESS, "packages, which act where the project's own code does", ".bundle .lake .pixi .pnp.cjs"
        " .pnp.loader.mjs .pnpm-store .terraform .yarn"),
    Row(Kind.HARMLESS, "acts when somebody runs its tool on the project, as a Makefile does", ".bazelrc"
        " .browserslistrc .changeset .clang-format .clang-tidy .coveragerc .editorconfig .flake8 .formatter.exs"
        " .golangci.yaml .golangci.yml .isort.cfg .jshintrc .nycrc .oxlintrc.json .pylintrc .rspec .rubocop.yml"
        " .rustfmt.toml .standard.yml .storybook .style.yapf .swcrc .swiftlint.yml .yamllint .yamllint.yaml"
        " .yamllint.yml"),
    Row(Kind.HARMLESS, "the version of a language or a tool", ".bazelversion .go-version .java-version .node-version"
        " .nvmrc .python-version .ruby-version .terraform-version"),
    Row(Kind.HARMLESS, "acts on a server, after a push", ".circleci .codecov.yml .forgejo .gitea .github .gitlab"
        " .gitlab-ci.yml .readthedocs.yaml .readthedocs.yml .travis.yml"),
    Row(Kind.HARMLESS, "Kconfig: a file; what acts in a directory of this name is listed by its own name", ".config",
        fixed=True),
    Row(Kind.HARMLESS, "data", ".ds_store .env .metadata .nojekyll .well-known"),
    Row(Kind.HARMLESS, "families of configuration", starts=".babelrc. .coverage. .env. .eslintrc .mocharc. .postcssrc"
        " .prettierrc .stylelintrc"),
    Row(Kind.HARMLESS, "temporary files", starts=".# .ccb- .fuse_hidden .nfs .temp .terraform. .tmp .~lock.",
        ends="cache ignore _history .bak .cmd .lock .log .o.d .orig .pid .tmp ~ .swn .swo .swp .swx"),
)  # fmt: skip


AT_THE_TOP = tuple(name for row in _ROWS if row.barred for name in row.names.split())
AT_TOP_IF_THERE = tuple(name for row in _ROWS if row.fixed for name in row.names.split())
_HARMLESS = [row for row in _ROWS if row.kind is Kind.HARMLESS]
_ACTING = [row for row in _ROWS if row.kind not in (Kind.HARMLESS, Kind.OTHER)]
_HARMLESS_NAMES = frozenset(name.casefold() for row in _HARMLESS for name in row.names.split())
_HARMLESS_STARTS = tuple(start for row in _HARMLESS for start in row.starts.split())
_HARMLESS_ENDS = tuple(end for row in _HARMLESS for end in row.ends.split())
_BY_NAME = {name.casefold(): row for row in _ACTING for name in row.names.split()}
_BY_END = {end: row for row in _ACTING for end in row.ends.split()}
_ENDS = tuple(_BY_END)

SET_ASIDE = ".stopped-by-ccb"  # what the name of a file that was set aside ends with, or goes on with

REPOSITORY_HEAD = "HEAD"  # the file without which git takes no directory for a repository

NAMES_IN_REPOSITORY = (REPOSITORY_HEAD, "commondir", "objects", "refs")


def why_protected(path: str) -> str:
    """Return why writing a path with these names needs the approval of a person anywhere, "" if it does not."""
    parts = [part for part in path.casefold().split("/") if part] or [""]
    for part, below in zip(parts, [*parts[1:], ""]):
        row = _BY_NAME.get(part)
        if row is None:
            continue
        if row.kind is Kind.DIRECTORY and not row.inside:
            return f"it is inside {part}"
        if row.inside and below.startswith(tuple(row.inside.split())):
            return "it sets up the agent itself"
    last = parts[-1]
    row = _BY_NAME.get(last) or next((row for end, row in _BY_END.items() if last.endswith(end)), None)
    return f"{last} {row.kind.value}" if row is not None and not row.inside else ""


def acts_later(name: str) -> bool:
    """Return whether a file or directory of this name acts outside of a cage later, in any directory."""
    lower = name.casefold()
    return lower in _BY_NAME or lower.endswith(_ENDS)


def is_unknown(name: str) -> bool:
    """Return whether it looks like the file of a tool not in the table. At the top, that counts as acting later."""
    lower = name.casefold()
    harmless = lower in _HARMLESS_NAMES or lower.startswith(_HARMLESS_STARTS) or lower.endswith(_HARMLESS_ENDS)
    return lower.startswith(".") and not harmless and SET_ASIDE not in lower and not acts_later(name)


def is_repository(names: Collection[str]) -> bool:
    """Return whether git takes a directory with these names in it for a repository, whatever its own name is."""
    return REPOSITORY_HEAD in names and ("commondir" in names or {"objects", "refs"} <= set(names))


class CageKind(enum.Enum):
    READ_ONLY = "read-only"
    WORKSPACE = "workspace"


@dataclass(frozen=True)
class CageRules:
    """A cage. `read`, `write` and `execute` are paths with all below; the latter two may be read. `protected` are paths
    below `write` that stay, `linked` files there with names elsewhere. `own`: the command is a program of ccb."""

    kind: CageKind
    read: tuple[str, ...]
    write: tuple[str, ...]
    execute: tuple[str, ...]
    protected: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    network: bool = False
    own: bool = False


_READ = """/proc /dev/zero /dev/full /dev/random /dev/urandom /sys/devices/system/cpu /sys/devices/system/node
    /sys/fs/cgroup /sys/kernel/mm/transparent_hugepage /run/systemd/resolve /var/lib/sss/mc /var/lib/dpkg
    /var/lib/rpm /var/cache/man /usr/share /nix/var/nix/profiles"""

_READ_IN_ETC = """X11 adduser.conf alternatives apache2/mime.types bash.bashrc bash_completion.d bashrc
    ca-certificates ca-certificates.conf crypto-policies csh.cshrc debian_version default/locale emacs environment
    ethertypes fish fonts gai.conf gitattributes gitconfig groff group host.conf hostname hosts inputrc iproute2
    issue java ld-musl-aarch64.path ld-musl-x86_64.path ld.so.cache ld.so.conf ld.so.conf.d ld.so.preload
    locale.alias locale.conf locale.gen localtime login.defs lsb-release machine-id magic magic.mime mailcap
    man_db.conf manpath.config maven mercurial mime.types mtab netconfig networks nsswitch.conf openssl os-release
    passwd perl php pki/ca-trust pki/tls/cert.pem pki/tls/certs pki/tls/openssl.cnf profile profile.d protocols R
    redhat-release resolv.conf rpc rpm services shells ssl/cert.pem ssl/certs ssl/openssl.cnf static subversion
    system-release terminfo texmf timezone vim vimrc wgetrc xdg xml zsh zshenv zshrc"""
_FAMILIES_IN_ETC = ("ImageMagick", "java-", "python")  # the beginnings of names with a version in them

_SYSTEM_PLACES = ("/etc", "/boot", "/lib", "/usr/lib", "/var/spool")

_READ_IN_HOME = (".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes")  # git insists


def read_only_rules(tops: Sequence[str], environ: Mapping[str, str], home: str) -> CageRules:
    """Return the cage of commands that only read `tops`; `environ` and `home` are those of the login."""
    own = tuple(dict.fromkeys(os.path.realpath(each) for each in tops))
    execute = program_directories(own, environ, home)
    read = (*own, *_outside(_system(), execute), *_configuration(environ, home))
    return CageRules(CageKind.READ_ONLY, read, (), execute)


def workspace_rules(tops: Sequence[str], environ: Mapping[str, str], home: str, network: bool = False) -> CageRules:
    """Return the cage of commands that may change `tops`, but nothing that acts outside of it later."""
    own = tuple(dict.fromkeys(os.path.realpath(each) for each in tops))
    execute = program_directories((), environ, home)
    read = (*_outside(_system(), execute), *_configuration(environ, home))
    return CageRules(CageKind.WORKSPACE, read, own, execute, network=network)


def holds_home(directories: Sequence[str], home: str) -> bool:
    """Return whether one of the directories holds the home directory, where too much acts outside of a cage later."""
    real = os.path.realpath(home) if os.path.isabs(home) else ""
    return any(_is_in(real, os.path.realpath(each)) for each in directories)


def acts_later_at(directory: str, environ: Mapping[str, str], home: str) -> str:
    """Return why what is in a real path acts outside of a cage later by its place, "" if it does not."""
    own = os.path.realpath(home) if os.path.isabs(home) else ""
    hidden = directory[len(own) + 1 :].partition("/")[0] if own and directory.startswith(own + "/") else ""
    if hidden.startswith("."):
        return f"programs find what they start or obey in ~/{hidden}"
    named = [environ.get(f"XDG_{each}_HOME", "") for each in ("CONFIG", "DATA", "STATE", "CACHE")]
    for place in (*named, *environ.get("PATH", "").split(os.pathsep), *_SYSTEM_PLACES):
        real = os.path.realpath(place).rstrip("/") if os.path.isabs(place) else ""
        if real and f"{directory}/".startswith(f"{real}/"):
            return f"programs find what they start or obey in {place}"
    return ""


def _system() -> tuple[str, ...]:
    families = [name for name in os.listdir("/etc") if name.startswith(_FAMILIES_IN_ETC)]
    return (*_READ.split(), *(f"/etc/{name}" for name in (*_READ_IN_ETC.split(), *families)))


def _configuration(environ: Mapping[str, str], home: str) -> tuple[str, ...]:
    found = []
    for each in (home, environ.get("HOME", "")):  # they differ where HOME was set for one login
        if os.path.isabs(each):
            found += [os.path.join(each, name) for name in _READ_IN_HOME]
    configuration = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configuration):
        found += [os.path.join(configuration, "git", name) for name in ("config", "ignore", "attributes")]
    return tuple(dict.fromkeys(found))


def _outside(paths: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return the paths that exist, but for those that are in one of the other directories: each rule takes time."""
    return [path for path in paths if os.path.lexists(path) and not any(path.startswith(each + "/") for each in others)]
