"""Sessions on other nodes of a cluster: the way there over the node that a login has reached, and what there is to do
when a node does not answer. A name leads to any of several nodes with one home; each session runs on one of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from ccb.tunnel.errors import ConnectError, ConnectionLost, DeployError, KeptElsewhere, Node, NodeGone
from ccb.tunnel.transports.container import ContainerTransport
from ccb.tunnel.transports.login_prompts import Prompts
from ccb.tunnel.transports.node import NodeTransport, node_words
from ccb.tunnel.transports.pipe import Transport

from ..config import policy as policies
from ..config.settings import Settings

log = logging.getLogger(__name__)


def through(transport: Transport, node: Node, settings: Settings) -> NodeTransport:
    """Return the way to a node over the host that a login has reached. Its name is the word of that host. Raises
    ConfigError, PolicyRefused."""
    words = node_words(node, settings.nodeCommand)
    policies.check_hop(settings.policy, node.name, settings.nodeCommand)
    return NodeTransport(transport, node, words)


@contextmanager
def node_of(kept: KeptElsewhere, login: Transport, settings: Settings) -> Iterator[NodeTransport]:
    """Yield the way to the node that owns a session. Raises `kept` where no way can be, ConfigError, PolicyRefused;
    NodeGone for an error of the way."""
    node = kept.node
    if node is None or isinstance(login, ContainerTransport):
        raise kept
    there = through(login, node, settings)
    log.info("the session runs on the node %s: going through to it", node.name)
    try:
        yield there
    except (ConnectError, ConnectionLost, DeployError) as error:
        if not login.alive or (isinstance(error, DeployError) and type(error) is not DeployError):
            raise
        raise NodeGone(
            f"node {node.name} cannot be reached",
            evidence="\n".join(filter(None, (error.what, error.evidence))),
            do="Try it later. If that node is gone, go on without it: `ccb attach` with --take-over-node.",
        ) from error


async def says_so(gone: NodeGone, prompts: Prompts) -> bool:
    """Ask whether the session of a node is taken over. Without a person, nobody says so."""
    about = (
        f"{gone.evidence}\nThe session can go on here, from its journal. If its worker still runs on that node, that "
        "ends when it next writes; what its commands do until then is not undone."
    )
    answers = await prompts.challenge(f"{gone.what}.", about, [("Take the session over? (yes/no) ", True)])
    return answers is not None and answers[0].strip().lower() in ("y", "yes")
