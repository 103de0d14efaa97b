"""Make a PNG image smaller, with the standard library only. It runs in a process of its own, because it takes seconds:
`python -c SOURCE PATH MAX_PIXELS MAX_BYTES` writes the image to stdout, and ends with 3 for one it cannot read."""

from __future__ import annotations

import struct
import sys
import zlib
from collections.abc import Iterator

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_MAX_RAW = 600_000_000


class Unreadable(Exception):
    """The image is damaged, or of a kind that this program does not know."""


class Png:
    """A PNG image whose rows are decoded one after the other."""

    def __init__(self, data: bytes) -> None:
        if data[:8] != b"\x89PNG\r\n\x1a\n":
            raise Unreadable
        self.palette = b""
        packed = []
        at = 8
        while at + 8 <= len(data):
            size, kind = struct.unpack(">I4s", data[at : at + 8])
            body = data[at + 8 : at + 8 + size]
            at += 12 + size
            if kind == b"IHDR":
                self.width, self.height, depth, self.colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            elif kind == b"PLTE":
                self.palette = body
            elif kind == b"IDAT":
                packed.append(body)
        self.bytes = depth // 8
        if interlaced or depth not in (8, 16) or self.colour not in _CHANNELS or not self.width * self.height:
            raise Unreadable
        self.step = _CHANNELS[self.colour] * self.bytes
        if self.width * self.step * self.height > _MAX_RAW:
            raise Unreadable
        self._packed = b"".join(packed)

    @property
    def channels(self) -> int:
        """The number of channels of the pixels from `rows`."""
        return 3 if self.colour == 3 else _CHANNELS[self.colour]

    def rows(self) -> Iterator[bytes]:
        """Yield the rows of pixels, 8 bits a channel, without a palette."""
        length = self.width * self.step
        unpack, rest = zlib.decompressobj(), self._packed
        buffer = bytearray()
        before = bytes(length)
        for _ in range(self.height):
            while len(buffer) <= length:
                piece = unpack.decompress(rest, 1 << 20)
                rest = unpack.unconsumed_tail
                if not piece:
                    raise Unreadable
                buffer += piece
            row = _unfiltered(buffer[0], buffer[1 : length + 1], before, self.step)
            del buffer[: length + 1]
            before = row
            yield self._plain(row)

    def _plain(self, row: bytes) -> bytes:
        row = row[::2] if self.bytes == 2 else row
        if self.colour != 3:
            return row
        colours = [self.palette[i : i + 3] for i in range(0, len(self.palette), 3)]
        return b"".join([colours[index] for index in row])


def _unfiltered(kind: int, row: bytearray, before: bytes, step: int) -> bytes:
    size = len(row)
    if kind == 0:
        return bytes(row)
    if kind == 2:
        return _added(row, before)
    if kind == 1:
        for i in range(step, size):
            row[i] = (row[i] + row[i - step]) & 255
    elif kind == 3:
        for i in range(size):
            left = row[i - step] if i >= step else 0
            row[i] = (row[i] + ((left + before[i]) >> 1)) & 255
    elif kind == 4:
        _paeth(row, before, step)
    else:
        raise Unreadable
    return bytes(row)


def _added(row: bytearray, before: bytes) -> bytes:
    """Add two rows byte by byte, as two large numbers."""
    size = len(row)
    low, high = int.from_bytes(b"\x7f" * size, "big"), int.from_bytes(b"\x80" * size, "big")
    one, other = int.from_bytes(row, "big"), int.from_bytes(before, "big")
    return (((one & low) + (other & low)) ^ ((one ^ other) & high)).to_bytes(size, "big")


def _paeth(row: bytearray, before: bytes, step: int) -> None:
    for i in range(min(step, len(row))):
        row[i] = (row[i] + before[i]) & 255
    for i in range(step, len(row)):
        left, above, corner = row[i - step], before[i], before[i - step]
        to_left, to_above = above - corner, left - corner
        to_corner = abs(to_left + to_above)
        to_left, to_above = abs(to_left), abs(to_above)
        if to_left <= to_above and to_left <= to_corner:
            guess = left
        elif to_above <= to_corner:
            guess = above
        else:
            guess = corner
        row[i] = (row[i] + guess) & 255


def scaled(data: bytes, most: int, most_bytes: int) -> bytes:
    """Return the image with at most `most` pixels each way, and at most `most_bytes`. Raise Unreadable."""
    image = Png(data)
    factor = max(1, -(-max(image.width, image.height) // most))
    while True:
        made = _made(image, factor)
        if len(made) <= most_bytes:
            return made
        factor += 1


def _made(image: Png, factor: int) -> bytes:
    """Return the image with each square of `factor` pixels as one pixel: their mean."""
    channels = image.channels
    width, height = image.width // factor or 1, image.height // factor or 1
    out, waiting = bytearray(), []
    count, done = min(factor, image.width) * min(factor, image.height), 0
    for row in image.rows():
        waiting.append(row)
        if len(waiting) < min(factor, image.height) or done == height:
            continue
        line = bytearray(width * channels)
        for channel in range(channels):
            parts = [
                each[channel + shift * channels :: channels * factor][:width]
                for each in waiting
                for shift in range(min(factor, image.width))
            ]
            line[channel::channels] = bytes([sum(pixel) // count for pixel in zip(*parts)])
        out += b"\0" + line
        waiting.clear()
        done += 1
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(out), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body)) for kind, body in chunks
    )


def main() -> int:
    """Scale the image that the command line names."""
    try:
        with open(sys.argv[1], "rb") as file:
            made = scaled(file.read(), int(sys.argv[2]), int(sys.argv[3]))
    except (Unreadable, OSError, struct.error, zlib.error, IndexError, UnboundLocalError):
        return 3
    sys.stdout.buffer.write(made)
    return 0


if __name__ == "__main__":
    sys.exit(main())
