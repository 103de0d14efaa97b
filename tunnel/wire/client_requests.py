"""The requests that clients make of the worker: commands, tasks, thinking, rewind."""

from __future__ import annotations

from collections.abc import Sequence

from .control_protocol import RequestKind, RequestRefused, client_kind, public_fields, value_kind
from .dataclass import dataclass
from .frames import Json
from .messages import as_text
from .model_facts import EFFORTS
from .session_options import CAGES


def _text_kind(name: str, key: str) -> RequestKind[str, Json]:
    return client_kind(name, lambda fields: as_text(fields.get(key)), lambda text: {key: text})


LIST_COMMANDS: RequestKind[None, Json] = client_kind("list_commands", lambda fields: None)
"""The answer holds `commands`: objects with `name`, `description` and `argumentHint`."""

REMEMBER = _text_kind("remember", "note")
"""Add a line to the instruction file of the session's directory. The answer holds its `path`."""

RENAME_SESSION = _text_kind("rename_session", "title")  # give the session a name, which lists of sessions show

ADD_DIRECTORY = _text_kind("add_directory", "path")
"""Let tools use another directory of the host in this session, as `--add-dir`. The answer holds its `path`."""

SIDE_QUESTION = _text_kind("side_question", "question")
"""Ask the model about the conversation, which keeps neither. The answer holds `response`, null before a first turn."""

RELOAD_SKILLS: RequestKind[None, Json] = client_kind("reload_skills", lambda fields: None)
"""The answer holds `skills`: objects with `name` and `description`."""

GET_SETTINGS: RequestKind[None, Json] = client_kind("get_settings", lambda fields: None)
"""The answer holds `applied`, with the `model` in use, the `effort`, and the `offered_models` of an agent of others."""

LIST_HOOKS: RequestKind[None, Json] = client_kind("get_hooks_listing", lambda fields: None)
"""The answer holds `hooks` (objects with `event`, `matcher`, `type`, `source`, `commandText` and more), `problems`."""

LIST_STYLES: RequestKind[None, Json] = client_kind("reload_output_styles", lambda fields: None)
"""The answer holds `styles`: objects with `name`, `description`, `source` and `path`; `output_style` is in force, and
the layer of settings in `set_by` chooses it."""

LIST_AGENTS = _text_kind("list_agents", "name")
"""The answer holds `agents`: definitions with `source` and `path`; with a name only that one, and with its prompt."""

LIST_RULES: RequestKind[None, Json] = client_kind("list_permission_rules", lambda fields: None)
"""The answer holds `state`, with `rules`: objects with `behavior`, `source` and `rule`."""


def _rule_changes(fields: Json) -> list[Json]:
    updates = fields.get("updates")
    changes = [each for each in updates if isinstance(each, dict)] if isinstance(updates, list) else []
    if not changes or any(each.get("type") not in ("addRules", "removeRules") for each in changes):
        raise RequestRefused("change_permission_rules takes addRules and removeRules")
    return changes


CHANGE_RULES: RequestKind[list[Json], Json] = client_kind(
    "change_permission_rules", _rule_changes, lambda updates: {"updates": updates}
)
"""The person adds permission rules, or removes rules of theirs: updates in the public shape."""

SHELL_CALL = "shell_"  # starts the id of the call that runs a command line of the person. Only its progress names it

SHELL_COMMAND = "shell_command"
"""The field of a user message that is a command line of the person, `! make`, and the capability of a worker that runs
it. A text that begins with `!` is none: it may come from anybody."""

SET_SANDBOX: RequestKind[str, Json] = value_kind(
    "set_sandbox", "sandbox", lambda mode: mode in CAGES, f"the sandbox must be one of {', '.join(CAGES)}"
)
"""Choose the cage of commands that run without a question. The answer holds the `sandbox` in force, in words. The name
is also the capability of a worker that does so."""

DEFAULT_THINKING_TOKENS = 10_000  # the budget of thinking that is switched on without a number
_MAX_TAUGHT = 1_000


def _read_models(fields: Json) -> Json:
    known = {name: fields.get(name) for name in ("models", "thinking")}
    if not all(isinstance(each, dict) and len(each) <= _MAX_TAUGHT for each in known.values()):
        raise RequestRefused("models and thinking must be objects")
    return known


LEARN_MODELS: RequestKind[Json, Json] = client_kind("learn_models", _read_models, lambda known: known)
"""Before another model is chosen: what is known of it, as `model_facts` and `thinking_models` of options."""
SET_EFFORT: RequestKind[str | None, Json] = value_kind(
    "set_effort", "effort", lambda level: level in (None, *EFFORTS), f"the effort must be one of {', '.join(EFFORTS)}"
)
SET_MAX_THINKING_TOKENS: RequestKind[int | None, Json] = value_kind(
    "set_max_thinking_tokens",
    "max_thinking_tokens",
    lambda tokens: tokens is None or (type(tokens) is int and tokens >= 0),
    "max_thinking_tokens must be a number of tokens or null",
)

DROPS_MORE = "Resume rejected by --resume-drops-turn:"  # begins a refusal. SDK clients compare it


@dataclass(frozen=True)
class FileRewind:
    """Restore the files changed since the message. `dry_run`: only say what would change, and the lines of `path`."""

    user_message_id: str
    dry_run: bool = False
    path: str = ""


@dataclass(frozen=True)
class ConversationRewind:
    """Take the conversation back to before the prompt, or to after the message `after`, perhaps with `files`. `drops`:
    refuse if more than the turn of this prompt would be left out."""

    user_message_id: str = ""
    after: str = ""
    files: bool = False
    drops: str = ""


def _read_files(fields: Json) -> FileRewind:
    if not as_text(fields.get("user_message_id")):
        raise RequestRefused("rewind_files needs a user_message_id")
    dry_run = fields.get("dry_run") is True
    return FileRewind(as_text(fields["user_message_id"]), dry_run, as_text(fields.get("path")) if dry_run else "")


def _read_conversation(fields: Json) -> ConversationRewind:
    message, after = as_text(fields.get("user_message_id")), as_text(fields.get("after"))
    if bool(message) == bool(after):
        raise RequestRefused("rewind_conversation needs a user_message_id or the message to go back to in `after`")
    return ConversationRewind(message, after, fields.get("files") is True, as_text(fields.get("drops")))


REWIND_FILES: RequestKind[FileRewind, Json] = client_kind("rewind_files", _read_files, public_fields)
REWIND_CONVERSATION: RequestKind[ConversationRewind, Json] = client_kind(
    "rewind_conversation", _read_conversation, public_fields
)
REWIND_POINTS: RequestKind[None, Json] = client_kind("rewind_points", lambda fields: None)

BACKGROUND_TASKS: RequestKind[None, Json] = client_kind("background_tasks", lambda fields: None)
"""Let the running foreground commands go on in the background."""

STOP_TASK = _text_kind("stop_task", "task_id")
READ_TASK = _text_kind("read_task", "task_id")  # return the end of what a task has put out

CANCEL_ASYNC_MESSAGE = _text_kind("cancel_async_message", "message_uuid")
"""Take back a prompt that no turn has taken, by the uuid of its message."""


@dataclass(frozen=True)
class QueueMove:
    """A waiting prompt goes in front of the first of `before` that still waits, or last. `steers`: it no longer waits
    for the end of the running turn."""

    uuid: str
    before: Sequence[str] = ()
    steers: bool = False


def _queue_move(fields: Json) -> QueueMove:
    before = fields.get("before")
    uuids = [str(each) for each in before] if isinstance(before, list) else []
    return QueueMove(str(fields.get("message_uuid")), uuids, fields.get("steer") is True)


MOVE_ASYNC_MESSAGE: RequestKind[QueueMove, Json] = client_kind(
    "move_async_message",
    _queue_move,
    lambda move: {"message_uuid": move.uuid, "before": list(move.before), **({"steer": True} if move.steers else {})},
)
"""Give a prompt that no turn has taken another place among those that wait. The answer says whether it was `moved`."""
