"""`ccb completion SHELL`: the script of a shell, made from the rows of commands and options.

The scripts of bash and zsh share how they read a command line, and differ in how they offer words. For fish each row is
a declaration. What only this machine knows is asked of `completion_words`, which starts without ccb.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ccb.tunnel.providers.provider_kinds import KINDS

from ..command_line.arguments import OPTIONS, Arguments, Option
from ..command_line.exit_codes import ExitCode
from ..command_line.subcommands import NAMES, SUBCOMMANDS, Subcommand, brief, topics
from ..config.settings import SETTING_NAMES
from ..terminal.console import print_line

_PROGRAM = "import sys; sys.path.append(sys.argv.pop(1)); import completion_words; completion_words.main()"
ASK = (sys.executable, "-I", "-S", "-c", _PROGRAM, str(Path(__file__).parent))
"""Asks for words; it is no script of its own, which Python would compile at each start."""

_OWN_KINDS = {"file": "files", "file-or-json": "files", "model": "models"}  # of a value, by how it is called
_PROVIDERS = [f"={name}" for name in KINDS]
_OPTION_WORDS = re.compile(r"\[-[^\]]*\]")

Slot = list[str]
"""What may stand in a place of the command line: kinds of words that are asked for, `files`, and words themselves,
which begin with `=`."""


def print_script(arguments: Arguments, _: Mapping[str, str]) -> int:
    print_line(*script(arguments.rest[0]).splitlines())
    return ExitCode.OK


def script(shell: str) -> str:
    text = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}[shell].replace("@ASK@", shlex.join(ASK))
    if shell == "fish":
        return text.replace("@VALUED@", " ".join(_valued())).replace("@NAMES@", " ".join(NAMES)) + _declarations()
    return text.replace("@READ@", _READ).replace("@TABLES@", _tables()).replace("@HELP@", _help())


def _valued() -> list[str]:
    return [name for option in OPTIONS if option.metavar for name in option.names]


def _value(option: Option) -> Slot:
    if option.metavar == "provider":
        return _PROVIDERS
    if option.choices:
        return [f"={each}" for each in option.choices]
    return ["ids"] if option.field == "resume" else [_OWN_KINDS.get(option.metavar, "none")]


def places(command: Subcommand) -> dict[str, Slot]:
    """Return what may be each of the words behind a command, by its usage: under the number of the word, with its
    action in front if the command has such."""
    actions = [f"={name}" for name, *_ in command.words if name]
    found: dict[str, Slot] = {"1": actions} if actions else {}
    for usage in command.usage:
        words = _OPTION_WORDS.sub("", usage).partition(" -- ")[0].split()[2 if command.name else 1 :]
        words = [each for each in words if not each.startswith("-")]
        starts = [f"{action} " for action in words.pop(0).split("|")] if actions else [""]
        for number, word in enumerate(words, 2 if actions else 1):
            for start in starts:
                slot = found.setdefault(f"{start}{number}", [])
                slot += [each for each in _kinds(word) if each not in slot]
    for slot in found.values():
        if "directories" in slot and "hosts" in slot:
            slot.remove("hosts")  # the directories are those of hosts
    return found


def _kinds(word: str) -> Slot:
    """Return what a word of a usage stands for: `[user@]host[:/path]`, `SESSION|--all`, `FILE`."""
    text = word.lower()
    if "host" in text:
        return ["hosts" if "path" not in text else "paths" if word == "HOST:PATH" else "directories"]
    if "provider" in text:
        return _PROVIDERS
    if "topic" in text:
        return [f"={each}" for each in dict.fromkeys(topics())]
    if word == "KEY":
        return [f"={each}" for each in SETTING_NAMES]
    kinds = {"session": "sessions", "id": "ids", "path": "files", "local": "files", "file": "files"}
    return [kinds[name] for name in re.findall(r"\w+", text) if name in kinds]


def _names(command: Subcommand) -> list[str]:
    """Return the first words that mean a command, as shells write them."""
    return [name for name, own in NAMES.items() if own == command.name] or ['""']


def _slots() -> Iterator[tuple[str, Slot]]:
    """Yield what may stand behind each option and in each place, under the pattern that the scripts know it by."""
    for option in OPTIONS:
        if option.metavar:
            yield "|".join(option.names), _value(option)
    for command in SUBCOMMANDS:
        for place, slot in places(command).items():
            yield "|".join(f"{name}' {place}'" for name in _names(command)), slot


def _tables() -> str:
    """Return the functions `_ccb_slot` and `_ccb_options` of bash and zsh."""
    lines = ["_ccb_slot() {", "    case $1 in"]
    for pattern, slot in _slots():
        fixed = shlex.quote(" ".join(each[1:] for each in slot if each.startswith("=")))
        kinds = shlex.quote(" ".join(each for each in slot if not each.startswith("=")))
        lines.append(f"        {pattern}) kinds={kinds} fixed={fixed} ;;")
    lines += ["        *) return 1 ;;", "    esac", "}", "_ccb_options() {", "    case $1 in"]
    for command in SUBCOMMANDS:
        names = [name for option in OPTIONS if command.takes(option) for name in option.names]
        lines.append(f"        {'|'.join(_names(command))}) fixed={shlex.quote(' '.join(names))} ;;")
    return "\n".join([*lines, "    esac", "}", f"_ccb_names={shlex.quote(f' {chr(32).join(NAMES)} ')}"])


def _summaries() -> Iterator[tuple[str, str]]:
    return ((name, each.summary) for each in SUBCOMMANDS for name in (each.name, each.alias) if name)


def _help() -> str:
    rows = [*_summaries(), *((name, brief(option)) for option in OPTIONS for name in option.names)]
    return "\n".join(f"    {name} {shlex.quote(text)}" for name, text in rows)


def _declarations() -> str:
    """Return the rows as `complete` of fish takes them."""
    lines = [f"complete -c ccb -n '__ccb_at \"\" 1' -a {name} -d {_fish(text)}" for name, text in _summaries()]
    for command in SUBCOMMANDS:
        for place, slot in places(command).items():
            lines += [f"complete -c ccb -n '__ccb_at {name} {place}'{_fish_words(slot)}" for name in _names(command)]
            if "files" in slot and len(slot) > 1:
                lines += [f"complete -c ccb -n '__ccb_file_at {name} {place}' -F" for name in _names(command)]
    for option in OPTIONS:
        takers = " ".join(name for each in SUBCOMMANDS if each.takes(option) for name in _names(each))
        names = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
        value = f" -r{_fish_words(_value(option))}" if option.metavar else ""
        lines.append(f"complete -c ccb -n '__ccb_in {takers}' {names}{value} -d {_fish(brief(option))}")
    return "\n".join([*lines, ""])


def _fish_words(slot: Slot) -> str:
    asked = [f"(__ccb_words {each})" for each in slot if each not in ("files", "none") and not each.startswith("=")]
    words = " ".join([*(each[1:] for each in slot if each.startswith("=")), *asked])
    return (f" -k -a {_fish(words)}" if words else "") + (" -F" if slot == ["files"] else " -f")


def _fish(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


_READ = """\
_ccb_read() { # sets `kinds` and `fixed`, what may stand behind the words `given`, for the start `current`
    local word option= ended= name= position=0
    for word in "${given[@]}"; do
        if [[ -n $option && $word != -* ]]; then option=; continue; fi
        option=
        if [[ $word == -- && -z $ended ]]; then ended=1
        elif [[ $word == -* && -z $ended ]]; then if _ccb_slot "$word"; then option=$word; fi
        elif [[ $position == 0 && -z $name && -z $ended && $_ccb_names == *" $word "* ]]; then name=$word
        else (( ++position )); if [[ $position == 1 ]]; then host=${word%%:*}; fi
        fi
    done
    kinds= fixed=
    if [[ -n $option && $current != -* ]]; then _ccb_slot "$option"
    elif [[ $current == -*=* && -z $ended ]]; then
        head=${current%%=*}=
        current=${current#*=}
        _ccb_slot "${head%=}"
    elif [[ $current == -* && -z $ended ]]; then _ccb_options "$name"
    elif _ccb_slot "$name $host $(( position + 1 ))"; then host= # that was an action
    else
        _ccb_slot "$name $(( position + 1 ))"
        if [[ -z $name && $position == 0 && -z $ended ]]; then fixed=$_ccb_names; fi
    fi
    if [[ -z $name || $host == [./~]* ]]; then host=; fi
}"""

_BASH = """\
# Completion of ccb for bash, made by `ccb completion bash`.
_ccb_ask() { @ASK@ "$@" 2>/dev/null; }
@TABLES@
@READ@
_ccb() {
    local line=${COMP_LINE:0:COMP_POINT} given=() words=() kinds= fixed= head= host= each kind end
    local current=${line##*[[:space:]]}
    read -ra given <<< "${line%"$current"}"
    given=("${given[@]:1}")
    _ccb_read
    for each in $fixed; do words+=("$each "); done
    COMPREPLY=()
    for kind in $kinds; do
        case $kind in
            none) ;;
            files) if [[ $current != *:* ]]; then compopt -o default +o nospace 2>/dev/null; fi ;;
            *)
                if [[ $kind == directories || $kind == paths ]]; then end=; else end=' '; fi
                while IFS=$'\\t' read -r each _; do words+=("$each$end"); done < <(_ccb_ask "$kind" "$current" "$host")
                ;;
        esac
    done
    for each in "${words[@]}"; do # `$2` is what is behind the last colon or `=`
        if [[ $each == "$current"* ]]; then COMPREPLY+=("$2${each#"$current"}"); fi
    done
}
complete -o nospace -F _ccb ccb
"""

_ZSH = """\
#compdef ccb
# Completion of ccb for zsh, made by `ccb completion zsh`.
_ccb_ask() { @ASK@ "$@" 2>/dev/null; }
@TABLES@
@READ@
typeset -gA _ccb_help=(
@HELP@
)
_ccb_offer() { # the words `found` with the texts `about`
    local each
    local -a shown
    for (( each = 1; each <= $#found; ++each )); do shown+=("${found[each]//:/\\:}:$about[each]"); done
    _describe -V ccb shown "$@"
}
_ccb() {
    local current=${(Q)PREFIX} kinds fixed head host kind line
    local -a given=("${(@Q)words[2,CURRENT-1]}") found about
    _ccb_read
    if [[ -n $head ]]; then compset -P '*='; fi
    for line in ${=fixed}; do found+=($line) about+=("$_ccb_help[$line]"); done
    _ccb_offer
    for kind in ${=kinds}; do
        case $kind in
            none) ;;
            files) _files ;;
            *)
                found=() about=()
                for line in ${(f)"$(_ccb_ask $kind "$current" "$host")"}; do
                    found+=("${line%%$'\\t'*}") about+=("${line#*$'\\t'}")
                done
                if [[ $kind == (directories|paths) ]]; then _ccb_offer -S ''; else _ccb_offer; fi
                ;;
        esac
    done
}
if [[ $zsh_eval_context[-1] == loadautofunc || $funcstack[1] == _ccb ]]; then _ccb "$@"; else compdef _ccb ccb; fi
"""

_FISH = """\
# Completion of ccb for fish, made by `ccb completion fish`.
function __ccb_state --description 'the command, the number of the next word behind it, and the host'
    set -l name ''
    set -l host ''
    set -l position 0
    set -l valued ''
    set -l given (commandline -opc)
    for word in $given[2..]
        if test -n "$valued"; and not string match -q -- '-*' $word
            set valued ''
        else if string match -q -- '-*' $word
            set valued (contains -- $word @VALUED@; and echo 1; or echo '')
        else if test $position = 0; and test -z "$name"; and contains -- $word @NAMES@
            set name $word
        else
            set position (math $position + 1)
            test $position = 1; and set host (string split -m 1 : -- $word)[1]
        end
    end
    if test -z "$name"; or string match -q -r -- '^[./~]' $host; set host ''; end
    printf '%s\\n' "$name" (math $position + 1) "$host"
end
function __ccb_in
    contains -- (__ccb_state)[1] $argv
end
function __ccb_at
    set -l state (__ccb_state)
    test "$state[1] $state[2]" = "$argv"; or test "$state[1] $state[3] $state[2]" = "$argv"
end
function __ccb_file_at --description 'not behind the colon of a host, where fish offers files of this machine, too'
    not string match -q -- '*:*' (commandline -ct); and __ccb_at $argv
end
function __ccb_words
    set -l word (commandline -ct | string replace -r -- '^--?[A-Za-z-]+=' '' | string unescape)
    @ASK@ $argv[1] "$word" (__ccb_state)[3] 2>/dev/null
end
complete -c ccb -f
complete -c ccb -n '__ccb_at "" 1' -F
"""
