"""What a host says of the node of a session leads nowhere that the laptop does not allow."""

from __future__ import annotations

import pytest

from ccb.deploy.bundle import Bundle
from ccb.local.commands import host_commands
from ccb.local.commands.host_commands import with_their_nodes
from ccb.local.config.settings import PolicySettings, Settings
from ccb.local.connect.nodes import node_of, says_so, through
from ccb.local.connect.session_rows import SessionRow
from ccb.local.connect.startup import LoadedBasics
from ccb.tunnel.errors import CcbError, KeptElsewhere, Node, NodeGone, Unreachable, UsageError
from ccb.tunnel.link.worker_refusals import refusal_error
from ccb.tunnel.plain_text import HostText
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.container import ContainerTransport
from ccb.tunnel.transports.login_prompts import NobodyToAsk
from ccb.tunnel.transports.pipe import Transport
from ccb.tunnel.wire.frames import Refused


@pytest.mark.parametrize(
    ("policy", "command", "says"),
    [
        (PolicySettings(), "oc rsh {node}", ""),
        (PolicySettings(hosts=["login", "n*"]), "", ""),
        (PolicySettings(hosts=["login"]), "", "the host n1 (hosts)"),
        (PolicySettings(hosts=["n1"]), "oc rsh {node}", "made by 'oc rsh {node}' (commands)"),
        (PolicySettings(hosts=["n1"], commands=["oc *"]), "oc rsh {node}", ""),
    ],
)
async def test_the_policy_holds_for_nodes_and_for_the_way_there(
    policy: PolicySettings, command: str, says: str
) -> None:
    login, settings = LocalTransport({}), Settings(policy=policy, nodeCommand=command)
    if not says:
        assert through(login, Node("n1", "b"), settings).name == "n1 (over this machine)"
        return
    with pytest.raises(CcbError) as refused:
        through(login, Node("n1", "b"), settings)
    assert says in refused.value.what


def test_an_error_of_the_way_says_that_there_is_none() -> None:
    kept = KeptElsewhere("kept")
    kept.node = Node("n1", "the boot")
    with pytest.raises(NodeGone) as gone, node_of(kept, LocalTransport({}), Settings()):
        raise Unreachable("no route to host")
    assert gone.value.what == "node n1 cannot be reached"
    assert gone.value.evidence == "no route to host"
    with pytest.raises(UsageError), node_of(kept, LocalTransport({}), Settings()):
        raise UsageError("the worker of the node has refused it")


async def test_without_a_person_nobody_gives_a_node_up() -> None:
    assert not await says_so(NodeGone("gone"), NobodyToAsk())


async def test_a_list_asks_few_nodes_and_shows_no_name_as_words_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nothing(transport: Transport, _: Bundle) -> list[SessionRow]:
        asked.append(transport.name)
        return []

    asked: list[str] = []
    monkeypatch.setattr(host_commands, "list_sessions", nothing)
    names = ["all is well: run `x`", *(f"n{number}" for number in range(1000))]
    rows = [SessionRow(session=f"s{index}", host=HostText(name)) for index, name in enumerate(names)]
    basics = LoadedBasics(Settings(), Bundle(b"", ""))
    found, silent = await with_their_nodes(rows, LocalTransport({}), basics)
    assert found == rows and 0 < len(asked) < 100
    assert silent == [f"the node {HostText(names[0])} lists no sessions: '{names[0]}' is no name of a node"]


@pytest.mark.parametrize(
    ("data", "login"),
    [
        ({"host": "box"}, LocalTransport({})),
        ({"host": "n1", "boot": ""}, LocalTransport({})),
        ({"host": "n" * 400, "boot": "b"}, LocalTransport({})),
        ({"host": "n1", "boot": "b"}, ContainerTransport(LocalTransport({}), "web")),
    ],
    ids=["another container", "no boot", "no name", "the session is in a container"],
)
def test_where_no_way_can_be_the_refusal_stands(data: dict[str, object], login: Transport) -> None:
    kept = refusal_error(Refused("in_use", "kept elsewhere", data), "login")
    assert isinstance(kept, KeptElsewhere)
    with pytest.raises(KeptElsewhere), node_of(kept, login, Settings()):
        raise AssertionError("nothing runs")
