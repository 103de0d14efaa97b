"""How one command and one option of `ccb` are declared."""

from __future__ import annotations

from enum import Enum

from ccb.tunnel.wire.dataclass import dataclass

from ..option_values import ReadValue, read_text


class Group(Enum):
    """Options that belong together. The value is the attribute of `Arguments` that holds them (`""`: `Arguments`
    itself)."""

    SESSION = "session"
    AGENT = "agent"
    SCREEN = "screen"
    STREAMS = "streams"
    CONNECTION = "connection"
    HOST_COMMAND = "host_command"
    SDK = "sdk"
    GENERAL = ""

    @property
    def title(self) -> str:
        """The heading of the group in the help text."""
        return _TITLES[self]


_TITLES = {
    Group.SESSION: "Session",
    Group.AGENT: "Model and permissions",
    Group.SCREEN: "Terminal interface",
    Group.STREAMS: "Without the terminal interface (headless)",
    Group.CONNECTION: "Connection",
    Group.HOST_COMMAND: "Options of single commands",
    Group.SDK: "For programs that drive ccb (SDKs)",
    Group.GENERAL: "General",
}


class OptionKind(Enum):
    """The kind of value that follows an option."""

    FLAG = "flag"
    VALUE = "value"
    VARIADIC = "variadic"  # every word up to the next option
    REPEAT = "repeat"  # one value, and the option may be given again
    OPTIONAL = "optional"  # a session ID when the next word looks like one


@dataclass(frozen=True)
class Option:
    """One option of the command line.

    `names` are all spellings, the preferred one first. `field` is the attribute of `group`. `help` is one plain
    sentence. `commands` are the only commands that take the option; empty when the group decides (see `Subcommand`).
    """

    names: tuple[str, ...]
    group: Group
    field: str
    kind: OptionKind
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    read: ReadValue = read_text
    commands: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """Return the option as messages name it: `--output-format <format>`."""
        return f"{self.names[0]} <{self.metavar}>" if self.metavar else self.names[0]


@dataclass(frozen=True)
class Subcommand:
    """One command of `ccb`.

    `usage` are its forms, `summary` is one line for the overview, `description` a paragraph. It takes the options of
    `groups` except those named in `without`, its own host-command options, and the general ones.
    """

    name: str
    usage: tuple[str, ...]
    summary: str
    description: str
    groups: tuple[Group, ...] = ()
    without: tuple[str, ...] = ()

    def takes(self, option: Option) -> bool:
        """Return whether the option has an effect with this command."""
        if option.commands:
            return self.name in option.commands
        if option.group is Group.GENERAL:
            return option.field != "version"
        return option.group in self.groups and option.names[0] not in self.without
