"""The words of completion that are not in the scripts: hosts, sessions, models, and paths of a host over a connection
that is open already. Shells start this at each Tab as a program of its own (`python -I -S`): it imports nothing of ccb,
and of the standard library only what a kind of word needs.

It prints a line `WORD<tab>DESCRIPTION` for each word. Hosts name their files and sessions: a word that shells would not
take as it is, is left out.
"""

import os
import sys

Words = dict[str, str]  # with their descriptions

DEADLINE_S = 1.0  # for the answer of a host
_MAX_BYTES = 4 * 1024 * 1024
_MAX_WORDS = 500
_MAX_SESSIONS = 100
_MAX_ABOUT = 60
_MAX_INCLUDES = 16
_ALIASES = ("opus", "sonnet", "haiku")
_SIGNS = "_./:@%+=,-~"  # that mean nothing to a shell inside a word
_LIST = "exec /bin/sh -c 'IFS= read -r d; cd \"$d\" && exec ls -1ALp'"  # means the same to every login shell


def main() -> None:
    """Print the words of a kind that begin with a prefix. The third argument is the host of the sessions."""
    kind, prefix, host, *_ = [*sys.argv[1:], "", ""]
    if kind == "models":
        found = _models()
    elif kind in ("ids", "sessions"):
        found = _sessions(host, everywhere=kind == "sessions")
    elif kind in ("directories", "paths") and ":" in prefix:
        found = _paths(prefix, files=kind == "paths")
    else:
        user = prefix[: prefix.find("@") + 1]
        found = {user + name: "" for name in configured_hosts()}
    lines = [f"{each}\t{_cut(found[each])}\n" for each in found if each.startswith(prefix) and _is_plain(each)]
    os.write(1, "".join(lines[:_MAX_WORDS]).encode())


def _is_plain(word: str) -> bool:
    return all(sign.isalnum() or sign in _SIGNS for sign in word)


def _cut(text: str) -> str:
    shown = "".join(each if each.isprintable() else " " for each in text[: _MAX_ABOUT + 1])
    return shown if len(shown) <= _MAX_ABOUT else f"{shown[: _MAX_ABOUT - 1]}…"


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return ""


def _object(path: str) -> dict[str, object]:
    import json

    try:
        found = json.loads(_read(path))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _listed(directory: str) -> list[str]:
    try:
        return [os.path.join(directory, name) for name in sorted(os.listdir(directory))]
    except OSError:
        return []


def _xdg(variable: str, usual: str, name: str) -> str:
    base = os.environ.get(variable, "")
    return os.path.join(base if base.startswith("/") else os.path.expanduser(f"~/{usual}"), "ccb", name)


def configured_hosts() -> list[str]:
    """Return the words behind Host in the files of ssh_config, patterns too."""
    home = os.path.expanduser("~/.ssh")
    return [*_configured(f"{home}/config", home), *_configured("/etc/ssh/ssh_config", "/etc/ssh")]


def _configured(path: str, top: str, depth: int = 0) -> list[str]:
    """Return the words behind Host in a file and in those that it includes."""
    found: list[str] = []
    for line in _read(path).split("\n"):
        keyword, *values = line.replace("=", " ", 1).replace('"', " ").split() or [""]
        if keyword.lower() == "host":
            found += values
        elif keyword.lower() == "include" and depth < _MAX_INCLUDES:
            for value in values:
                for each in _matching(os.path.join(top, os.path.expanduser(value))):
                    found += _configured(each, top, depth + 1)
    return found


def _matching(pattern: str) -> list[str]:
    """Return the files of `conf.d/*` and `conf.d/*.conf`: the module glob takes longer than all of this program."""
    folder, name = os.path.split(pattern)
    start, star, end = name.partition("*")
    if not star:
        return [pattern]
    found = [(each, os.path.basename(each)) for each in _listed(folder)]
    return [path for path, each in found if each.startswith(start) and each.endswith(end) and each[:1] != "."]


def _models() -> Words:
    found: Words = dict.fromkeys(_ALIASES, "")
    for path in _listed(_xdg("XDG_CACHE_HOME", ".cache", "models")):
        provider = os.path.basename(path).removesuffix(".json")
        models = _object(path).get("models")
        for each in models if isinstance(models, list) else []:
            if isinstance(each, dict):
                name = str(each.get("id"))
                found[name if provider == "anthropic" else f"{provider}/{name}"] = str(each.get("title") or "")
    return found


def _sessions(host: str, *, everywhere: bool) -> Words:
    """Return the sessions of this machine, or those that the ledger knows of a host, the newest first; or all."""
    state = _xdg("XDG_STATE_HOME", ".local/state", "")
    here = _sessions_here(f"{state}/sessions") if everywhere or not host else {}
    return here | (_sessions_elsewhere(f"{state}/ledger.sqlite3", host) if everywhere or host else {})


def _sessions_here(directory: str) -> Words:
    used: dict[str, float] = {}
    for path in _listed(directory):
        try:
            used[path] = os.stat(f"{path}/journal.jsonl").st_mtime
        except OSError:
            continue
    found: Words = {}
    for path in sorted(used, key=lambda each: -used[each])[:_MAX_SESSIONS]:
        summary, named = _object(f"{path}/summary.json"), _object(f"{path}/title")
        found[os.path.basename(path)] = f"{summary.get('cwd')} {named.get('title') or summary.get('prompt') or ''}"
    return found


def _sessions_elsewhere(ledger: str, host: str) -> Words:
    if not os.path.exists(ledger):
        return {}
    import sqlite3

    query = (
        "SELECT session, host, directory, MAX(began) AS last, (SELECT text FROM events WHERE kind = 'prompt' AND "
        "events.session = calls.session ORDER BY id LIMIT 1) FROM calls WHERE session != '' AND host != 'local' "
        "AND (:host = '' OR host = :host OR host LIKE '%@' || :host) GROUP BY session ORDER BY last DESC LIMIT :most"
    )
    try:
        rows = sqlite3.connect(ledger, timeout=DEADLINE_S).execute(query, {"host": host, "most": _MAX_SESSIONS})
        return {str(row[0]): f"{row[1]}:{row[2]} {row[4] or ''}" for row in rows}
    except sqlite3.Error:
        return {}


def _paths(place: str, *, files: bool) -> Words:
    """Return what is in the directory that `HOST:PATH` has come to, from an OpenSSH connection that is open already:
    one that ccb keeps, or a ControlMaster."""
    host, _, path = place.partition(":")
    top = path[: path.rfind("/") + 1]
    shown = _answer(host, top.removeprefix("~/") or ".").decode("utf-8", "surrogateescape")
    names = shown.split("\n")[:-1]
    hidden = path[len(top) :].startswith(".")
    return {f"{host}:{top}{name}": "" for name in names if (files or name[-1:] == "/") and (hidden or name[:1] != ".")}


def _answer(host: str, directory: str) -> bytes:
    """Return the list of a directory, b"" if there is no connection or the host does not answer in time. The way of
    this ssh is `false`, so it makes no connection."""
    import contextlib
    import signal
    import subprocess

    kept = _kept_socket(host)
    master = ["-F", "none", "-S", kept.replace("%", "%%")] if kept else ["-o", "RemoteCommand=none"]
    quiet = ("ControlMaster=no", "ProxyCommand=false", "BatchMode=yes", "ClearAllForwardings=yes", "LogLevel=QUIET")
    argv = ["ssh", *master, *(word for each in quiet for word in ("-o", each)), "-a", "-x", "-T", "--", host, _LIST]
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=null) as ssh:
        assert ssh.stdin is not None and ssh.stdout is not None
        signal.signal(signal.SIGALRM, lambda *_: ssh.kill())
        signal.setitimer(signal.ITIMER_REAL, DEADLINE_S)
        with contextlib.suppress(BrokenPipeError):  # without a connection, ssh has ended
            os.write(ssh.stdin.fileno(), f"{directory}\n".encode())
        listed = ssh.stdout.read(_MAX_BYTES)
        ssh.kill()
        return listed


def _kept_socket(host: str) -> str:
    """Return the socket of the connection that ccb keeps to a host, "" for none."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    usual = f"/tmp/ccb-kept-{os.getuid()}"  # noqa: S108 - as `kept_directory`; it must be ours
    directory = f"{runtime}/ccb-kept" if runtime.startswith("/") and len(os.fsencode(runtime)) <= 40 else usual
    try:
        found = os.lstat(directory)
    except OSError:
        return ""
    if found.st_uid != os.getuid() or found.st_mode & 0o077:
        return ""
    for path in (each for each in _listed(directory) if each.endswith(".json")):
        about, socket = _object(path), path.removesuffix(".json")
        name = str(about.get("host")).rpartition("@")[2]
        if host in (about.get("host"), name, f"{about.get('user')}@{name}") and os.path.exists(socket):
            return socket
    return ""


if __name__ == "__main__":
    main()
