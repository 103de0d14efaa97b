"""What a rule with a wildcard does not cover: arguments that make a program run another program, write a file or read
settings of the caller's choice, or reach another host. The person has not seen them, because `*` stands for them.

The programs that ccb suggests rules for have closed lists: see `harmless_options`. Others have a table here. Every word
counts as an option, wherever it stands: only the program knows which words are values. Long options may be
abbreviated, letters may be bundled."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Callable

from ccb.tunnel.wire.dataclass import dataclass

from .harmless_options import HARMLESS
from .read_only import GIT_NEVER, GIT_READERS, RUNS_GPG, sed_only_edits
from .shell_words import Command, Word, is_never_option, names
from .wrappers import FOUND, MAX_STARTS, effective, everything_behind, is_runner

Inside = Callable[[str], bool]

_GIT_RISKY = " ".join((*GIT_NEVER, "--receive-pack --extcmd --separate-git-dir --upload-archive --config-env"))
"""The options that a rule with a wildcard does not cover, in the form of the tables of `risky_options`."""
_GIT_RISKY_BEFORE_SUBCOMMAND = "-c --config-env --exec-path -C@ --git-dir@ --work-tree@ --help"
_GIT_VALUED_BEFORE = names("-c -C --git-dir --work-tree --namespace --super-prefix --config-env --attr-source")
_GIT_RISKY_OF_SUBCOMMAND = {
    "am": "--directory@ -S= -p= -C=",
    "archive": "-o --remote --add-file@",
    "bisect": "-x",
    "checkout": "--pathspec-from-file@",
    "index-pack": "-o@",
    "blame": "--contents@ -S@ -L=",
    "clone": "-u -c --config --template --reference --reference-if-able --bundle-uri -b= -j= -o=",
    "config": "-f --file --global --system --worktree --blob -e --edit",
    "difftool": "-x -t --tool",
    "format-patch": "-o --signature-file@ -v=",
    "grep": "-O -f@ -e= -A= -B= -C= -m=",
    "log": "-O@ -G= -S= -L= -n=",
    "diff": "-O@ -G= -S= -U= -l=",
    "show": "-O@ -G= -S= -n=",
    "checkout-index": "--prefix@",
    "fast-export": "--export-marks@ --import-marks@ --import-marks-if-exists@",
    "fast-import": "--export-marks@ --import-marks@ --import-marks-if-exists@ --export-pack-edges@",
    "maintenance": "--config-file",
    "read-tree": "--index-output@",
    "mergetool": "-t --tool -O@",
    "notes": "-F@ --file@ -m=",
    "push": "--repo -o=",
    "rebase": "-x -s --strategy -X= -C= -S=",
    "send-email": "--smtp-server --to-cmd --cc-cmd --header-cmd --sendmail-cmd --smtp-ssl-cert-path",
}
_GIT_RUNNING_SUBCOMMANDS = names("""filter-branch filter-repo remote-ext remote-fd shell credential credential-store
    credential-cache web--browse instaweb for-each-repo difftool--helper mergetool--lib submodule--helper bisect--helper
    p4 cvsserver daemon""")
_GIT_RUNNING_WORDS = {"bisect": names("run"), "submodule": names("foreach"), "hook": names("run")}
_GIT_REMOTE = names("fetch pull push clone ls-remote remote submodule archive")
_GIT_URL = re.compile(r".*://.*|[^/:]+@[^/:]+:.*|[/~].*|\.\.?(?:/.*)?", re.DOTALL)
_GIT_KEY = re.compile(r"[a-z][a-z0-9-]*(?:\..*)?\.[a-z][a-z0-9-]*(?:=.*)?", re.DOTALL | re.IGNORECASE)
_GIT_HARMLESS_KEY = re.compile(
    r"user\.(?:name|email)|(?:color|advice|rerere)\.[\w.]+|pull\.(?:rebase|ff)|push\.(?:default|followtags|autosetupremote)"
    r"|init\.defaultbranch|fetch\.prune|merge\.conflictstyle|diff\.(?:algorithm|renames|colormoved)"
    r"|rebase\.auto(?:squash|stash)|core\.(?:autocrlf|eol|filemode|ignorecase|quotepath|abbrev)",
    re.IGNORECASE,
)


def _names_git_risk(subcommand: str, text: str, is_first: bool) -> bool:
    """Return whether an argument that is no option makes a sub-command run a program or reach another host than those
    of its remotes. `is_first`: no other operand stands before it."""
    if text in _GIT_RUNNING_WORDS.get(subcommand, ()):
        return True
    if subcommand in _GIT_REMOTE and "::" in text:
        return True  # names a program that speaks for the remote
    if subcommand in ("fetch", "pull", "push") and not text.startswith("-"):
        return _GIT_URL.fullmatch(text) is not None or (is_first and ":" in text)
    if subcommand == "config":
        return _GIT_KEY.fullmatch(text) is not None and not _GIT_HARMLESS_KEY.fullmatch(text)
    return subcommand in GIT_READERS and RUNS_GPG.search(text) is not None


_MAX_TEXT = 2000
_NODE = "-C@ --prefix@ --dir@ --cwd@ --script-shell --shell --node-options --globalconfig --userconfig --registry"
_DOCKER = """-v --volume --volumes-from --mount --privileged! --device --device-cgroup-rule --cap-add --security-opt
    --pid --ipc --uts --userns --cgroupns --cgroup-parent --net --network --runtime --gpus --sysctl --add-host --link
    --opt --log-opt --storage-opt --use-api-socket -H --host -c --context --config --tlscacert --tlscert --tlskey
    --env-file@ --env+ --label+ --user+ --label-file@ --cidfile --iidfile --metadata-file -o --output --secret --ssh
    --build-context --builder --allow --cache-to --cache-from --push -f@ --file@ --project-directory@"""
_AWK = "-f --file -E --exec -i --include -l --load -o --pretty-print -d --dump-variables -p --profile -D -W -v= -F="

TABLES = {
    "nox": "-f@ --noxfile@ --default-venv-backend -db -fb --force-python -P --extra-python --report",
    # Builds and packages.
    "cmake": "-D -P -C -E -S@ -B@ --build@ --toolchain --graphviz --install@ --open --preset+"
    " --prefix@ --trace-redirect@ --profiling-output@ -G= -j=",
    "just": "-f@ --justfile@ -d@ --working-directory@ --shell --shell-arg --shell-command -c --command --set --chooser"
    " --dotenv-path@ --dotenv-filename@ --cygpath --tempdir",
    "npm": f"{_NODE} --location --global! -g! --cache --git --editor --viewer --browser --init-module --proxy"
    " --https-proxy --cafile --ca --cert --key --node-gyp --python --call -c --logs-dir --pack-destination -w=",
    "yarn": f"{_NODE} --use-yarnrc --modules-folder --global-folder --cache-folder --preferred-cache-folder"
    " --link-folder --yarn-path --proxy --https-proxy --cafile",
    "pnpm": f"{_NODE} --global -g --global-dir --global-bin-dir --store-dir --virtual-store-dir --modules-dir"
    " --pnpmfile --global-pnpmfile --config.* --config -c --shell-mode --proxy --https-proxy --cafile --ca --cert"
    " --key",
    "bun": f"{_NODE} -r --preload --require --import --config -e --eval -p --print --env-file@ --global -g --outdir"
    " --outfile --cache-dir --coverage-dir@ --reporter-outfile@ --inspect*",
    "cargo": "--config --config-path@ --manifest-path@ --target-dir@ --target+ --artifact-dir@ --out-dir@ --out+ -C -Z"
    " --registry --index --lockfile-path@ --git --path@ --root --open",
    "go": "toolexec exec o@ overlay modfile@ C@ pkgdir@ ldflags gcflags asmflags gccgoflags compiler vettool fixtool"
    " coverprofile@ outputdir@ cpuprofile@ memprofile@ blockprofile@ mutexprofile@ trace@ w test.*",
    "dotnet": "-p --property -o --output -s --source --configfile --packages --artifacts-path --settings -l --logger"
    " --results-directory --test-adapter-path -d --diag --interactive+ -c= -f= -v= -r=",
    "pip": "--python --pre+ -i --index-url --pypi-url --extra-index-url -f --find-links -t --target --prefix --root"
    " --src -b --log --log-file --proxy --cert --client-cert --trusted-host --cache-dir -r@ --requirement@ -c@"
    " --constraint@ -e@ --editable@ -C --config-settings --global-option --build-option --install-option --report"
    " --path@ --group@ --keyring-provider --editor -d@ --dest@ -w@ --wheel-dir@ @",
    "uv": "--config-file --directory@ --project@ --index --default-index --index-url -i --extra-index-url --find-links"
    " -f --python -p --cache-dir -w --with --with-editable --with-requirements --mirror --install-dir --out-dir@"
    " --env-file@ --config-setting -C --target --prefix --script --keyring-provider --allow-insecure-host"
    " --build-constraint@ --constraint@ --override@ -o --output-file --extra+",
    "poetry": "-C@ --directory@ -P@ --project@ --source",
    "bundle": "--gemfile@ --path@ --cache-path@ --shebang --binstubs --standalone@ --target-rbconfig --source",
    "composer": "-d@ --working-dir@ --repository --repository-url",
    **dict.fromkeys(("apt", "apt-get"), "-o --option -c --config-file"),
    # Services and other hosts.
    "docker": _DOCKER,
    "podman": f"{_DOCKER} --hooks-dir --conmon --init-path --module --root --rootfs --authfile --url",
    "docker-compose": _DOCKER,
    "kubectl": "--kubeconfig --context --cluster --server -s --token --as --as-group --as-uid --user --username"
    " --password --certificate-authority --client-certificate --client-key --insecure-skip-tls-verify"
    " --tls-server-name --cache-dir --profile --profile-output --log-file --log-dir --raw -f@ --filename@ -k@"
    " --kustomize@ --from-file@ --from-env-file@ --patch-file@ --www --kuberc -n= -l= -o=",
    "systemctl": "-H --host -M --machine --root --image -C --capsule -n= -t= -p= -o= -s=",
    "journalctl": "-D --directory --file --root --image -M --machine --cursor-file --namespace -n= -u= -o= -p= -S= -U=",
    "terraform": "chdir@ out@ var-file@ state@ state-out@ backup@ plugin-dir@ from-module generate-config-out@"
    " backend-config junit-xml@",
    "ssh": "-o -F -J -L -R -D -W -w -E -I -S -A -X -Y -K -O -B -b -p= -l= -c= -m= -e= -Q=",
    "scp": "-o -S -F -J -D -X -l= -P= -c=",
    "sftp": "-o -S -b -D -F -J -s -X -P= -B= -R= -l= -c=",
    "rsync": "-e --rsh --rsync-path --files-from --daemon --config --log-file --write-batch --only-write-batch"
    " --read-batch -T --temp-dir --backup-dir --partial-dir --password-file --early-input --exclude-from@"
    " --include-from@ --exclude+ --include+ --compare-dest --copy-dest --link-dest --sockopts --address -M"
    " --remote-option --filter -f -B=",
    "curl": "-o --output -O! --remote-name! --remote-name-all! -J! --remote-header-name! --output-dir --create-dirs -K"
    " --config -T --upload-file -F --form --data-urlencode -b --cookie -c --cookie-jar -D --dump-header --trace"
    " --trace-ascii --stderr -n --netrc --netrc-file --netrc-optional -E --cert --key --cacert --capath --proxy -x"
    " --preproxy --socks* --resolve --connect-to --unix-socket --abstract-unix-socket --interface --dns-* --engine"
    " --egd-file --random-file --libcurl --hsts --alt-svc --etag-save --etag-compare -Q --quote --prequote --postquote"
    " --variable --url-query --expand-* --doh-url --proto-default --ech --ssl-sessions --proxy1.0 -P --ftp-port -H="
    " -X= -A= -e= -m= -u= -y= -Y= -C= -r= -z= -t= -U= -w= -d=",
    "wget": "-O --output-document -o --output-file -a --append-output -P --directory-prefix -i --input-file --post-file"
    " --body-file --use-askpass --config -e --execute --load-cookies --save-cookies --certificate --private-key"
    " --ca-certificate --ca-directory --hsts-file --warc-* --rejected-log --egd-file --random-file --crl-file"
    " --input-metalink --preferred-location --bind-address -Q= -t= -T= -U= -l= -A= -R= -D= -w=",
    # Files and texts.
    "tar": "-I --use-compress-program --to-command -F --info-script --new-volume-script --checkpoint-action"
    " --rsh-command --rmt-command -C@ --directory@ -P! --absolute-names! -T --files-from -g --listed-incremental"
    " --index-file -X@ --exclude-from@ --volno-file --to-stdout+ --exclude+ --file@ --list+ --one-top-level@"
    " --keep-directory-symlink --checkpoint+",
    "zip": "-T --test -TT --unzip-command -b --temp-path -O --output-file --log-file-path -lf",
    "unzip": "-d@",
    "sort": "-o --output --compress-program -T --temporary-directory --files0-from --random-source@ -k= -t= -S=",
    "sed": "-i! --in-place! -f --file",
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    "find": "fprint fprintf fprint0 fls files0-from@",
    **dict.fromkeys(("fd", "fdfind"), "-x --exec -X --exec-batch --base-directory@ --search-path@ --ignore-file@ -e="),
    "rg": "--pre --pretty+ --hostname-bin -z! --search-zip! -f@ --file@ --ignore-file@ -e= -g= -t= -T= -A= -B= -C= -m="
    " -j= -r= -E= -M= -d=",
    "tree": "-o --fromfile --fromtabfile --info",
    "file": "-C --compile -m@ --magic-file@ -f@ --files-from@ -z -Z --uncompress",
    "man": "-P --pager -H --html -C --config-file -M --manpath -l --local-file -p --preprocessor -B -X -T -Z -t -D",
    **dict.fromkeys(("vi", "vim", "nvim"), "-c --cmd -S -s -u -U -i -w -W --startuptime --listen --server* --remote*"),
    "less": "-o -O --log-file -k --lesskey* -t --tag -T --tag-file",
}

_SETTING = r"(?!--)[^=]*=(?!(?:\d+|y|n|yes|no|true|false|on|off|)$).*"
_NO_PACKAGE = r"(?!-)(?!(?:@[\w.-]+/)?\w[\w.-]*(?:@[\w.^~<>=|* -]+)?$).*"
_OPERANDS = {
    "awk": r".*(?:system|getline|@|\||print.*>).*",
    "cargo": r"[+@].*",
    "cmake --build": _SETTING,
    "composer": r"exec|g\w*|run.*|config|archive",
    "curl": r"@.*|[^\s:\"]*[{\[][^\s:\"]*:.*|-\w*[dHw]@.*|.*%output\{.*|file:.*",
    "dotnet": r"[/@].*",
    "golangci-lint": r"custom",
    "docker build": r".*://.*|git@.*|github\.com/.*|.*\.git(?:#.*)?",
    "kubectl": r"(?:-\w*o=?|--output=)?(?:(?:go-template|jsonpath|custom-columns)-file|templatefile).*",
    "less": r"\+.*",
    "make": _SETTING,
    "mvn": r".*:.*",
    "mypy": r"@.*",
    "nvidia-smi": r"[a-z].*",  # sub-commands
    **dict.fromkeys(("npm install", "pnpm install", "yarn install"), _NO_PACKAGE),
    "npm": r".*://.*|git\+.*|git@.*|(?:.*@)?file:.*|link:.*|(?:github|gitlab|bitbucket|gist):.*"
    r"|(?:script-shell|node-options)(?:=.*)?",
    "pip": r".*(?:://|\s@\s).*|git\+.*|file:.*",
    "pytest": r"@.*",
    "tar": r"[^=-].*:.*|-(?:-f\w*=|\w*f).*:.*",
    "tox": r"exec|devenv|d|e",
    "tsc": r"@.*",
    "vim": r"\+(?!\d*$).*",
}
"""Words that are not covered, also of the programs in _LIKE. Those of a sub-command replace those of its program."""
_LIKE = {
    "podman": "docker",
    **dict.fromkeys(("gawk", "mawk", "nawk"), "awk"),
    **dict.fromkeys(("yarn", "pnpm", "bun"), "npm"),
    **dict.fromkeys(("vi", "nvim"), "vim"),
}

_FINE = {
    "cmake": r"-D ?\w+(?::\w+)?=(?:ON|OFF|TRUE|FALSE|\d+|Debug|Release|RelWithDebInfo|MinSizeRel)",
    "curl": r"-[sSLkfIiv]*o ?/dev/null|--output /dev/null",
    "docker": r"--build-arg[ =](?i:(?!\w*proxy)\w+=[\w.-]*)|(?:-f|--format|--filter)[ =]?(?:\{\{.*|\w+=[\w.-]+)",
    "dotnet": r"(?:-l|--logger)[ :=]?(?:trx|console)(?:;[\w=.]+)?",
    "git": r"(?:-s ?|--strategy[= ])(?:ort|recursive|resolve|octopus|ours|subtree)|(?:-F ?|--file[= ])-",
    "mvn": r"-P[\w,!.-]+|-D(?:test|it\.test|skipTests|skipITs|maven\.test\.skip|failIfNoTests)(?:=[\w.#*,+-]*)?",
    "pylint": r"(?:-f ?|--output-format[= ])[a-z]+\d?",
    "pytest": r"-p ?no:[\w.-]+|-o ?addopts=|-W ?\w+(?:::\w+)*",
    "tar": r"--file[= ]-",
    "wget": r"-[qnv]*O ?-|--output-document[= ]-",
}
"""Options that are covered all the same, each with its value."""

_SINGLE_DASH = names("go gofmt shfmt terraform find")
"""Programs whose long options begin with one dash, and are neither abbreviated nor bundled."""
_WHOLE = _SINGLE_DASH | names("dotnet mvn gradle ctest tsc npm pnpm yarn nvidia-smi")
"""Programs whose letters are not bundled, because some options of one dash have more than a letter."""
_ANY_DASHES = names("npm pnpm yarn bun")  # programs that take long options with one dash, too
_NAME = Word("x", "x")
_ALIASES = {"gmake": "make", "gradlew": "gradle"}
_CLOSED = frozenset(key.split()[0] for key in HARMLESS)
_PYTHON = re.compile(r"python[0-9.]*")
_PLACE = re.compile(r"[\w./@+=:,%~ -]*")


@dataclass(frozen=True)
class _Table:
    listed: Mapping[str, str]  # all options as they are spelled, each with its sign
    long: Mapping[str, str]  # long options without the ways to spell them
    letters: Mapping[str, str]  # "" is never covered, or harmless in a closed list
    flags: tuple[str, ...]  # options that are never covered, and take no value


@cache
def _table(text: str) -> _Table:
    """Read a table: `--x` is never covered, `--x*` stands for all that begin so, `--x@` is covered if its value is a
    file in the session's directories, `--x+` is harmless, though others begin with it, `-x=` is harmless and takes
    a value; `--x!` is never covered, and takes no value; `@` alone says that the operands are files."""
    entries = [(entry[:-1], entry[-1]) if entry[-1] in "@+=*!" else (entry, "") for entry in text.split()]
    flags = tuple(option for option, sign in entries if sign == "!")
    listed = {option: "" if sign == "!" else sign for option, sign in entries}
    is_letter = re.compile(r"-\w").fullmatch
    long = {_plain(option): sign for option, sign in listed.items() if option and not is_letter(option)}
    return _Table(listed, long, {option[1]: sign for option, sign in listed.items() if is_letter(option)}, flags)


def _plain(name: str) -> str:
    """Return the name of a long option without the ways to spell it: `--outDir`, `-outdir` and `--out-dir` are one."""
    return re.sub(r"[-_]", "", name).casefold()


def uncovered(words: Sequence[Word], head: int, inside: Inside, bases: Sequence[str] | None) -> str | None:
    """Return the first argument of a command that a rule with a wildcard does not cover, None if it covers all of them.
    The rule spells out the first `head` words. `inside` says whether a path leads to a file of the session's
    directories that is not protected, `bases` are the directories where the command may run, None if unclear."""
    if is_runner(_name(words), words) and any(_has_table(word) for word in words[MAX_STARTS:]):
        return "more arguments than can be checked"
    for behind in filter(None, _started(words)):
        shift = len(words) - len(behind)
        known = max(0, head - shift) if tuple(words[shift:]) == tuple(behind) else 0
        found = _Call(_name(behind), behind, known, inside, bases).uncovered()
        if found:
            return found
    return None


def risk(words: Sequence[Word]) -> str | None:
    """Return the first argument that may make a command run another program. Unknown ones count as harmless."""
    return uncovered([word if word.is_literal else _NAME for word in words], 1, lambda path: True, [])


def _started(words: Sequence[Word]) -> list[Sequence[Word]]:
    """Return the words of each command that a command may be or start, but for those of `find` and `xargs`."""
    name = _name(words)
    inner = effective(Command(tuple(words)))
    if inner is not None and len(inner.words) < len(words):
        return [words, *(_started(inner.words) if inner.words else [])]
    if _PYTHON.fullmatch(name):
        at = next((at for at, word in enumerate(words) if word.text == "-m"), len(words))
        return [words, words[at + 1 :]]
    return [words] if name in ("find", "xargs") else [part.words for part in everything_behind(Command(tuple(words)))]


def _name(words: Sequence[Word]) -> str:
    name = os.path.basename(words[0].text)
    return _ALIASES.get(name) or re.sub(r"^pip[0-9.]+$", "pip", name)


def _has_table(word: Word) -> bool:
    name = _name([word])
    return name in TABLES or name in _CLOSED or _PYTHON.fullmatch(name) is not None


@dataclass(frozen=True)
class _Call:
    """A command of which a rule spells out the first `head` words; `inside` and `bases` as for `uncovered`. The `table`
    judges its arguments, as a closed list if it is `listed_for` a first argument."""

    name: str
    words: Sequence[Word]
    head: int
    inside: Inside
    bases: Sequence[str] | None
    table: _Table = _table("")
    listed_for: str | None = None

    def uncovered(self) -> str | None:
        name, words = self.name, self.words
        if name == "git":
            return self._of_git()
        if len(words) == 1:
            return None
        first = words[1].text
        listed = HARMLESS.get(f"{name} {first}", HARMLESS.get(name))
        if listed is not None:
            return self._by(listed, first)
        if name == "tar":
            return self._of_tar()
        found = self._by(_text_of_table(name, words)) if name in TABLES else None
        if name == "sed" and not found:
            kept = [_NAME if word.is_glob else word for word in words[1:] if not re.match("-i|--in-place", word.text)]
            return None if sed_only_edits(kept) else "a script that may do more than change text"
        return found

    def _by(self, text: str, listed_for: str | None = None) -> str | None:
        """Return the first argument that a table excludes, or that is not in the list for `listed_for`. Those that the
        rule spells out, each with its value, are not looked at."""
        words = self.words
        text, _, behind = text.partition(" -- ")
        judge = replace(self, table=_table(text), listed_for=listed_for)
        for at, word in enumerate(words[1:], 1):
            following = words[at + 1].text if at + 1 < len(words) and not words[at + 1].dynamic else None
            if word.text == "--" and behind:
                judge = replace(judge, table=_table(behind))
            if at < self.head - 1:
                continue
            if at < self.head:  # the last word that the rule spells out: its value may be behind the wildcard
                has_no_value = at + 1 == len(words) or words[at + 1].text.startswith("-")
                is_complete = not word.text.startswith("-") or "=" in word.text
                is_closed = listed_for is not None
                if is_complete or word.text.startswith(judge.table.flags) or (is_closed and has_no_value):
                    continue
            found = judge._why_not(word, following)
            if found:
                return found
        return None

    def _why_not(self, word: Word, following: str | None) -> str | None:
        """Return an argument that is not covered, or what it is, None for one that is covered."""
        text, family = word.text, _LIKE.get(self.name, self.name)
        operand = _OPERANDS.get(f"{self.name} {self.listed_for}", _OPERANDS.get(family))
        if self._is_unclear(word):
            return "an argument that is known only when it runs"
        if family in _FINE and any(re.fullmatch(_FINE[family], each) for each in (text, f"{text} {following}")):
            return None
        if operand and len(text) > _MAX_TEXT:
            return "an argument that is too long to check"
        if operand and re.fullmatch(operand, text.replace("||", ""), re.DOTALL | re.IGNORECASE):
            return text
        return None if self._covers(word, following) else text

    def _covers(self, word: Word, following: str | None) -> bool:
        text = word.text
        if text.startswith("-") and len(text) > 1:
            return not (self._is_excluded if self.listed_for is None else self._is_unlisted)(text, following)
        if "" not in self.table.listed:
            return True
        path = re.split(r"[*?\[]", text)[0] if word.is_glob else text.partition("::")[0]  # the operands are files
        return self.inside(path) and (not word.dynamic or is_never_option(word))

    def _of_tar(self) -> str | None:
        call, first = self, self.words[1]
        if re.fullmatch(r"[A-Za-z]\w*", first.text):  # letters without a dash
            if "C" in first.text or "X" in first.text:
                return first.text
            with_dash = Word("-" + first.text, first.skeleton)
            call = replace(self, words=[self.words[0], with_dash, *self.words[2:]])
        words = call.words
        if not re.fullmatch(r"-[xtzjJvpkf]*[xt][xtzjJvpkf]*", words[1].text):  # it may write an archive
            for at, word in enumerate(words[1:], 1):
                bundle = re.match(r"-[^-f=]*f(.*)", word.text)
                following = words[at + 1].text if at + 1 < len(words) else None
                archive = bundle[1] if bundle and "/" in bundle[1] else following
                if at >= self.head - 1 and bundle and archive != "-" and not self._is_place(archive):
                    return word.text
        return call._by(TABLES["tar"])

    def _of_git(self) -> str | None:
        words, head, at = self.words, self.head, 1
        while at < len(words) and words[at].text.startswith("-") and not words[at].dynamic:
            at += 2 if words[at].text in _GIT_VALUED_BEFORE else 1
        found = replace(self, words=words[:at])._by(f"{_GIT_RISKY} {_GIT_RISKY_BEFORE_SUBCOMMAND}")
        if found or at >= len(words):
            return found
        subcommand = words[at].text
        if subcommand in _GIT_RUNNING_SUBCOMMANDS and at >= head:
            return subcommand
        if words[at].dynamic:
            return "a sub-command that is known only when it runs"
        is_first = True
        for index, word in enumerate(words[at + 1 :], at + 1):
            if index >= head and _names_git_risk(subcommand, word.text, is_first):
                return word.text
            is_first = is_first and word.text.startswith("-")
        behind = replace(self, words=words[at:], head=max(0, head - at))
        listed = HARMLESS.get(f"git {subcommand}")
        if listed is not None:
            return behind._by(listed, subcommand)
        return behind._by(f"{_GIT_RISKY} {_GIT_RISKY_OF_SUBCOMMAND.get(subcommand, '')}")

    def _is_place(self, value: str | None) -> bool:
        """Return whether a value names files of the session's directories, or nothing that looks like a path."""
        if value is None or value == "-" or not _PLACE.fullmatch(value):
            return False
        return all(self.inside(part) for part in re.split("[=:,]", value) if part)

    def _is_unclear(self, word: Word) -> bool:
        """Return whether the program may get an option, or a setting such as `SHELL=x`, that the text does not show."""
        if word.dynamic and word != FOUND and not is_never_option(word):
            quoted_value = not word.bare and word.skeleton[:1] not in ("\1", "-") and word.text[:1] not in ("", "-")
            return not quoted_value or "=" in word.text
        if not word.is_glob or self.bases is None:
            return word.is_glob
        pattern = re.sub(r"\[.*|\?", "*", word.text.split("/")[0], flags=re.DOTALL)
        try:
            names_here = [name for base in self.bases for name in os.listdir(base)]
        except OSError:
            return True
        return any((each.startswith("-") or "=" in each) and fnmatchcase(each, pattern) for each in names_here)

    def _is_unlisted(self, text: str, following: str | None) -> bool:
        if text == "--" or (text in ("--help", "--version") and self.name != "git"):
            return False
        if not text.startswith("--") and self.name not in _WHOLE:
            return self._has_bad_letter(text, following)
        numbered = re.fullmatch(r"(-\w)\d+", text)
        option = numbered[1] if numbered else re.split("[=:]", text)[0]
        sign = self.table.listed.get(re.sub("^--", "-", option) if self.name in _SINGLE_DASH else option)
        if sign == "@":
            return not self._is_place(text[len(option) + 1 :] if option != text else following)
        return sign is None or (sign == "" and option != text)

    def _is_excluded(self, text: str, following: str | None) -> bool:
        option = re.split("[=:]", text)[0]
        given = text[len(option) + 1 :] if option != text else following
        if self.name in _SINGLE_DASH:
            return self._is_bad_name(_plain(option), given, abbreviated=False)
        if text.startswith("--"):
            return text != "--" and self._is_bad_name(_plain(option), given)
        if self.name in _ANY_DASHES and len(option) > 2 and self._is_bad_name(_plain(option), given):
            return True
        is_long = len(_plain(option)) > 1 and self.table.long.get(_plain(option)) == ""  # as `-SP` and `-gs`
        return is_long or self._has_bad_letter(text, following)

    def _has_bad_letter(self, text: str, following: str | None) -> bool:
        for at, letter in enumerate(text[1:], 2):
            sign = self.table.letters.get(letter)
            if sign == "=":
                return False
            if sign == "@":
                return not self._is_place(text[at:].lstrip("=") or following)
            if (sign is None) is (self.listed_for is not None):
                return True
        return False

    def _is_bad_name(self, name: str, value: str | None, *, abbreviated: bool = True) -> bool:
        """Return whether a long option is excluded, also if its name may be the beginning of one that is."""
        sign, long = self.table.long.get(name), self.table.long.items()
        if sign in ("+", "=", "@"):
            return sign == "@" and not self._is_place(value)
        if sign == "" or any(each == "*" and name.startswith(beginning) for beginning, each in long):
            return True
        longer = {each for option, each in long if abbreviated and option.startswith(name)}
        return "" in longer or ("@" in longer and not self._is_place(value))


def _text_of_table(name: str, words: Sequence[Word]) -> str:
    """Return the table of a program, without or with what one of its commands changes."""
    text, texts = TABLES[name], [word.text for word in words]
    if text == _DOCKER and {"exec", "run"} & {*texts[1 : 3 if texts[1] == "compose" else 2]}:
        return text.replace(" -H ", " ").replace(" -c ", " ")  # here they are the program's in the container
    return f"{text} @" if name == "find" and "-delete" in texts else text
