"""What is known of the session, its rules and its changes."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pydantic import AliasPath, Field

from ccb.tunnel.errors import CcbError
from ccb.tunnel.plain_text import HostText, one_line
from ccb.tunnel.wire import client_requests as requests
from ccb.tunnel.wire.control_protocol import READS_SERVICES, Request, RequestFailed
from ccb.tunnel.wire.dataclass import dataclass
from ccb.tunnel.wire.tool_traits import BASH, BUILT_IN, Effect, RunsOn, no_such_tool, traits_of

from ..files.copying import size_of
from ..session.session_client import Json, SessionEvent
from ..terminal.stdio import in_thread
from ..transcript.blocks import BlockList, Level
from ..transcript.markdown_export import markdown_of
from ..transcript.session_facts import READING, mode_name, tokens
from ..transcript.tool_calls import agent_label
from ..transcript.transcript_reducer import TranscriptReducer
from .registry import NOTHING, Choices, Live, Reply, ReplyRow, Rows, Text, command, everywhere
from .session_api import Place, SessionApi, WorkerAnswer

SESSION, KEPT = "session", "localSettings"  # where a rule holds: in this session, or always here
_MAX_AGENTS = 20
_JOURNAL = {"volatile": "in a directory that may not outlive a restart of the host", "memory": "in memory only"}


@everywhere("status", "show host, session, worker and connection")
async def status(api: SessionApi, _: str) -> Reply:
    hello, transcript = api.client.hello, api.transcript
    waiting = f", but no answer for {api.client.unanswered_s:.0f} s" if api.client.unanswered_s else ""
    size, sent = api.client.request_bytes
    uploads = [f"Requests    {size_of(size)} to the model, of which the host sent {size_of(sent)}"] if size else []
    facts = transcript.facts
    mode = f"permission mode {mode_name(facts.mode, facts.sandbox)}"
    effort = f", effort {one_line(facts.effort)}" if facts.effort else ""
    node = f" on {hello.node.cell}" if hello.node else ""
    lines = [
        f"Session     {hello.session}",
        *([f"Title       {facts.title}"] if facts.title else []),
        f"Host        {api.info.place}",
        f"Worker      pid {hello.pid}{node}, Python {hello.python.cell} on {hello.platform.cell}",
        f"Connection  {api.client.state.value}{waiting}; journal {_JOURNAL.get(hello.storage, 'on disk')}",
        *uploads,
        f"Model       {HostText(facts.model).cell or 'not known before the first turn'}{effort}, {mode}",
        f"Sandbox     {HostText(facts.sandbox).cell or 'no cage: the worker is of an older version'}",
        f"Used        {_used(transcript)}",
    ]
    return Text(lines)


def _used(transcript: TranscriptReducer) -> str:
    totals = transcript.totals
    return f"{tokens(totals.input_tokens)} tokens in, {tokens(totals.output_tokens)} out, ${totals.cost_usd:.4f}"


@everywhere("cost", "show the tokens and the cost of this session")
async def cost(api: SessionApi, _: str) -> Reply:
    lines = [_used(api.transcript), *filter(None, [api.transcript.totals.context_text])]
    by_agents = []
    for block in api.transcript.agent_calls[-_MAX_AGENTS:]:
        run = block.agent
        if run is not None and run.tokens:
            cost = "" if run.cost_usd is None else f", ${run.cost_usd:.4f}"
            by_agents.append(f"  {agent_label(block.tool_input)[:80]}: {tokens(run.tokens)} tokens{cost}")
    return Text([*lines, *(["Of that, by sub-agents:", *by_agents] if by_agents else [])])


_EFFECTS = {
    Effect.NONE: "changes nothing",
    Effect.READ: "reads files",
    Effect.WRITE: "writes files",
    Effect.EXECUTE: "runs commands",
    Effect.NETWORK: "reads the network",
}
_RUNS_ON = {RunsOn.HOST: "on the host", RunsOn.LAPTOP: "on this laptop", RunsOn.CLIENT: "in the client"}


@everywhere(
    "tools [NAME]",
    "list the tools of the agent: what each may change, and where it runs",
    choices=lambda api: dict.fromkeys(map(one_line, api.transcript.facts.tools or tuple(BUILT_IN)), ""),
    takes_text=True,
)
async def tools(api: SessionApi, sought: str) -> Reply:
    rows = []
    for name in sorted(api.transcript.facts.tools or tuple(BUILT_IN), key=lambda name: name.startswith("mcp__")):
        if name.startswith("mcp__"):
            rows.append(ReplyRow(name, "of an MCP server: /mcp says where it runs", section="MCP servers"))
            continue
        traits = traits_of(name)
        asks = ", asks you each time" if traits.asks else ""
        rows.append(ReplyRow(name, f"{_EFFECTS[traits.effect]}, {_RUNS_ON[traits.runs_on]}{asks}", section="Built in"))
    known = "" if api.transcript.facts.tools else " (before the first turn)"
    return Rows(rows, title=f"Tools of the agent on {api.info.host}{known}", sought=sought)


# The rules that hold.


@dataclass(frozen=True)
class HeldRule:
    """A rule that holds. `behavior`: allow, ask or deny. `source` as in the public protocol."""

    behavior: str
    source: str = ""
    rule: str = ""

    @property
    def is_own(self) -> bool:
        return self.source in (SESSION, KEPT)

    @property
    def in_words(self) -> str:
        """What a rule is about that does not say so itself."""
        return READING if self.rule == f"{BASH.name}({READS_SERVICES})" else ""


@dataclass(frozen=True)
class RuleRows(Rows):
    held: Sequence[HeldRule] = ()


class _HeldRules(WorkerAnswer):
    rules: list[HeldRule] = Field([], validation_alias=AliasPath("state", "rules"))


async def held_rules(api: SessionApi) -> list[HeldRule]:
    """Return the rules that hold. Raise CcbError, RequestFailed, ValidationError."""
    return (await api.read(Request(requests.LIST_RULES, None), _HeldRules)).rules


async def change_rule(api: SessionApi, held: HeldRule, *, adds: bool) -> str:
    """Add a rule or remove one, also in what the laptop keeps. Return what was done. Raise CcbError, RequestFailed."""
    tool, _, content = held.rule.partition("(")
    rule = {"toolName": tool, "ruleContent": content[:-1]} if content else {"toolName": tool}
    kind = "addRules" if adds else "removeRules"
    update: Json = {"type": kind, "rules": [rule], "behavior": held.behavior, "destination": held.source}
    await api.request(Request(requests.CHANGE_RULES, [update]))
    if held.source == KEPT and api.laptop.projects is not None:
        await api.laptop.projects.keep([update])
    wrong = no_such_tool(tool) if adds else ""
    said = f"{'Added' if adds else 'Removed'}: {held.behavior} {held.rule}"
    return one_line(f"{said}, but {wrong}" if wrong else said)


async def _rule_texts(api: SessionApi) -> Choices:
    return {one_line(each.rule): each.behavior for each in await held_rules(api)}


@command(
    "permissions [RULE]", "the rules that allow, ask, deny: origin, add, remove", asked=_rule_texts, takes_text=True
)
async def permissions(api: SessionApi, argument: str) -> Reply:
    word, _, rest = argument.partition(" ")
    rest, held = rest.strip(), await held_rules(api)
    if word in ("allow", "ask", "deny") and rest:
        return Text(await change_rule(api, HeldRule(word, SESSION, rest), adds=True))
    if word == "remove" and rest.isdigit() and 0 < int(rest) <= len(held):
        rule = held[int(rest) - 1]
        if not rule.is_own:
            return Text(f"This rule is not yours to remove here: it comes from {rule.source}.", Level.WARNING)
        return Text(await change_rule(api, rule, adds=False))
    rows = [ReplyRow(f"{each.behavior} {one_line(each.rule)} ({each.source})", each.in_words) for each in held]
    after = "/permissions allow RULE, ask RULE, deny RULE and remove N change them for this session."
    return RuleRows(rows, "No rule holds: what is not harmless is asked.", after, sought=argument, held=held)


# What the agent has changed.


class ChangedFile(WorkerAnswer):
    """A file that going back would change. `does`: change, create or remove; `why`: why it cannot be restored. The
    worker tells the `patch` of a file that is asked for alone."""

    path: str
    insertions: int = 0
    deletions: int = 0
    does: str = "change"
    changedElsewhere: bool = False
    why: str = ""
    patch: list[Json] | None = None
    complete: bool = True


class RewindPreview(WorkerAnswer):
    """What going back would change, or has changed. `prompt` is the text of the prompt."""

    files: Sequence[ChangedFile] = ()
    prompt: str = ""


class PastPrompt(WorkerAnswer):
    """A prompt to which the person may go back. `text` is its beginning; `files`: how many were changed since."""

    id: str
    text: str = ""
    prompt: str = ""
    time: float = 0.0
    files: int = 0


class PastPrompts(WorkerAnswer):
    """The prompts, the newest first. `files_kept`: whether this session keeps earlier versions of files; `summaries`:
    whether its worker can sum up a part of the conversation."""

    points: Sequence[PastPrompt] = ()
    files_kept: bool = True
    summaries: bool = False


@dataclass(frozen=True)
class ChangedFiles(Rows):
    since: str = ""
    files: Sequence[ChangedFile] = ()


_BACK = {"create": "removed", "remove": "new"}  # going back does the contrary of what the agent has done


@everywhere("diff [N]", "show what the agent has changed in this session, a file each, with the lines")
async def diff(api: SessionApi, number: str) -> Reply:
    points = await api.read(Request(requests.REWIND_POINTS, None), PastPrompts)
    if not points.files_kept:
        return Text("This session keeps no versions of files. `! git diff` shows what git knows.")
    none = "The agent's tools have changed no file in this session. `! git status` shows what commands did."
    since = points.points[-1].id if points.points else ""
    if not since:
        return Text(none)
    everything = requests.FileRewind(since, dry_run=True)
    files = (await api.read(Request(requests.REWIND_FILES, everything), RewindPreview)).files
    if number.isdigit() and 0 < int(number) <= len(files):
        one = requests.FileRewind(since, dry_run=True, path=files[int(number) - 1].path)
        found = (await api.read(Request(requests.REWIND_FILES, one), RewindPreview)).files
        return Text(_patch_lines(found[0]) if found else "The lines of this file are not known.")
    if number:
        return Text(f"There is no file {number[:20]}: /diff lists them.", Level.WARNING)
    rows = []
    for place, each in enumerate(files, 1):
        does = f"{_BACK.get(each.does, 'changed')}, +{each.deletions} -{each.insertions}"
        rows.append(ReplyRow(one_line(each.path), does, f"/diff {place}"))
    return ChangedFiles(rows, none, "/diff N shows the lines of one.", since=since, files=files)


def _patch_lines(file: ChangedFile) -> list[str]:
    lines = [one_line(file.path)]
    for hunk in file.patch or ():
        old, new = (f"{hunk.get(f'{side}Start')},{hunk.get(f'{side}Lines')}" for side in ("old", "new"))
        texts = hunk.get("lines")
        lines += [f"@@ -{old} +{new} @@", *map(str, texts if isinstance(texts, list) else ())]
    return lines if file.patch else ["The lines of this file are not known."]


# Its directories, and a question about it.


# Not in headless runs: the text of a prompt must not widen what the run may read.
@command("add-dir PATH", "let the agent work in another directory of the host, too, in this session")
async def add_dir(api: SessionApi, given: str) -> Reply:
    path = given.strip('"')
    if not path:
        return Text("/add-dir PATH lets the agent work in another directory of the host.", Level.WARNING)
    added = (await api.request(Request(requests.ADD_DIRECTORY, path))).get("path")
    return Text(f"The agent may work in {HostText(str(added)).path}, too.")


@command("btw QUESTION", "ask something beside the work; the conversation keeps neither question nor answer")
async def btw(api: SessionApi, question: str) -> Reply:
    if not question:
        return Text("/btw QUESTION asks the model beside the work.", Level.WARNING)
    return Live(_side_answer(api, question))


async def _side_answer(api: SessionApi, question: str) -> AsyncIterator[Rows]:
    title = f"Beside the work: {question}"
    yield Rows([ReplyRow("Asking …")] if api.place is Place.SCREEN else [], title=title)
    try:
        answer = (await api.request(Request(requests.SIDE_QUESTION, question))).get("response")
        said = str(answer or "Before the first answer of the session, the model knows nothing to tell.")
    except (CcbError, RequestFailed) as error:
        said = f"No answer: {error}"
    yield Rows([ReplyRow("", said)], title=title)


# Its name, its text, what is kept of its project.


@everywhere("rename TITLE", "give this session a name for the lists")
async def rename(api: SessionApi, title: str) -> Reply:
    if not title:
        return Text("/rename TITLE gives this session a name, under which /resume and `ccb ps` list it.")
    await api.request(Request(requests.RENAME_SESSION, title))
    return Text(f"This session is now called {title}.")


_PAGE = 1 << 20
_AFTER_ALL = 1 << 52  # no event has such a number
_PUBLIC = ("message", "input")


# Not in headless runs: there, the text of a prompt may come from somebody who must not write files of the laptop.
@command("export [FILE]", "write the whole session to a file on the laptop: FILE.md or FILE.json")
async def export(api: SessionApi, argument: str) -> Reply:
    session = api.client.hello.session
    path = _target(argument or f"ccb-{session[:8]}.md")
    if path.suffix not in (".md", ".json"):
        return Text("/export writes FILE.md or FILE.json.", Level.WARNING)
    try:
        events = await all_events(api)
        if path.suffix == ".json":
            messages = [event.body for event in events if event.kind in _PUBLIC]
            whole = {"session": session, "place": api.info.place, "messages": messages}
            text = json.dumps(whole, ensure_ascii=False, indent=1) + "\n"
        else:
            loaded = BlockList()
            reducer = TranscriptReducer(loaded)
            for event in events:
                reducer.apply_event(event.record, replayed=True)
            text = markdown_of(f"A session of ccb on {api.info.place}", loaded.blocks)
        await in_thread(lambda: write_new(path, text))
    except CcbError as error:
        return Text(f"Nothing was written: {error.what}.", Level.WARNING)
    except OSError as error:
        return Text(f"Nothing was written: {path}: {error.strerror or error}.", Level.WARNING)
    return Text(f"The session is in {path}, on the laptop.")


def _target(name: str) -> Path:
    return Path(name).expanduser().absolute()


async def all_events(api: SessionApi) -> list[SessionEvent]:
    """Return all events of the session, oldest first: also those that are not on the screen. Raise CcbError."""
    pages: list[list[SessionEvent]] = []
    before = _AFTER_ALL
    while page := await api.client.earlier(before, _PAGE):
        pages.append(page)
        before = page[0].seq
    return [event for page in reversed(pages) for event in page]


def write_new(path: Path, text: str) -> None:
    """Write a file that nobody else can read. Raise FileExistsError rather than replace one, and other OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    except OSError:
        path.unlink()
        raise


@command("revoke", "let this session call no models any more; calls under way end at once")
async def revoke(api: SessionApi, _: str) -> Reply:
    api.info.revoke()
    return NOTHING


@command("trust [revoke]", 'show what is kept of this project: trust, "always"; take it back', choices={"revoke": ""})
async def trust(api: SessionApi, argument: str) -> Reply:
    if api.laptop.projects is None:
        return Text("This terminal keeps nothing of projects.")
    return Text(await api.laptop.projects.command(argument))
