"""Changes of files on the screen: the lines of a diff, which the approval card and the transcript share, and how the
transcript draws them."""

from .drawing import EditView
from .lines import DiffLine, content_lines, diff_card_lines, is_patch, patch_lines, planned_lines, replacement_lines

__all__ = [
    "DiffLine",
    "EditView",
    "content_lines",
    "diff_card_lines",
    "is_patch",
    "patch_lines",
    "planned_lines",
    "replacement_lines",
]
