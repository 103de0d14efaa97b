"""What a caged command may do, as values."""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping, Sequence

from ccb.tunnel.wire.dataclass import dataclass

from .programs import program_directories


class CageKind(enum.Enum):
    """The cages by the names that a person reads."""

    READ_ONLY = "read-only"
    WORKSPACE = "workspace"


@dataclass(frozen=True)
class CageRules:
    """A cage. `read`, `write` and `execute` are paths, with everything below a directory; what may be written or
    executed may also be read. `protected` are paths below `write` that stay as they are, beside what the server of the
    cages finds there; `linked` are files below `write` that are also something else outside of it. Only the cage for
    the workspace can have `network`. `own`: the command is a program of ccb (see `run_program`), which needs no Python
    but the zygote's."""

    kind: CageKind
    read: tuple[str, ...]
    write: tuple[str, ...]
    execute: tuple[str, ...]
    protected: tuple[str, ...] = ()
    linked: tuple[str, ...] = ()
    network: bool = False
    own: bool = False


_READ = (
    "/proc",
    *("/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"),
    *("/sys/devices/system/cpu", "/sys/devices/system/node", "/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage"),
    *(
        "/run/systemd/resolve",
        "/var/lib/sss/mc",
        "/var/lib/dpkg",
        "/var/lib/rpm",
        "/var/cache/man",
        "/usr/share",
        "/nix/var/nix/profiles",
    ),
)

_READ_IN_ETC = (
    *("X11", "adduser.conf", "alternatives", "apache2/mime.types", "bash.bashrc", "bash_completion.d", "bashrc"),
    *("ca-certificates", "ca-certificates.conf", "crypto-policies", "csh.cshrc", "debian_version", "default/locale"),
    *("emacs", "environment", "ethertypes", "fish", "fonts", "gai.conf", "gitattributes", "gitconfig", "groff"),
    *("group", "host.conf", "hostname", "hosts", "inputrc", "iproute2", "issue", "java", "ld-musl-aarch64.path"),
    *("ld-musl-x86_64.path", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "ld.so.preload", "locale.alias"),
    *("locale.conf", "locale.gen", "localtime", "login.defs", "lsb-release", "machine-id", "magic", "magic.mime"),
    *("mailcap", "man_db.conf", "manpath.config", "maven", "mercurial", "mime.types", "mtab", "netconfig", "networks"),
    *("nsswitch.conf", "openssl", "os-release", "passwd", "perl", "php", "pki/ca-trust", "pki/tls/cert.pem"),
    *("pki/tls/certs", "pki/tls/openssl.cnf", "profile", "profile.d", "protocols", "R", "redhat-release"),
    *("resolv.conf", "rpc", "rpm", "services", "shells", "ssl/cert.pem", "ssl/certs", "ssl/openssl.cnf", "static"),
    *("subversion", "system-release", "terminfo", "texmf", "timezone", "vim", "vimrc", "wgetrc", "xdg", "xml", "zsh"),
    *("zshenv", "zshrc"),
)
_FAMILIES_IN_ETC = ("ImageMagick", "java-", "python")
"""The beginnings of names with a version in them."""

_SYSTEM_PLACES = ("/etc", "/boot", "/lib", "/usr/lib", "/var/spool")

_READ_IN_HOME = (".gitconfig", ".config/git/config", ".config/git/ignore", ".config/git/attributes")
"""Git exits with an error where it cannot read its configuration."""


def read_only_rules(directories: Sequence[str], environ: Mapping[str, str], home: str) -> CageRules:
    """Return the cage of commands that only read: `directories` are those of the session, `environ` is the environment
    of the login, and `home` its home directory."""
    own = tuple(dict.fromkeys(os.path.realpath(each) for each in directories))
    execute = program_directories(own, environ, home)
    read = (*own, *_outside(_system(), execute), *_configuration(environ, home))
    return CageRules(CageKind.READ_ONLY, read, (), execute)


def workspace_rules(
    directories: Sequence[str], environ: Mapping[str, str], home: str, network: bool = False
) -> CageRules:
    """Return the cage of commands that may change the session's directories, but nothing in them that acts outside of
    the cage later."""
    own = tuple(dict.fromkeys(os.path.realpath(each) for each in directories))
    execute = program_directories((), environ, home)
    read = (*_outside(_system(), execute), *_configuration(environ, home))
    return CageRules(CageKind.WORKSPACE, read, own, execute, network=network)


def holds_home(directories: Sequence[str], home: str) -> bool:
    """Return whether one of the directories is the home directory or holds it. That is no workspace: too much in a home
    acts outside of a cage later, as what shells read at a login."""
    real = os.path.realpath(home) if os.path.isabs(home) else ""
    tops = (os.path.realpath(each).rstrip("/") + "/" for each in directories)
    return bool(real) and any(f"{real}/".startswith(top) for top in tops)


def acts_later_at(directory: str, environ: Mapping[str, str], home: str) -> str:
    """Return why what is in a directory (a real path) acts outside of a cage later, whatever its name is; "" if it does
    not. Programs keep what they start in the hidden directories of a home."""
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
    """Return the files of the system that programs need, and that hold no passwords."""
    try:
        families = [name for name in os.listdir("/etc") if name.startswith(_FAMILIES_IN_ETC)]
    except OSError:
        families = []
    return (*_READ, *(f"/etc/{name}" for name in (*_READ_IN_ETC, *families)))


def _configuration(environ: Mapping[str, str], home: str) -> tuple[str, ...]:
    """Return the files of git's configuration for this user. They may be made later."""
    found = []
    for each in (home, environ.get("HOME", "")):  # they differ where HOME was set for one login
        if os.path.isabs(each):
            found += [os.path.join(each, name) for name in _READ_IN_HOME]
    configuration = environ.get("XDG_CONFIG_HOME", "")
    if os.path.isabs(configuration):
        found += [os.path.join(configuration, "git", name) for name in ("config", "ignore", "attributes")]
    return tuple(dict.fromkeys(found))


def _outside(paths: Sequence[str], others: Sequence[str]) -> tuple[str, ...]:
    """Return the paths that exist and are in none of the other directories, which include them: each rule takes time
    at each start."""
    return tuple(
        path for path in paths if os.path.lexists(path) and not any(path.startswith(each + "/") for each in others)
    )
