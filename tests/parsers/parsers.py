"""Every parser of foreign data that runs in the worker or in the REPL itself, and the language of its texts."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from tests.support.providers.readers import reader_of

from ccb.local.terminal.input_machine import InputMachine
from ccb.local.transcript.blocks import ToolBlock
from ccb.local.transcript.pieces import pieces_of
from ccb.local.tui.rendering import tool_output, untrusted_text
from ccb.local.tui.rendering.diffs import edit_parts
from ccb.local.tui.rendering.markdown import render_markdown
from ccb.local.tui.rendering.themes import DARK, palette_of
from ccb.remote.agent import prompt_opening
from ccb.remote.context.instructions import find_instructions
from ccb.remote.hooks.hook_outcome import read_output
from ccb.remote.model.answer_stream import SseParser
from ccb.remote.permissions.paths import PathPattern, PathScope
from ccb.remote.permissions.rules import Behavior, RuleSet, parse_rules
from ccb.remote.permissions.shell.read_only import is_read_only_command
from ccb.remote.permissions.shell.shell_parser import parse as parse_command
from ccb.remote.permissions.shell.shell_words import NotUnderstood
from ccb.remote.permissions.shell_deny_rules import forbidding_rule
from ccb.remote.search_program.globs import BadRequest, Globs
from ccb.remote.settings.front_matter import read_markdown, read_nested
from ccb.remote.tools import document_programs
from ccb.remote.tools.output import clean
from ccb.remote.tools.text_changes import compared, editable, replace_in
from ccb.remote.tools.tool_contract import ToolRefused
from ccb.remote.tools.web import to_markdown
from ccb.tunnel.providers.translating_provider import StreamTranslator
from ccb.tunnel.wire.json_schema import tool_schema
from ccb.tunnel.wire.mcp_messages import read_messages
from ccb.tunnel.wire.prompt_content import image_size

PALETTE = palette_of(DARK.to_color_system().generate(), dark=True)


def replaced(data: bytes, old: str, new: str, replace_all: bool) -> tuple[bytes, int]:
    """Return the content of a file after an edit, and the number of replacements."""
    text = editable(data)
    done = replace_in(text, old, new, replace_all)
    return text.encoded(done.text), len(done.spans)


def markdown(text: str) -> None:
    """As the REPL draws an answer, all its pieces."""
    for piece in pieces_of(text[:50_000]):
        Console(file=io.StringIO(), width=80).print(render_markdown(piece.text, PALETTE, opening=piece.opening))


def front_matter(text: str) -> None:
    found = read_markdown(f"---\na: b\n{text}\n---\n")
    for lines in found.lines.values():
        read_nested(lines)


def long_edit(text: str) -> None:
    old = text[: len(text) // 3].replace("\r", "") + "x"
    replaced((text + old).encode(), old, "y", True)


def line_difference(text: str) -> None:
    lines = text.split("\n")
    compared("\n".join(lines[::2] + lines), "\n".join(lines + lines[::3]), 40_000)


def stream(text: str) -> None:
    parser = SseParser()
    for at in range(0, len(text), 1000):
        parser.feed(text[at : at + 1000].encode())


def imports(text: str) -> None:
    with TemporaryDirectory() as directory:
        Path(directory, "CLAUDE.md").write_text(text, encoding="utf-8")
        find_instructions(directory, os.path.join(directory, "home"), ["project"])


def shown_text(text: str) -> None:
    """As the REPL shows names and commands of the host."""
    picture = untrusted_text.escaped(text[:50_000])
    untrusted_text.tokens(picture)
    untrusted_text.warnings(text)
    tool_output.last_state(text)


def code(language: str, text: str) -> None:
    """As the REPL draws a piece of code, with the lexer that a host names."""
    fence = f"```{language}\na {text[:19_000].replace('`', '')}?\n```"
    Console(file=io.StringIO(), width=80).print(render_markdown(fence, PALETTE))


def changed_lines(text: str) -> None:
    """As the REPL draws an edit."""
    block = ToolBlock(name="Edit", tool_input={"file_path": "a.c", "old_string": "b", "new_string": f"a {text}?"})
    for part in edit_parts(block, PALETTE, 200, details=True):
        Console(file=io.StringIO(), width=80).print(part)


def mcp_message(text: str) -> None:
    read_messages(text.encode())
    read_messages(b'{"id":1,"result":' + text.encode() + b"}")


def provider_lines(text: str) -> None:
    translator = StreamTranslator(reader_of("openai"))
    for at in range(0, len(text), 20):
        translator.feed(text[at : at + 20].encode())


def hook_answer(text: str) -> None:
    read_output("PreToolUse", 0, text, text)
    read_output("PreToolUse", 1, text, text)


def schema(text: str) -> None:
    """A schema whose parts lead to each other, as the digits say."""
    parts: dict[str, object] = {
        str(at): {("allOf", "anyOf", "oneOf")[int(each) % 3]: [{"$ref": f"#/$defs/{int(each) + n}"} for n in range(3)]}
        for at, each in enumerate(text[:12])
    }
    names: dict[str, object] = {"required": list(text), "properties": {str(at): {} for at in range(len(text) // 20)}}
    parts["12"] = names
    tool_schema({"$defs": parts, "$ref": "#/$defs/0", "anyOf": [names, names]})


def path_rule(text: str) -> None:
    places, path = PathScope("/x", "/h", ("/x",)), text[:4000].replace("*", "a").replace("?", "a")
    PathPattern(f"//x/{text[:300]}c").forbids(f"/x/{path}", places)
    PathPattern(f"{text[:300]}c").allows(f"/x/{path}", places)


def command_rules(text: str) -> None:
    rules = RuleSet()
    rules.add("", Behavior.DENY, parse_rules(["Bash(rm *)", "Bash(a*b*c)", "Read(.env)", "Edit(//x/**/a/**)"]))
    line = text[:20_000]
    forbidding_rule(line, rules, Behavior.DENY, PathScope("/x", "/h", ("/x",)), "/x")
    is_read_only_command(line)


def typed(text: str) -> None:
    machine = InputMachine()
    for at in range(0, len(text), 4096):
        machine.feed(text[at : at + 4096].encode(), at)
    machine.tick(1e9)


Parser = Callable[[str], object]
NO_YAML, NO_EDIT = (ValueError,), (ToolRefused,)
BROKEN = (ValueError, KeyError, TypeError, AttributeError, RecursionError)

PARSERS: dict[str, tuple[Parser, str, tuple[type[Exception], ...]]] = {
    "html": (lambda text: to_markdown(text, "https://e.example/"), "html", ()),
    "markdown": (markdown, "markdown", ()),
    "long_markdown": (lambda text: pieces_of(text * 10), "markdown", ()),
    "front_matter": (front_matter, "yaml", NO_YAML),
    "yaml": (lambda text: read_nested(["", *text[:100_000].split("\n")]), "yaml", NO_YAML),
    "yaml_line": (lambda text: read_nested([text[:100_000].replace("\n", " ")]), "yaml", NO_YAML),
    "one_edit": (lambda text: replaced(text.encode(), "\n", "x\n", True), "text", NO_EDIT),
    "long_edit": (long_edit, "text", NO_EDIT),
    "many_edits": (
        lambda text: replaced((text + text[:4]).encode(), text[:4], "a\nb\n" + text[:2], True), "text", NO_EDIT,
    ),
    "difference": (lambda text: compared(text, text[::-1], 40_000), "text", ()),
    "line_difference": (line_difference, "text", ()),
    "output": (lambda text: clean(text.encode()), "text", ()),
    "stream": (stream, "text", ()),
    "mention": (prompt_opening._MENTION.findall, "text", ()),
    "imports": (imports, "text", ()),
    "command": (lambda text: parse_command(text[:20_000]), "shell", (NotUnderstood,)),
    "command_of_text": (lambda text: parse_command(text[:20_000]), "text", (NotUnderstood,)),
    "shown_text": (shown_text, "text", ()),
    "pdf": (lambda text: document_programs.count_pages(text.encode("latin-1", "replace")), "pdf", ()),
    "notebook": (lambda text: document_programs.pieces(('{"cells":[' + text + "{}]}").encode()), "notebook", BROKEN),
    "image": (
        lambda text: image_size(b"\xff\xd8" + text.encode("latin-1", "replace").replace(b"x", b"\xff")), "text", (),
    ),
    **{each: (partial(code, each), "code", ()) for each in ("c", "csharp", "autohotkey", "python", "html+php", "bash")},
    "changed_lines": (changed_lines, "code", ()),
    "mcp_message": (mcp_message, "json", ()),
    "hook_answer": (hook_answer, "json", ()),
    "provider_lines": (provider_lines, "text", ()),
    "schema": (schema, "schema", ()),
    "path_rule": (path_rule, "glob", ()),
    "search_glob": (lambda text: Globs([text[:10_000]]), "glob", (BadRequest,)),
    "command_rules": (command_rules, "shell", ()),
    "typed": (typed, "text", ()),
}  # fmt: skip
"""Each parser, the language of its texts, and the errors by which it refuses one. Its callers expect no others."""
