"""The content blocks of an editor's prompt, as blocks of a user message."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Sequence

from ccb.tunnel.plain_text import one_line
from ccb.tunnel.wire.frames import Json
from ccb.tunnel.wire.json_rpc import INVALID_PARAMS, RpcError
from ccb.tunnel.wire.messages import as_dict, as_text
from ccb.tunnel.wire.prompt_content import MAX_IMAGE_BYTES, attached_file, image_block, image_trouble, image_type

from .acp_paths import NotRead, PathMap, local_path, read_in

MAX_TEXT_BYTES = 256 << 10  # of a file that goes along
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
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        raise RpcError(INVALID_PARAMS, f"{one_line(name)[:100]} is not in base64") from None
    return _image_of(data, name)


def _image_of(data: bytes, name: str) -> Json:
    kind = image_type(data[:16])
    trouble = "it is no PNG, JPEG, GIF or WebP" if kind is None else image_trouble(data)
    if len(data) > MAX_IMAGE_BYTES:
        trouble = f"it has {len(data) / 1e6:.1f} MB, and the model takes {MAX_IMAGE_BYTES / 1e6:.1f} MB"
    if kind is None or trouble:
        raise RpcError(INVALID_PARAMS, f"{one_line(name)[:100]} cannot go along: {trouble}")
    return image_block(data, kind)


def _resource(resource: Json, paths: PathMap) -> Json:
    """An embedded file comes with its text, so it need not be there for the agent."""
    uri = as_text(resource.get("uri"))
    if isinstance(resource.get("text"), str):
        return _attached(uri, resource["text"], paths)
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
        data = await asyncio.to_thread(read_in, roots, path, MAX_IMAGE_BYTES)
        if image_type(data[:16]) is not None:
            return _image_of(data, path)
        if len(data) > MAX_TEXT_BYTES:
            raise NotRead(f"it has more than {MAX_TEXT_BYTES >> 10} KB")
        return _attached(uri, data.decode("utf-8-sig"), paths)
    except UnicodeDecodeError:
        why = "it is no text"
    except NotRead as error:
        why = str(error)
    return _text(f"[{one_line(path)}: a file of the person's own machine that does not go along, as {why}]")


def _attached(uri: str, text: str, paths: PathMap) -> Json:
    path, name = local_path(uri), uri
    if path is not None:
        _, mark, lines = uri.partition("#")  # such as L10:20, of which an editor has sent the text
        there = paths.on_host(path)
        name = f"{there}{mark}{lines}" if there else f"{path}{mark}{lines} of the person's own machine"
    return attached_file(_UNFIT.sub("_", name), text)
