"""The wire: every message that crosses between laptop and worker, and its NDJSON framing.

The one module both ends share; standard library only, Python 3.9.
"""

from .errors import FrameError
from .frames import (
    PROTOCOL,
    Ack,
    Applied,
    Attach,
    Bye,
    Cancel,
    Credit,
    Data,
    Detach,
    End,
    Event,
    Fenced,
    Frame,
    Head,
    Hello,
    Input,
    Json,
    Open,
    Ping,
    Pong,
    Progress,
    Refused,
    Stop,
    frame_from_dict,
    frame_to_dict,
)
from .ndjson import MAX_LINE, FrameDecoder, LineSplitter, encode_frame
from .options import SessionOptions
from .streams import CHUNK, INITIAL_CREDIT

__all__ = [
    "CHUNK",
    "INITIAL_CREDIT",
    "MAX_LINE",
    "PROTOCOL",
    "Ack",
    "Applied",
    "Attach",
    "Bye",
    "Cancel",
    "Credit",
    "Data",
    "Detach",
    "End",
    "Event",
    "Fenced",
    "Frame",
    "FrameDecoder",
    "FrameError",
    "Head",
    "Hello",
    "Input",
    "Json",
    "LineSplitter",
    "Open",
    "Ping",
    "Pong",
    "Progress",
    "Refused",
    "SessionOptions",
    "Stop",
    "encode_frame",
    "frame_from_dict",
    "frame_to_dict",
]
