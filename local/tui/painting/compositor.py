"""Paints what has changed, and asks no other widget for its rows.

Textual's own compositor asks every widget between the first and the last changed row of the screen: with the status
line and the transcript that is all of them, and always the widgets below others, of which nothing can be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from textual._compositor import ChopsUpdate, Compositor
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget


class LeanCompositor(Compositor):
    """A compositor whose partial updates ask only the widgets that can be seen in what has changed."""

    def __init__(self) -> None:
        super().__init__()
        self._changed: Sequence[Region] = ()

    def render_partial_update(self) -> ChopsUpdate | None:
        screen = self.size.region
        self._changed = [region.intersection(screen) for region in self._dirty_regions]
        try:
            return super().render_partial_update()
        finally:
            self._changed = ()

    def _get_renders(self, crop: Region | None = None) -> Iterable[tuple[Region, Region, list[Strip]]]:
        if not self._changed:
            yield from super()._get_renders(crop)
            return
        asked = self._seen_in(self._changed)
        for widget, (region, clip) in self.visible_widgets.items():
            if widget in asked:
                seen = region.intersection(clip)
                yield region, clip, widget.render_lines(seen.translate(-region.offset))

    def _seen_in(self, changed: Iterable[Region]) -> set[Widget]:
        """Return the widgets that can be seen in regions of the screen: from the front to the one that covers all."""
        asked: set[Widget] = set()
        for region in changed:
            for widget, (place, clip) in self.visible_widgets.items():
                shown = place.intersection(clip)
                if shown.overlaps(region):
                    asked.add(widget)
                    if shown.contains_region(region):
                        break
        return asked
