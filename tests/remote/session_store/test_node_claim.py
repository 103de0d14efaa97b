"""One node of a shared home owns a session, whatever the locks of the file system are worth: nothing here takes one."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Callable

import pytest

from ccb.remote.session_store import locks, node_claim
from ccb.remote.session_store.journal import Journal
from ccb.remote.session_store.node_claim import NodeClaim, owner_of, take
from ccb.remote.session_store.refusal import HostRefusal

Node = Callable[[str], None]


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Node:
    """Make this process one of a node."""

    def be(name: str) -> None:
        for module in (locks, node_claim):
            monkeypatch.setattr(module, "boot_id", lambda: f"boot of {name}")
        monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", name, "", "", "")))

    return be


@pytest.fixture
def state(tmp_path: Path) -> str:
    (tmp_path / "journal.jsonl").write_text("the records\n")
    return str(tmp_path)


def test_a_session_is_taken_by_one_node_and_after_its_end_by_another(on: Node, state: str) -> None:
    on("n1")
    first = take(state, {})
    on("n2")
    with pytest.raises(HostRefusal) as refused:
        take(state, {})
    assert (refused.value.data["host"], refused.value.data["boot"]) == ("n1", "boot of n1")
    first.release()
    second = take(state, {})
    assert second.holds() and not first.holds() and not second.renewed
    assert owner_of(state, {})["hostname"] == "n2"


@pytest.mark.quick_rows(2)
@pytest.mark.parametrize("gone", ["", "boot of n1"], ids=["free", "of a node that is gone"])
@pytest.mark.parametrize("links", [True, False], ids=["", "without hard links"])
def test_of_many_nodes_that_start_a_session_at_once_one_has_it(
    on: Node, state: str, gone: str, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not links:

        def refuse(*_: object) -> None:
            raise PermissionError(1, "no links here")

        monkeypatch.setattr(os, "link", refuse)
    for _ in range(8 if links else 1):
        for record in Path(state).glob("owner.*"):
            record.unlink()
        if gone:
            on("n1")
            take(state, {})
        begin = time.time() + 0.02
        children = []
        for number in range(6 if links else 1):
            pid = os.fork()
            if not pid:
                on(f"node{number}")
                while time.time() < begin:
                    pass
                try:
                    os._exit(0 if take(state, {}, gone).holds() else 2)
                except HostRefusal:
                    os._exit(1)
                finally:
                    os._exit(3)
            children.append(pid)
        codes = sorted(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children)
        assert codes == [0] + [1] * (len(children) - 1)


def test_what_the_worker_of_a_node_that_was_given_up_still_writes_goes_nowhere(on: Node, state: str) -> None:
    on("n1")
    old = take(state, {})
    with open(os.path.join(state, "journal.jsonl"), "ab") as late:
        on("n2")
        taken = take(state, {}, "boot of n1")
        late.write(b"of the old worker\n")
    assert taken.renewed and not old.holds()
    assert Path(state, "journal.jsonl").read_text() == "the records\n"
    old.release()
    assert taken.holds() and owner_of(state, {})["hostname"] == "n2"


def test_a_node_that_died_while_it_took_a_session_finishes_that(
    on: Node, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    on("n1")
    take(state, {})
    on("n2")
    with monkeypatch.context() as full:
        full.setattr(node_claim, "_renew", fail)
        with pytest.raises(OSError, match="No space"):
            take(state, {}, "boot of n1")
    assert owner_of(state, {})["hostname"] == "n2"
    assert take(state, {}).renewed, "the worker of n1 may still have the journal open"


def test_a_node_that_froze_while_it_started_a_session_leaves_the_journal_of_the_next_owner_alone(
    on: Node, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal, copy = Path(state, "journal.jsonl"), node_claim._renew

    def freeze(path: str, *claim: NodeClaim) -> None:
        monkeypatch.setattr(node_claim, "_renew", copy)
        on("n3")
        owners.append(take(state, {}, "boot of n2"))
        opened.append(os.open(journal, os.O_WRONLY | os.O_APPEND))
        on("n2")
        copy(path, *claim)

    owners: list[NodeClaim] = []
    opened: list[int] = []
    on("n1")
    early = take(state, {})
    on("n2")
    monkeypatch.setattr(node_claim, "_renew", freeze)
    with pytest.raises(OSError, match="taken over"):
        take(state, {}, "boot of n1")
    with pytest.raises(OSError, match="taken over"):
        Journal(str(journal), claim=early)
    os.write(opened[0], b"of the next owner\n")
    os.close(opened[0])
    assert owners[0].holds() and journal.read_text() == "the records\nof the next owner\n"
    assert sorted(os.listdir(state)) == ["journal.jsonl", os.path.basename(owners[0].path)]


def test_nobody_gives_up_a_node_without_a_boot_id_by_saying_nothing(on: Node, state: str) -> None:
    on("n2")
    with pytest.raises(HostRefusal):
        take(state, {"hostname": "n1", "boot": "", "pid": 7}, "")


def test_a_summary_of_an_older_worker_counts(on: Node, state: str) -> None:
    on("n2")
    with pytest.raises(HostRefusal):
        take(state, {"hostname": "n1", "boot": "boot of n1", "pid": 7})
    assert NodeClaim().holds()
