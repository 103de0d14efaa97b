"""A reconnect that nobody is asked in: what it hears on the way is not lost."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.person.ssh_asks import SshAsks

from ccb.local.connect.open_transport import log_in_unattended
from ccb.tunnel.errors import AuthFailed
from ccb.tunnel.transports.command_transport import LocalTransport
from ccb.tunnel.transports.login_prompts import NobodyToAsk, Prompts
from ccb.tunnel.transports.pipe import Transport

URL = "Visit https://login.invalid/abc"


@pytest.mark.parametrize("talks", [["Company property.\n"], [f"{number} " + "x" * 10_000 for number in range(1_000)]])
async def test_words_that_no_login_follows_are_handed_to_the_person_the_last_of_many(talks: list[str]) -> None:
    async def waits(prompts: Prompts) -> Transport:
        for words in (*talks, URL):
            prompts.banner(words)
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(AuthFailed) as caught:
        await log_in_unattended(waits, SshAsks(), "box", limit_s=0.05)
    if len(talks) == 1:
        assert caught.value.what == f"the login to box waits for you: {URL}"
        assert caught.value.evidence == f"Company property.\n{URL}"
    assert caught.value.evidence.endswith(URL) and len(caught.value.evidence) < 50_000


@pytest.mark.parametrize("words", ["", URL])
async def test_a_login_that_comes_is_taken(words: str) -> None:
    person = SshAsks()
    given: list[Prompts] = []

    async def comes(prompts: Prompts) -> Transport:
        given.append(prompts)
        prompts.banner(words)
        assert await prompts.passphrase("key", 1) is None and prompts.memory is person.memory
        return LocalTransport()

    assert (await log_in_unattended(comes, person, "box")).name == "this machine"
    given[0].banner("Words of a command, later.")
    assert person.told == ""


async def test_a_login_that_its_transport_does_not_wait_for_is_waited_for_here() -> None:
    """Afterwards nobody would know that it is this login that needs the person."""
    closed: list[str] = []

    class Ahead(LocalTransport):
        async def logged_in(self) -> None:
            raise AuthFailed("the key is not enough any more")

        async def close(self) -> None:
            closed.append(self.name)
            await super().close()

    async def comes(prompts: Prompts) -> Transport:
        return Ahead()

    with pytest.raises(AuthFailed, match="not enough"):
        await log_in_unattended(comes, SshAsks(), "box")
    assert closed == ["this machine"]


async def test_where_there_is_nobody_the_login_may_take_its_time_and_a_time_out_of_its_own_is_none_of_ours() -> None:
    async def slow(prompts: Prompts) -> Transport:
        prompts.banner(URL)
        await asyncio.sleep(0.2)  # longer than a person's login may take here
        return LocalTransport()

    async def late(prompts: Prompts) -> Transport:
        prompts.banner(URL)
        raise TimeoutError

    assert (await log_in_unattended(slow, NobodyToAsk(), "box", limit_s=0.01)).name == "this machine"
    with pytest.raises(TimeoutError):
        await log_in_unattended(late, SshAsks(), "box")
