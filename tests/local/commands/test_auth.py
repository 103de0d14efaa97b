"""`ccb auth login / status / logout`, run as a person runs them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.forking.process import start_process
from tests.support.model.fake_model import API_KEY, FakeModel
from tests.support.network.http_server import serving
from tests.support.person.terminal import terminal

from ccb.local.command_line.exit_codes import ExitCode
from ccb.local.config.settings import ProviderSettings, Settings
from ccb.local.providers.key_login import target
from ccb.tunnel.providers.credential import Credential
from ccb.tunnel.secret import Secret

pytestmark = pytest.mark.programs

ROOT = Path(__file__).resolve().parents[3]
RUN = "import sys; from ccb.local.main import run; sys.exit(run(['auth', *sys.argv[1:]]))"
CHEAP = (
    "from ccb.local.credentials.encrypted_file import EncryptedFile\n"
    f"EncryptedFile.__init__.__kwdefaults__['cost'] = 1 << 14\n{RUN}"
)
"""The same with a key from a passphrase that is made in 40 ms, not in half a second."""


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


class Machine:
    def __init__(self, tmp_path: Path, upstream: str) -> None:
        self.program = RUN
        self.kind = "ccb and SDKs"
        self.keyring = tmp_path / "keyring.json"
        self.settings = tmp_path / "config" / "ccb" / "settings.json"
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "XDG_CONFIG_HOME": str(tmp_path / "config"),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            "PYTHON_KEYRING_BACKEND": "tests.support.person.file_keyring.FileKeyring",
            "TEST_KEYRING_FILE": str(self.keyring),
            "ANTHROPIC_BASE_URL": upstream,
        }

    @property
    def stored(self) -> list[str]:
        kept = json.loads(self.keyring.read_text()).values() if self.keyring.exists() else []
        return [account["secret"] for text in kept for account in json.loads(text)["accounts"].values()]

    def write_settings(self, content: str) -> None:
        self.settings.parent.mkdir(parents=True)
        self.settings.write_text(content)

    async def auth(self, *args: str, stdin: str = "", **environ: str) -> Outcome:
        process = await start_process(
            self.kind, ["-c", self.program, *args], env={**self.environ, **environ},
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, err = await process.communicate(stdin.encode())
        outcome = Outcome(process.returncode or 0, out.decode(), err.decode())
        assert "Traceback" not in outcome.err
        return outcome


@pytest.fixture
def machine(tmp_path: Path, fake_model: FakeModel) -> Machine:
    return Machine(tmp_path, fake_model.url)


async def test_login_checks_and_stores_a_key_status_and_logout_follow(machine: Machine, fake_model: FakeModel) -> None:
    before = await machine.auth("status")
    login = await machine.auth("login", "--api-key-stdin", stdin=f"  {API_KEY}\n")
    status = await machine.auth("status")
    stored = machine.stored
    logout = await machine.auth("logout")
    again = await machine.auth("logout")
    assert [o.code for o in (before, login, status, logout, again)] == [ExitCode.AUTH_FAILED, 0, 0, 0, 0]
    assert "none" in before.out and "ccb auth login" in before.out
    assert stored == [API_KEY] and machine.stored == []
    assert "an API key in the keyring" in status.out
    assert "Removed" in logout.out and "has no key" in again.out
    (seen,) = fake_model.other_requests
    assert (seen.method, seen.path, seen.headers["x-api-key"]) == ("GET", "/v1/models", API_KEY)
    for outcome in (login, status, logout):
        assert API_KEY not in outcome.out + outcome.err and API_KEY[-4:] not in outcome.out + outcome.err


@pytest.mark.parametrize("stdin", ["", "\n", "two words", "a\nb"])
async def test_what_is_no_key_is_refused_before_a_request(machine: Machine, fake_model: FakeModel, stdin: str) -> None:
    assert (await machine.auth("login", "--api-key-stdin", stdin=stdin)).code == ExitCode.AUTH_FAILED
    assert machine.stored == [] and not fake_model.other_requests


@pytest.mark.quick_rows(3)
@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, ExitCode.AUTH_FAILED, "refused the key (HTTP 401)"),
        (429, 0, ""),
        (None, ExitCode.UNREACHABLE, "HTTPS_PROXY"),
        (500, ExitCode.UNREACHABLE, "could not be checked"),
        (404, 0, ""),
    ],
)
async def test_only_a_key_that_was_checked_is_stored(
    machine: Machine, unused_tcp_port: int, status: int | None, code: int, said: str
) -> None:
    async def handle(_: web.Request) -> web.Response:
        return web.Response(status=status or 200)

    async with serving(handle) as url:
        upstream = url if status else f"http://127.0.0.1:{unused_tcp_port}"
        login = await machine.auth("login", "--api-key-stdin", stdin=API_KEY, ANTHROPIC_BASE_URL=upstream)
    assert (login.code, machine.stored) == (code, [] if code else [API_KEY])
    assert said in login.err and API_KEY not in login.err


async def test_without_a_keyring_login_says_what_else_to_do_before_it_asks(machine: Machine) -> None:
    backend = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    login = await machine.auth("login", "--api-key-stdin", stdin=API_KEY, **backend)
    status = await machine.auth("status", **backend)
    assert (login.code, status.code) == (ExitCode.CONFIG, ExitCode.AUTH_FAILED)
    for text in (login.err, status.out):
        assert "no usable keyring" in text and "export ANTHROPIC_API_KEY" in text and "apiKeyHelper" in text


async def test_status_names_what_outranks_the_keyring(machine: Machine) -> None:
    environ = await machine.auth("status", ANTHROPIC_AUTH_TOKEN="t0ken")
    machine.write_settings('{"apiKeyHelper": "echo k"}')
    helper = await machine.auth("status")
    login = await machine.auth("login", "--api-key-stdin", stdin=API_KEY)
    assert "ANTHROPIC_AUTH_TOKEN from the environment, sent as bearer" in environ.out and "t0ken" not in environ.out
    assert "apiKeyHelper" in helper.out and str(machine.settings) in helper.out
    assert "apiKeyHelper is set, and ccb uses it instead" in login.out


async def test_another_provider_has_its_own_accounts_and_its_key_is_checked_there(machine: Machine) -> None:
    seen: list[tuple[str, str | None]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.path, request.headers.get("authorization")))
        return web.json_response({"data": []}, status=200 if request.headers["authorization"] == "Bearer sk-o" else 401)

    async with serving(handle) as url:
        machine.write_settings(json.dumps({"providers": {"lab": {"kind": "openai", "baseUrl": f"{url}/v1"}}}))
        wrong = await machine.auth("login", "lab", "--api-key-stdin", stdin="sk-wrong")
        login = await machine.auth("login", "lab", "--account", "work", "--api-key-stdin", stdin="sk-o")
        status = await machine.auth("status", "lab", "--json")
        everything = await machine.auth("status")
    assert (wrong.code, login.code, status.code) == (ExitCode.AUTH_FAILED, 0, 0)
    assert seen == [("/v1/models", "Bearer sk-wrong"), ("/v1/models", "Bearer sk-o")]
    found = json.loads(status.out)
    assert (found["provider"], found["account"]) == ("lab", "work")
    assert found["accounts"] == [{"name": "work", "kind": "api_key", "expires": None, "workspace": None}]
    assert "(lab): account work, an API key in the keyring" in everything.out and "sk-o" not in everything.out
    assert "Did you mean lab" in (await machine.auth("status", "labb")).err


@pytest.mark.parametrize(
    ("own", "path", "header"),
    [
        ({"kind": "openrouter", "keyHeader": "x-api-key"}, "/v1/key", "x-api-key"),
        ({"kind": "anthropic-compatible", "keyHeader": "authorization"}, "/v1/v1/models", "authorization"),
    ],
)
async def test_a_key_is_checked_in_the_header_that_was_chosen(own: dict[str, str], path: str, header: str) -> None:
    seen: list[tuple[str, set[str]]] = []

    async def handle(request: web.Request) -> web.Response:
        seen.append((request.path, {"authorization", "x-api-key"} & {name.lower() for name in request.headers}))
        return web.json_response({"data": []})

    async with serving(handle) as url:
        lab = ProviderSettings(**own, baseUrl=f"{url}/v1")  # type: ignore[arg-type]
        where = target("lab", {}, Settings(providers={"lab": lab}))
        assert await where.ask(Credential("the input", api_key=Secret("sk-o")), {}) == 200
    assert seen == [(path, {header})]


@pytest.mark.parametrize("source", ["a token endpoint", "Claude Code's file"])
async def test_a_login_that_is_renewed_shows_when_its_token_ends(machine: Machine, source: str) -> None:
    login = {"access_token": API_KEY, "refresh_token": "refresh-canary", "client_id": "me", "expires_in": 3_000}
    of_claude_code = {"accessToken": API_KEY, "refreshToken": "refresh-canary", "expiresAt": time.time() * 1_000 + 3e6}
    text = json.dumps({"claudeAiOauth": of_claude_code} if source == "Claude Code's file" else login)
    stored = await machine.auth("login", "--oauth-stdin", "--workspace", "wrkspc_1", stdin=text)
    status = await machine.auth("status")
    broken = await machine.auth("login", "--oauth-stdin", stdin='{"access_token": "x"}')
    assert (stored.code, status.code, broken.code) == (0, 0, ExitCode.USAGE)
    assert "a login for workspace wrkspc_1 in the keyring" in status.out
    assert re.search("its token ends in (50|49) min, and is renewed", status.out)
    for outcome in (stored, status, broken):
        assert API_KEY not in outcome.out + outcome.err and "refresh-canary" not in outcome.out + outcome.err


async def test_of_several_accounts_the_one_to_forget_is_named(machine: Machine) -> None:
    first = await machine.auth("login", "--account", "work", "--api-key-stdin", stdin=API_KEY)
    second = await machine.auth("login", "--account", "lab", "--api-key-stdin", stdin=API_KEY)
    status = await machine.auth("status")
    unclear = await machine.auth("logout")
    one = await machine.auth("logout", "--account", "work")
    rest = await machine.auth("logout", "--all")
    assert "To use it" not in first.out, "it is the only one"
    assert '{"credentials": {"account": {"anthropic": "lab"}}}' in second.out
    assert "none is chosen: set credentials.account" in status.out and status.code == ExitCode.AUTH_FAILED
    assert unclear.code == ExitCode.USAGE and "work, lab" in unclear.err
    assert "the account work" in one.out and "Removed" in rest.out and machine.stored == []


async def test_without_a_keyring_a_key_can_be_kept_under_a_passphrase(machine: Machine, tmp_path: Path) -> None:
    machine.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    machine.program, machine.kind = CHEAP, ""  # it has to come before the imports
    machine.write_settings(json.dumps({"credentials": {"passphraseHelper": "echo 'correct horse'"}}))
    login = await machine.auth("login", "--file", "--api-key-stdin", stdin=API_KEY)
    status = await machine.auth("status")
    assert (login.code, status.code) == (0, 0)
    file = machine.settings.with_name("credentials.sealed")
    assert json.loads(file.read_text())["cost"] == 1 << 14, "the test is cheap, and only by its own word"
    assert f"an API key in the encrypted file {file}" in status.out
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or API_KEY.encode() not in path.read_bytes(), path
    assert (await machine.auth("logout")).code == 0 and (await machine.auth("status")).code == ExitCode.AUTH_FAILED


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ([], "See `ccb help"),
        (["nothing"], "See `ccb help"),
        (["login", "--unheard-of"], "See"),
        (["login"], "--api-key-stdin"),
    ],
    ids=str,
)
async def test_wrong_arguments_are_a_usage_error(machine: Machine, args: list[str], says: str) -> None:
    """Without a terminal, login wants an option."""
    outcome = await machine.auth(*args, stdin=API_KEY)
    assert outcome.code == ExitCode.USAGE and says in outcome.err


@pytest.mark.parametrize(
    ("typed", "code"), [(API_KEY + "\n", 0), ("\x03", ExitCode.INTERRUPTED)], ids=["key", "ctrl-c"]
)
async def test_at_a_terminal_the_key_is_asked_for_and_never_echoed(
    machine: Machine, tmp_path: Path, typed: str, code: int
) -> None:
    async with terminal([sys.executable, "-c", RUN, "login"], machine.environ, str(tmp_path)) as running:
        await running.shows("(not shown)")
        assert await running.ended_by(typed) == code
        assert API_KEY not in running.text and "Traceback" not in running.text
    assert machine.stored == ([API_KEY] if code == 0 else [])
