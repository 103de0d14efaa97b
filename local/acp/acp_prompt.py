"""The content blocks of an editor's prompt, as blocks of a user message."""

from __future__ import annotations

import asyncio
import base64
import os
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path, PurePosixPath

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import INVALID_PARAMS, RpcError
from ccb.tunnel.wire.messages import as_dict, as_text
from ccb.tunnel.wire.prompt_content import attached_file

from ..tui.composer.attachments import NotAttached, image_attachment, read_attachment
from .acp_paths import PathMap, clean, local_path

_UNFIT = re.compile(r'["<>\r\n]')  # in the name in front of a file's text


async def user_content(prompt: object, paths: PathMap, roots: Sequence[str]) -> list[Json]:
    """Return the blocks of a user message. `roots` are the folders of the editor. Raise RpcError for what the agent
    cannot be given."""
    if not isinstance(prompt, list):
        raise RpcError(INVALID_PARAMS, "a prompt is a list of content blocks")
    blocks = [await _block(as_dict(each), paths, roots) for each in prompt]
    blocks = [each for each in blocks if each.get("text") != ""]  # models refuse them
    if not blocks:
        raise RpcError(INVALID_PARAMS, "the prompt is empty")
    return blocks


def text_of(content: Sequence[Json]) -> str:
    """Return what the person has typed."""
    return "".join(each["text"] for each in content if each.get("type") == "text")


async def _block(block: Json, paths: PathMap, roots: Sequence[str]) -> Json:
    match block.get("type"):
        case "text":
            return _text(as_text(block.get("text")))
        case "image":
            return _image(as_text(block.get("data")), as_text(block.get("uri")) or "the image")
        case "resource":
            return _resource(as_dict(block.get("resource")), paths)
        case "resource_link":
            return await _link(as_text(block.get("uri")), as_text(block.get("name")), paths, roots)
        case kind:
            raise RpcError(INVALID_PARAMS, f"content blocks of type {str(kind)[:40]} are not taken")


def _text(text: str) -> Json:
    return {"type": "text", "text": text}


def _image(encoded: str, name: str) -> Json:
    try:
        return image_attachment(base64.b64decode(encoded, validate=True), one_line(name)[:100], None).block
    except ValueError:
        raise RpcError(INVALID_PARAMS, f"{one_line(name)[:100]} is not in base64") from None
    except NotAttached as error:
        raise RpcError(INVALID_PARAMS, str(error)) from None


def _resource(resource: Json, paths: PathMap) -> Json:
    """An embedded file comes with its text, so it need not be there for the agent."""
    uri = as_text(resource.get("uri"))
    if isinstance(resource.get("text"), str):
        return attached_file(_name(uri, paths), resource["text"])
    if as_text(resource.get("mimeType")).startswith("image/"):
        return _image(as_text(resource.get("blob")), uri)
    raise RpcError(INVALID_PARAMS, f"{one_line(uri)[:100]} cannot go along: it is neither text nor an image")


async def _link(uri: str, name: str, paths: PathMap, roots: Sequence[str]) -> Json:
    """A file that the host has is named, so that the agent reads it there. Any other one is read here."""
    path = local_path(uri)
    if path is None:
        return _text(f"[{name}]({uri})" if name else uri)
    there = paths.on_host(path)
    if there is not None:
        return _text(f'@"{there}"' if " " in there else f"@{there}")
    try:
        opened = partial(open_own_file, roots)
        return (await asyncio.to_thread(read_attachment, Path(path), _name(uri, paths), opened)).block
    except NotAttached as error:
        return _text(f"[A file of the person's own machine does not go along: {one_line(str(error))}]")


def open_own_file(roots: Sequence[str], path: Path, flags: int) -> int:
    """Open a file of the laptop that is in one of the editor's folders. No link is followed from there on, so that none
    leads out, and none that appears meanwhile. Raise NotAttached, OSError."""
    named = PurePosixPath(clean(str(path)))
    for root in map(clean, roots):
        if named.is_relative_to(root) and (parts := named.relative_to(root).parts):
            place = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            for part in parts:
                try:
                    inner = os.open(part, flags | os.O_NOFOLLOW, dir_fd=place)
                finally:
                    os.close(place)
                place = inner
            return place
    raise NotAttached(f"{path} is outside of the folders of the editor")


def _name(uri: str, paths: PathMap) -> str:
    path, name = local_path(uri), uri
    if path is not None:
        _, mark, lines = uri.partition("#")  # such as L10:20, of which an editor has sent the text
        there = paths.on_host(path)
        name = f"{there}{mark}{lines}" if there else f"{path}{mark}{lines} of the person's own machine"
    return _UNFIT.sub("_", name)
