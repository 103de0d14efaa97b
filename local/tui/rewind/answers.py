"""What the worker says about going back, as typed values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class _RewindAnswer(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class PastPrompt(_RewindAnswer):
    """A prompt to which the person may go back. `files`: how many were changed since."""

    id: str
    text: str = ""
    time: float = 0.0
    files: int = 0


class PastPrompts(_RewindAnswer):
    """The prompts, the newest first. `files_kept`: whether this session keeps earlier versions of files."""

    points: list[PastPrompt] = []
    files_kept: bool = True


class ChangedFile(_RewindAnswer):
    """A file that going back would change. `does`: change, create or remove; `why`: why it cannot be restored."""

    path: str
    insertions: int = 0
    deletions: int = 0
    does: str = "change"
    changedElsewhere: bool = False
    why: str = ""


class RewindPreview(_RewindAnswer):
    """What going back would change, or has changed. `prompt` is the text of the prompt."""

    files: list[ChangedFile] = []
    prompt: str = ""

    @property
    def restorable(self) -> list[ChangedFile]:
        """The files that can be restored."""
        return [each for each in self.files if not each.why]
