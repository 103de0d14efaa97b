"""The only list of tool names: effects, the rules that cover them, how the laptop shows them. A tool's module in
`ccb.remote.tools` adds the description, the input schema and the code."""

from __future__ import annotations

import re
from enum import Enum

from .dataclass import dataclass
from .frames import Json

_RULE_TOOL = r"[A-Za-z_][A-Za-z0-9_.-]*(?:__\*)?|mcp__[^\s(),*]+(?:__\*)?"


class Effect(Enum):
    """What a call may change."""

    NONE = "none"  # nothing outside the session
    READ = "read"
    WRITE = "write"
    EXECUTE = "execute"
    NETWORK = "network"


class RunsOn(Enum):
    """Who runs the tool."""

    HOST = "host"
    LAPTOP = "laptop"
    CLIENT = "client"


class RuleKind(Enum):
    """What the parentheses of a permission rule hold for this tool."""

    COMMAND = "command"  # Bash(git *)
    PATH = "path"  # Edit(src/**)
    DOMAIN = "domain"  # WebFetch(domain:example.com)
    AGENT = "agent"  # Task(Explore)
    PLAIN = "plain"  # nothing: rules name the whole tool


class View(Enum):
    """How the laptop shows a call, in the approval card and in the transcript."""

    COMMAND = "command"  # the command line; the end of its output
    REPLACEMENT = "replacement"  # a diff of `old_string` and `new_string`
    REPLACEMENTS = "replacements"  # the same for each item of `edits`
    NEW_CONTENT = "new_content"  # a diff in which every line of `content` is added
    FILE_LINES = "file_lines"  # the number of lines that were read
    CHECKLIST = "checklist"  # the items of the todo list
    TODO = "todo"  # one item of it
    AGENT = "agent"  # the agent and its task; what the agent does, nested
    QUESTIONS = "questions"  # the `questions` and their answers
    PLAN = "plan"  # the text of `plan`
    OTHER_CALL = "other_call"  # the call of `tool_name` with `params`
    PLAIN = "plain"  # the input; the start of the output

    @property
    def is_diff(self) -> bool:
        return self in (View.REPLACEMENT, View.REPLACEMENTS, View.NEW_CONTENT)

    @property
    def shows_todos(self) -> bool:
        return self in (View.CHECKLIST, View.TODO)


@dataclass(frozen=True)
class PathInput:
    """Where the input names the path of a call. An absent `key` means `default`; "" says that the key is required.
    `glob_key` holds a glob pattern, which names the directory itself when it is absolute."""

    key: str
    default: str = ""
    glob_key: str = ""


@dataclass(frozen=True)
class ToolTraits:
    """The public part of a tool's declaration. `covered_by` names another tool whose rules cover this one as well.
    `parallel`: every call may run beside others. `asks`: every call is a question to the person, and the tool is
    offered only where somebody can be asked. `beside`: not declared where the tool of that name is; the model may call
    it all the same. `searches_content`: it shows lines of many files. `todo_items`: it knows the todo list
    by its items."""

    name: str
    effect: Effect
    rules: RuleKind = RuleKind.PLAIN
    covered_by: str = ""
    path: PathInput | None = None
    view: View = View.PLAIN
    runs_on: RunsOn = RunsOn.HOST
    parallel: bool = False
    aliases: tuple[str, ...] = ()
    main_only: bool = False
    asks: bool = False
    searches_content: bool = False
    beside: str = ""
    todo_items: bool = False

    def file_in(self, tool_input: Json) -> str:
        """Return the file that a call names, "" if it is about no single file."""
        path = tool_input.get(self.path.key) if self.path is not None else None
        is_file = self.view is View.FILE_LINES or self.view.is_diff
        return path if is_file and isinstance(path, str) else ""

    @property
    def rule_names(self) -> tuple[str, ...]:
        return (self.name, *self.aliases, self.covered_by) if self.covered_by else (self.name, *self.aliases)


DEFAULT_AGENT = "general-purpose"  # the sub-agent that is started when a call names none
_FILE = PathInput("file_path")
BASH = ToolTraits("Bash", Effect.EXECUTE, RuleKind.COMMAND, view=View.COMMAND)
BASH_OUTPUT = ToolTraits("BashOutput", Effect.NONE, parallel=True, beside="TaskOutput")
KILL_SHELL = ToolTraits("KillShell", Effect.NONE, beside="TaskStop")
READ = ToolTraits("Read", Effect.READ, RuleKind.PATH, path=_FILE, view=View.FILE_LINES, parallel=True)
GLOB = ToolTraits(
    "Glob", Effect.READ, RuleKind.PATH, READ.name, PathInput("path", ".", glob_key="pattern"), parallel=True
)
GREP = ToolTraits(
    "Grep", Effect.READ, RuleKind.PATH, READ.name, PathInput("path", "."), parallel=True, searches_content=True
)
LS = ToolTraits("LS", Effect.READ, RuleKind.PATH, READ.name, PathInput("path"), parallel=True)
EDIT = ToolTraits("Edit", Effect.WRITE, RuleKind.PATH, path=_FILE, view=View.REPLACEMENT)
MULTI_EDIT = ToolTraits("MultiEdit", Effect.WRITE, RuleKind.PATH, EDIT.name, _FILE, View.REPLACEMENTS)
WRITE = ToolTraits("Write", Effect.WRITE, RuleKind.PATH, EDIT.name, _FILE, View.NEW_CONTENT)
TODO_WRITE = ToolTraits("TodoWrite", Effect.NONE, view=View.CHECKLIST, parallel=True, beside="TaskCreate")
TASK_CREATE = ToolTraits("TaskCreate", Effect.NONE, view=View.TODO, todo_items=True)
TASK_UPDATE = ToolTraits("TaskUpdate", Effect.NONE, view=View.TODO, todo_items=True)
TASK_GET = ToolTraits("TaskGet", Effect.NONE, view=View.TODO, parallel=True, todo_items=True)
TASK_LIST = ToolTraits("TaskList", Effect.NONE, view=View.CHECKLIST, parallel=True, todo_items=True)
TASK = ToolTraits(
    "Task", Effect.NONE, RuleKind.AGENT, view=View.AGENT, parallel=True, aliases=("Agent",), main_only=True
)
TASK_OUTPUT = ToolTraits("TaskOutput", Effect.NONE, parallel=True, main_only=True)
TASK_STOP = ToolTraits("TaskStop", Effect.NONE, main_only=True)
ASK_USER_QUESTION = ToolTraits("AskUserQuestion", Effect.NONE, view=View.QUESTIONS, main_only=True, asks=True)
ENTER_PLAN_MODE = ToolTraits("EnterPlanMode", Effect.NONE, main_only=True, asks=True)
EXIT_PLAN_MODE = ToolTraits("ExitPlanMode", Effect.NONE, view=View.PLAN, main_only=True, asks=True)
TOOL_SEARCH = ToolTraits("ToolSearch", Effect.NONE, parallel=True)
EXECUTE_EXTRA_TOOL = ToolTraits("ExecuteExtraTool", Effect.NONE, view=View.OTHER_CALL)
NOTEBOOK_EDIT = ToolTraits("NotebookEdit", Effect.WRITE, RuleKind.PATH, EDIT.name, PathInput("notebook_path"))
WEB_FETCH = ToolTraits("WebFetch", Effect.NETWORK, RuleKind.DOMAIN, parallel=True)
WEB_SEARCH = ToolTraits("WebSearch", Effect.NETWORK, parallel=True)
SKILL = ToolTraits("Skill", Effect.NONE, parallel=True)  # offered only in sessions that have skills
LIST_MCP_RESOURCES = ToolTraits("ListMcpResourcesTool", Effect.NONE, parallel=True)
READ_MCP_RESOURCE = ToolTraits("ReadMcpResourceTool", Effect.NETWORK, parallel=True)
"""Offered only in sessions with an MCP server that has resources."""

BUILT_IN = {
    traits.name: traits
    for traits in (
        *(BASH, BASH_OUTPUT, KILL_SHELL, GLOB, GREP, LS, READ, EDIT, MULTI_EDIT, WRITE, TODO_WRITE),
        *(TASK_CREATE, TASK_UPDATE, TASK_GET, TASK_LIST, TASK),
        *(ASK_USER_QUESTION, ENTER_PLAN_MODE, EXIT_PLAN_MODE, TASK_OUTPUT, TASK_STOP),
        *(NOTEBOOK_EDIT, WEB_FETCH, WEB_SEARCH),
    )
}
"""By name, in the order in which the model is offered them: it must not change, or prompt caches miss."""

FINDERS = {traits.name: traits for traits in (TOOL_SEARCH, EXECUTE_EXTRA_TOOL)}  # there once others are deferred

_BY_ALIAS = {alias: traits for traits in BUILT_IN.values() for alias in traits.aliases}
_AT_TIMES = {traits.name: traits for traits in (SKILL, LIST_MCP_RESOURCES, READ_MCP_RESOURCE)}
_KNOWN = {**BUILT_IN, **_AT_TIMES, **FINDERS, **_BY_ALIAS}


def is_tool(name: str) -> bool:
    return name in _KNOWN


def no_such_tool(name: str) -> str:
    """Return a sentence that there is no tool of this name, with a near one; "" if there may be one."""
    if name in ("default", "*") or name.startswith("mcp__") or is_tool(name):
        return ""
    from difflib import get_close_matches  # most sessions name no wrong tools

    near = get_close_matches(name, BUILT_IN, n=1)
    return f"there is no tool {name[:80]!r}" + (f"; did you mean {near[0]}?" if near else "")


def traits_of(name: str) -> ToolTraits:
    """Return the traits of a built-in tool, also under an alias. Any other tool may have any effect."""
    return _KNOWN.get(name) or ToolTraits(name, Effect.EXECUTE)


def own_name(name: str) -> str:
    return _BY_ALIAS[name].name if name in _BY_ALIAS else name


def rule_parts(text: str) -> tuple[str, str | None]:
    """Return the tool of a permission rule and the pattern in its parentheses, if any. Raise ValueError."""
    text = text.strip()
    if not text:
        raise ValueError("a permission rule is empty")
    tool, paren, rest = text.partition("(")
    if not re.fullmatch(_RULE_TOOL, tool) or (tool.endswith("__*") and not tool.startswith("mcp__")):
        raise ValueError(f"permission rule {text!r}: {tool!r} is not a tool name; write Tool or Tool(pattern)")
    if not paren:
        return tool, None
    if not rest.endswith(")"):
        raise ValueError(f"permission rule {text!r}: the closing parenthesis is missing or not at the end")
    content = rest[:-1].strip()
    if not content:
        raise ValueError(f"permission rule {text!r}: nothing between the parentheses; write {tool} for every use of it")
    is_path = traits_of(tool).rules is RuleKind.PATH
    if is_path and content.startswith("!"):
        raise ValueError(f"permission rule {text!r}: a pattern cannot be negated; use a rule of the other kind")
    return tool, None if content == "*" or (is_path and content in ("//**", "//")) else content


def split_rules(text: str) -> tuple[list[str], int]:
    """Cut a list of rules at commas and blanks outside parentheses. Also return how many are still open at the end."""
    rules: list[str] = []
    current = ""
    depth = 0
    for char in text:
        depth = max(0, depth + (char == "(") - (char == ")"))
        if depth == 0 and (char == "," or char.isspace()):
            rules.append(current)
            current = ""
        else:
            current += char
    return [rule for rule in [*rules, current] if rule], depth


def mcp_rule_covers(rule: str, name: str) -> bool:
    """Return whether a rule names the tool, its server (`mcp__SERVER`, `mcp__SERVER__*`), or its beginning."""
    if rule == name:
        return True
    if not rule.startswith("mcp__"):
        return False
    server = rule[: -len("__*")] if rule.endswith("__*") else rule
    return name.startswith(server + "__") and (rule.endswith("__*") or server.count("__") == 1)
