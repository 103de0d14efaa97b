"""What the worker says, beside the question about an edit, that the edit would do to the file as it is now."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class EditPreview(BaseModel):
    """The field `file_change` of a `can_use_tool` request. `path` is the real path if that is another than the one of
    the call; `lines` counts those of the present file. Without `complete`, `patch` holds only the first places;
    without `decoded`, the file has bytes that are not UTF-8. `patch` is checked where it is drawn."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    path: str = ""
    created: bool
    lines: int
    added: int
    removed: int
    patch: list[Any]
    complete: bool
    decoded: bool


def read_edit_preview(value: Any) -> EditPreview | None:
    """Return the change that a request describes, or None if it describes none that can be read."""
    try:
        return EditPreview.model_validate(value)
    except ValidationError:
        return None
