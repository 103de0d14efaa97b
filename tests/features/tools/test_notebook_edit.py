"""NotebookEdit on a real file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.remote.tools_kit import Toolbox, open_toolbox

Json = dict[str, Any]
BOOK: Json = {
    "cells": [
        {"cell_type": "markdown", "id": "intro", "metadata": {}, "source": ["# Ä\n", "text"]},
        {"cell_type": "code", "execution_count": 3, "metadata": {"x": 1}, "outputs": [{"a": 1}], "source": "1 + 1"},
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


async def test_cells_are_replaced_inserted_and_deleted(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("n.ipynb", json.dumps(BOOK, indent=2, ensure_ascii=False) + "\n")
        assert "not been read" in str(await refused(box, path, cell_id="intro", new_source="x"))
        await box("Read", file_path=str(path))
        result = await box("NotebookEdit", notebook_path=str(path), cell_id="cell-1", new_source="2 + 2\n3")
        assert result.structured["cell_id"] == "cell-1" and result.structured["language"] == "python"
        text = path.read_text()
        cell = json.loads(text)["cells"][1]
        assert (cell["source"], cell["outputs"], cell["execution_count"]) == (["2 + 2\n", "3"], [], None)
        assert cell["metadata"] == {"x": 1} and text.endswith("}\n") and '\n  "cells"' in text and "Ä" in text
        insert = {"new_source": "new", "cell_type": "code", "edit_mode": "insert"}
        await box("NotebookEdit", notebook_path=str(path), cell_id="intro", **insert)
        await box("NotebookEdit", notebook_path=str(path), **{**insert, "cell_type": "markdown"})
        cells = json.loads(path.read_text())["cells"]
        assert [each["cell_type"] for each in cells] == ["markdown", "markdown", "code", "code"]
        assert cells[2]["source"] == ["new"] and len(cells[2]["id"]) == 8
        await box("NotebookEdit", notebook_path=str(path), cell_id="intro", new_source="", edit_mode="delete")
        assert "intro" not in path.read_text()
        path.write_text(json.dumps(BOOK))
        assert "modified since" in str(await refused(box, path, cell_id="intro", new_source="x"))


async def test_what_is_no_cell_or_no_notebook_is_refused(tmp_path: Path) -> None:
    async with open_toolbox(tmp_path) as box:
        path = box.write("n.ipynb", json.dumps(BOOK))
        await box("Read", file_path=str(path))
        assert "no cell with the id 'nobody'" in str(await refused(box, path, cell_id="nobody", new_source="x"))
        assert "cell_id is needed" in str(await refused(box, path, new_source="x"))
        assert "cell_type is needed" in str(await refused(box, path, new_source="x", edit_mode="insert"))
        assert "not a notebook" in str(await refused(box, box.write("a.txt", "a"), cell_id="a", new_source="x"))
        broken = box.write("b.ipynb", '{"cells": [1]}')
        await box("Read", file_path=str(broken), offset=1, limit=10)
        assert "not a valid notebook" in str(await refused(box, broken, cell_id="a", new_source="x"))
        assert path.read_text() == json.dumps(BOOK)


async def refused(box: Toolbox, path: Path, **tool_input: Any) -> str:
    """Return why a call is refused, before or when it runs."""
    why = box.refusal("NotebookEdit", notebook_path=str(path), **tool_input)
    return why or await box.error("NotebookEdit", notebook_path=str(path), **tool_input)
