"""Take the cells out of a Jupyter notebook. It runs in a process of its own, because a small notebook can take long and
much memory: `python -c SOURCE PATH` prints JSON, the SHA-256 of the file and its pieces, or what is wrong with it."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
Piece = list[Any]

MAX_TEXT = 100_000
"""Most characters of all cells."""
MAX_OUTPUT = 10_000
"""Most characters of one output, without the escape sequences that its process leaves to the worker."""

_MAX_RAW = 4 * MAX_OUTPUT
_MAX_IMAGES = 3_932_160  # characters of base64 of all images
_EACH = 10  # characters that a piece counts for, at least


def pieces(data: bytes) -> list[Piece]:
    """Return `["cell", TEXT]`, `["output", TEXT, CHARACTERS]`, `["image", BASE64]`, and at the limits `["images"]` for
    an image that is not shown and `["cut"]`. Raise ValueError, KeyError, TypeError or AttributeError."""
    book = json.loads(data)
    language = str(book.get("metadata", {}).get("language_info", {}).get("name", "python"))
    found: list[Piece] = []
    room, image_room = MAX_TEXT, _MAX_IMAGES
    for number, cell in enumerate(book["cells"]):
        for kind, text, *size in _cell(number, cell, language):
            if kind == "image":
                image_room -= len(text)
                found.append([kind, text] if image_room >= 0 else ["images"])
            else:
                found.append([kind, text, *size])
                room -= min(len(text), MAX_OUTPUT) if kind == "output" else len(text)
            room -= _EACH
            if room < 0:
                return [*found, ["cut"]]
    return found


def _cell(number: int, cell: Json, language: str) -> Iterator[Piece]:
    kind = cell.get("cell_type", "code")
    about = f' type="{kind}"' if kind != "code" else f' language="{language}"' if language != "python" else ""
    cell_id = cell.get("id", f"cell-{number}")
    text = f'<cell id="{cell_id}"{about}>{_joined(cell.get("source", ""))}'
    yield ["cell", text[: MAX_TEXT + 1] + "</cell>"]
    for output in cell.get("outputs") or []:
        yield from _output(output)


def _output(output: Json) -> Iterator[Piece]:
    data = output.get("data") or {}
    if output.get("output_type") == "stream":
        text = _joined(output.get("text", ""))
    elif output.get("output_type") == "error":
        text = "\n".join(str(line) for line in output.get("traceback") or [output.get("evalue", "")])
    else:
        text = _joined(data.get("text/plain", ""))
    if text:
        yield ["output", text[:_MAX_RAW], len(text)]
    for media_type in ("image/png", "image/jpeg"):
        if media_type in data:
            yield ["image", _joined(data[media_type])]
            return


def _joined(value: object) -> str:
    return "".join(str(part) for part in value) if isinstance(value, list) else str(value)


def main() -> None:
    """Print the pieces of the notebook that the command line names."""
    with open(sys.argv[1], "rb") as file:
        data = file.read()
    answer: Json
    try:
        answer = {"digest": hashlib.sha256(data).hexdigest(), "pieces": pieces(data)}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        answer = {"error": str(error)[:300]}
    sys.stdout.write(json.dumps(answer))  # noqa: TID251 - the answer of a program


if __name__ == "__main__":
    main()
