"""The prompt in the editor of the person, which gets the terminal meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from textual.app import App, SuspendNotSupported

from ..terminal.editor import NoEditor, edited
from .widgets.composer import Composer


async def write_in_editor(app: App[Any], composer: Composer, environ: Mapping[str, str]) -> str:
    """Let the person write the prompt in their editor. Return what went wrong, "" if it is in the composer again."""
    try:
        with app.batch_update(), app.suspend():
            text = await edited(composer.whole_text, environ)
    except (NoEditor, SuspendNotSupported) as error:
        return str(error) or "this terminal cannot be lent to an editor"
    composer.rewritten(text)
    return ""
