"""The types of the names that `__init__.py` loads when they are first used."""

from ccb.local.api import sync as sync
from ccb.local.api.events import Answer as Answer
from ccb.local.api.events import Connection as Connection
from ccb.local.api.events import Event as Event
from ccb.local.api.events import Message as Message
from ccb.local.api.events import Notice as Notice
from ccb.local.api.events import Other as Other
from ccb.local.api.events import Task as Task
from ccb.local.api.events import Text as Text
from ccb.local.api.events import Thinking as Thinking
from ccb.local.api.events import ToolCall as ToolCall
from ccb.local.api.events import ToolOutput as ToolOutput
from ccb.local.api.events import ToolResult as ToolResult
from ccb.local.api.events import TurnFailed as TurnFailed
from ccb.local.api.host import Host as Host
from ccb.local.api.host import SessionInfo as SessionInfo
from ccb.local.api.host import connect as connect
from ccb.local.api.prompts import Prompt as Prompt
from ccb.local.api.questions import Allow as Allow
from ccb.local.api.questions import Approval as Approval
from ccb.local.api.questions import Deny as Deny
from ccb.local.api.questions import Form as Form
from ccb.local.api.questions import Question as Question
from ccb.local.api.session import Session as Session
from ccb.local.api.tools import Tool as Tool
from ccb.local.api.tools import tool as tool
from ccb.local.connect.host_script import Completed as Completed
from ccb.tunnel import errors as errors
from ccb.tunnel.errors import CcbError as CcbError

__version__: str
VERSION_ANSWER: str

def printable(text: str) -> str:
    """Return a text of the host without what could drive a terminal."""
