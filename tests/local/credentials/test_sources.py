"""Where the model credential comes from, in which order, and what each failure says."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from ccb.local.config.settings import CredentialSettings, Settings
from ccb.local.credentials.accounts import Account
from ccb.local.credentials.credential_helper import HelperCredential
from ccb.local.credentials.credential_sources import (
    StoredCredential,
    StoredCredentials,
    api_key_source,
    credential_source,
    environ_credential,
)
from ccb.tunnel.errors import ConfigError, CredentialError
from ccb.tunnel.providers.credential import Credential, CredentialSource
from ccb.tunnel.secret import Secret

PATH = {"PATH": os.environ["PATH"]}


def test_the_environment_gives_key_token_or_both() -> None:
    def found(**environ: str) -> tuple[str, str, dict[str, str]] | None:
        credential = environ_credential(environ)
        return (credential.source, credential.kind, credential.headers()) if credential else None

    assert found() is None
    assert found(ANTHROPIC_API_KEY="", ANTHROPIC_AUTH_TOKEN=" ") is None
    assert found(ANTHROPIC_API_KEY=" k\n") == ("ANTHROPIC_API_KEY", "api_key", {"x-api-key": "k"})
    assert found(ANTHROPIC_AUTH_TOKEN="t") == ("ANTHROPIC_AUTH_TOKEN", "bearer", {"authorization": "Bearer t"})
    both = {"x-api-key": "k", "authorization": "Bearer t"}
    assert found(ANTHROPIC_API_KEY="k", ANTHROPIC_AUTH_TOKEN="t") == ("ANTHROPIC_API_KEY", "api_key+bearer", both)


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "ünïcode", "x" * 20_000])
def test_a_value_that_cannot_be_a_key_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(CredentialError, match="ANTHROPIC_API_KEY") as caught:
        environ_credential({"ANTHROPIC_API_KEY": value})
    assert value not in str(caught.value)


def source_of(environ: dict[str, str], settings: Settings) -> CredentialSource:
    return credential_source(environ, settings, "h", StoredCredentials(environ, settings=settings))


async def test_the_order_is_environment_then_helper_then_stored_accounts(tmp_path: Path) -> None:
    environ = {**PATH, "HOME": str(tmp_path)}
    helper = Settings(apiKeyHelper="echo from-helper")
    assert (await source_of({**environ, "ANTHROPIC_API_KEY": "k"}, helper).get()).source == "ANTHROPIC_API_KEY"
    assert (await source_of(environ, helper).get()).source == "apiKeyHelper"
    assert isinstance(source_of(environ, Settings()), StoredCredential)


async def test_a_workspace_goes_with_keys_of_the_environment_and_of_the_helper(tmp_path: Path) -> None:
    environ = {**PATH, "HOME": str(tmp_path)}
    settings = Settings(apiKeyHelper="echo k", credentials=CredentialSettings(workspace="wrkspc_a"))
    assert (await source_of(environ, settings).get()).headers()["anthropic-workspace-id"] == "wrkspc_a"
    own = {**environ, "ANTHROPIC_API_KEY": "k", "ANTHROPIC_WORKSPACE_ID": "wrkspc_b"}
    assert (await source_of(own, settings).get()).headers()["anthropic-workspace-id"] == "wrkspc_b"
    with pytest.raises(ConfigError, match="ANTHROPIC_WORKSPACE_ID is no workspace"):
        source_of({**own, "ANTHROPIC_WORKSPACE_ID": "a\r\nx: y"}, settings)


async def test_the_settings_say_how_long_the_output_of_the_helper_is_used(tmp_path: Path) -> None:
    settings = Settings(apiKeyHelper=counting_helper(tmp_path), credentials=CredentialSettings(helperSeconds=0))
    source = source_of({**PATH, "HOME": str(tmp_path)}, settings)
    assert [(await source.get()).headers()["x-api-key"] for _ in range(2)] == ["k-1", "k-2"]


def test_only_the_names_of_the_public_protocol_are_told_to_clients() -> None:
    names = ["ANTHROPIC_API_KEY", "apiKeyHelper", "ANTHROPIC_AUTH_TOKEN", "keyring"]
    assert [api_key_source(name) for name in names] == ["ANTHROPIC_API_KEY", "apiKeyHelper", "none", "none"]


async def test_a_token_of_a_login_is_sent_as_one_wherever_it_stands() -> None:
    token = "sk-ant-oat01-token"
    wanted = {"authorization": f"Bearer {token}", "anthropic-beta": "oauth-2025-04-20"}
    for environ in ({"ANTHROPIC_AUTH_TOKEN": token}, {"ANTHROPIC_API_KEY": token}):
        found = environ_credential(environ)
        assert found is not None and found.headers() == wanted
    helper = HelperCredential(f"echo {token}", PATH)
    credential = await helper.get()
    assert credential.headers() == wanted
    assert credential.headers({"anthropic-beta": "a-1"})["anthropic-beta"] == "a-1,oauth-2025-04-20"
    assert not await helper.refused(credential), "the helper gives the same one again"
    for kind in ("api_key", "bearer"):
        assert Account("default", kind, Secret(token)).credential("s").headers() == wanted


async def test_the_helper_is_a_shell_command_whose_output_goes_into_both_headers() -> None:
    credential = await HelperCredential('printf "%s\\n" "k-$((1+1))"', PATH).get()
    assert credential.headers() == {"x-api-key": "k-2", "authorization": "Bearer k-2"}


def counting_helper(tmp_path: Path) -> str:
    """A command that prints k-1, k-2, … on each run."""
    return f'cd "{tmp_path}" && echo x >>runs && echo "k-$(wc -l <runs | tr -d " ")"'


async def test_the_helper_runs_once_for_five_minutes_also_for_calls_at_the_same_time(tmp_path: Path) -> None:
    now = 1000.0
    source = HelperCredential(counting_helper(tmp_path), PATH, clock=lambda: now)
    first = await asyncio.gather(*(source.get() for _ in range(5)))
    now += 299
    later = await source.get()
    now += 2
    fresh = await source.get()
    assert {c.headers()["x-api-key"] for c in [*first, later]} == {"k-1"}
    assert fresh.headers()["x-api-key"] == "k-2"


async def test_a_refused_key_is_fetched_again_and_only_a_new_one_is_worth_a_retry(tmp_path: Path) -> None:
    source = HelperCredential(counting_helper(tmp_path), PATH)
    stale = await source.get()
    assert await source.refused(stale)
    fresh = await source.get()
    assert fresh.headers()["x-api-key"] == "k-2"
    assert await source.refused(stale), "another call has already fetched the new one"
    assert (await source.get()) is fresh
    constant = HelperCredential("echo same", PATH)
    assert not await constant.refused(await constant.get())


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("echo k; echo warn >&2; exit 3", "exit code 3"),
        ("true", "empty"),
        ("echo two; echo lines", "line breaks"),
        ("no-such-command-anywhere", "exit code 127"),
        ("yes k | head -c 100000", "too long"),
        (r"printf 'locked\033[2J' >&2; exit 1", "exit code 1.\nlocked\N{REPLACEMENT CHARACTER}[2J\n"),
        ("cat", "empty"),  # it cannot read the terminal
        ("pass-tool --master hunter22; exit 3", "exit code 3"),
    ],
)
async def test_a_failing_helper_says_how_and_its_command_is_not_repeated(command: str, named: str) -> None:
    with pytest.raises(CredentialError) as caught:
        await HelperCredential(command, PATH).get()
    assert named in str(caught.value) and caught.value.do and "hunter22" not in str(caught.value)


async def test_a_helper_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    command = f'sleep 1000 & echo $! >"{tmp_path}/pid"; wait'
    with pytest.raises(CredentialError, match=r"within 0\.5 s"):
        await HelperCredential(command, PATH, timeout=0.5).get()
    pid = (tmp_path / "pid").read_text().strip()
    state = subprocess.run(["ps", "-o", "stat=", "-p", pid], capture_output=True, text=True, check=False).stdout
    assert not state.strip() or state.startswith("Z")


def test_a_credential_shows_its_source_and_nothing_else() -> None:
    shown = repr(Credential("keyring", api_key=Secret("s3cret"), bearer=Secret("t0ken")))
    assert "keyring" in shown and "s3cret" not in shown and "t0ken" not in shown
