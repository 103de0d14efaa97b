"""Host keys over real sshd: what StrictHostKeyChecking means, certificates, revocations, several files."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
from tests.support.hosts.sshd import HostUser, Sshd, certify, make_key
from tests.support.hosts.sshd import sshd as serve
from tests.support.person.login import Person, logged_in, logs_in, refused, target

from ccb.tunnel.errors import HostKeyError
from ccb.tunnel.ssh.asyncssh_transport import connect
from ccb.tunnel.ssh_config.ssh_target import SshTarget
from ccb.tunnel.transports.login_prompts import NobodyToAsk


def public(key: Path) -> str:
    return key.with_suffix(".pub").read_text()


@pytest.mark.parametrize("strict", ["accept-new", "no", "off"])
async def test_an_unknown_key_is_stored_unasked(sshd: Sshd, host_user: HostUser, tmp_path: Path, strict: str) -> None:
    known = tmp_path / "known_hosts"
    await logs_in(target(sshd, host_user, f"StrictHostKeyChecking={strict}", known=known))
    assert public(sshd.host_key).split()[1] in known.read_text()


async def test_an_unknown_key_is_refused_under_yes(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    known, person = tmp_path / "known_hosts", Person(trust=True)
    there = target(sshd, host_user, "StrictHostKeyChecking=yes", known=known)
    await refused(HostKeyError, there, person, match="StrictHostKeyChecking is yes")
    assert not person.asked and not known.exists()


@pytest.mark.parametrize("strict", ["yes", "accept-new", "ask", "no", "off"])
async def test_a_changed_key_is_always_refused(sshd: Sshd, host_user: HostUser, tmp_path: Path, strict: str) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {public(make_key(tmp_path / 'old'))}")
    before, person = known.read_text(), Person(trust=True)
    there = target(sshd, host_user, f"StrictHostKeyChecking={strict}", known=known)
    error = await refused(HostKeyError, there, person, match="has changed")
    assert known.read_text() == before and not person.asked
    assert f"{known}:1" in error.evidence and ("ssh would connect" in error.evidence) is (strict in ("no", "off"))
    subprocess.run(error.do.split(": ", 1)[1], shell=True, check=True, capture_output=True)
    await (refused(HostKeyError, there, person) if strict == "yes" else logs_in(there, person))


async def test_no_file_for_keys_is_no_hindrance(sshd: Sshd, host_user: HostUser) -> None:
    await logs_in(target(sshd, host_user, "StrictHostKeyChecking=no", known=Path("/dev/null")))


@pytest.mark.parametrize("strict", ["accept-new", "no", "ask"])
async def test_an_unstorable_key_is_said_once(sshd: Sshd, host_user: HostUser, tmp_path: Path, strict: str) -> None:
    (tmp_path / "file").touch()
    known, person = tmp_path / "file" / "known_hosts", Person(trust=True)
    where = target(sshd, host_user, f"StrictHostKeyChecking={strict}", known=known)
    for _ in range(2):
        await logs_in(where, person)
    assert len(person.asked) == (1 if strict == "ask" else 0), "for the life of this ccb the answer counts"
    (said,) = person.told
    assert f"The host key of 127.0.0.1 could not be stored in {known}: " in said
    if strict != "ask":
        assert "Failed to add the host to the list" in ssh(where).stderr, "so says ssh"
    else:
        await logs_in(where, NobodyToAsk(person.memory))
    await refused(HostKeyError, target(sshd, host_user, known=known))


async def test_an_answer_that_was_not_stored_is_about_that_key(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    known, person = tmp_path / "file" / "known_hosts", Person(trust=True)
    async with serve(tmp_path / "other") as other:
        alias = "HostKeyAlias=box"
        await logs_in(target(sshd, host_user, alias, known=known), person)
        there = target(other, host_user, alias, known=known)
        await refused(HostKeyError, there, NobodyToAsk(person.memory), match="not known")


@pytest.mark.parametrize("what", ["a directory", "no text"])
async def test_an_unreadable_file_for_keys_is_passed_over(
    sshd: Sshd, host_user: HostUser, tmp_path: Path, what: str
) -> None:
    broken = tmp_path / "broken"
    if what == "a directory":
        broken.mkdir()
    else:
        broken.write_bytes(b"\xff\0\xfe")
    option = f"UserKnownHostsFile={broken} {sshd.known_hosts}"
    async with logged_in(target(sshd, host_user, option)):
        assert ssh(target(sshd, host_user, option)).returncode == 0, "so does ssh"
    person = Person(trust=True)
    await logs_in(target(sshd, host_user, known=broken), person)
    assert len(person.asked) == 1, "what cannot be read vouches for nobody"
    if what == "a directory":
        assert person.told[0] == f"{broken} cannot be read, so the keys in it are not used: Is a directory."


async def test_a_question_about_a_key_names_other_kinds(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.write_text(f"[127.0.0.1]:{sshd.port} {public(make_key(tmp_path / 'rsa', 'rsa'))}")
    person = Person(trust=False)
    await refused(HostKeyError, target(sshd, host_user, known=known), person, match="not accepted")
    assert person.asked[0].others == (f"{known}:1",)


async def test_the_kind_on_file_is_the_one_that_is_asked_for(host_user: HostUser, tmp_path: Path) -> None:
    rsa = make_key(tmp_path / "rsa", "rsa")
    async with serve(tmp_path / "two", [f"HostKey {rsa}"]) as server:
        known = tmp_path / "known_hosts"
        known.write_text(f"[127.0.0.1]:{server.port} {public(rsa)}")
        async with logged_in(target(server, host_user, known=known)) as transport:
            key = transport.connection.get_server_host_key()
            assert key is not None and key.get_algorithm() == "ssh-rsa"


async def test_keys_of_several_files_are_stored_in_the_first(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    option = f"UserKnownHostsFile={first} {second}"
    await logs_in(target(sshd, host_user, option, "StrictHostKeyChecking=accept-new"))
    assert first.exists() and not second.exists()
    first.rename(second)
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(second)], check=True, capture_output=True)
    assert second.read_text().startswith("|1|")
    await logs_in(target(sshd, host_user, option))
    assert not first.exists()


@pytest.mark.parametrize("pattern", ["[127.0.0.1]:{port}", "127.0.0.1", "*"])
async def test_an_authority_vouches_for_a_host_on_any_port(host_user: HostUser, tmp_path: Path, pattern: str) -> None:
    authority = make_key(tmp_path / "authority")
    key = make_key(tmp_path / "signed")
    options = [f"HostKey {key}", f"HostCertificate {certify(authority, key, '127.0.0.1', '-h')}"]
    async with serve(tmp_path / "server", options) as server:
        known = tmp_path / "known_hosts"
        known.write_text(f"@cert-authority {pattern.format(port=server.port)} {public(authority)}")
        await logs_in(target(server, host_user, known=known))
        known.write_text(known.read_text() + f"@revoked * {public(key)}")
        await refused(HostKeyError, target(server, host_user, known=known), Person(trust=True), match="revoked")
        known.write_text(f"@cert-authority * {public(authority)}@revoked * {public(authority)}")
        await refused(HostKeyError, target(server, host_user, known=known), Person(trust=True), match="revoked")


async def test_a_certificate_is_for_the_name_of_the_host(host_user: HostUser, tmp_path: Path) -> None:
    authority, key = make_key(tmp_path / "authority"), make_key(tmp_path / "signed")
    options = [f"HostKey {key}", f"HostCertificate {certify(authority, key, 'localhost', '-h')}"]
    async with serve(tmp_path / "server", options) as server:
        known = tmp_path / "known_hosts"
        known.write_text(f"@cert-authority * {public(authority)}")
        by_name = dataclasses.replace(target(server, host_user, known=known), host="localhost")
        await logs_in(by_name)


@pytest.mark.parametrize("flaw", ["another authority", "another host", "expired"])
async def test_without_a_proof_the_key_is_judged(host_user: HostUser, tmp_path: Path, flaw: str) -> None:
    authority, other = make_key(tmp_path / "authority"), make_key(tmp_path / "other")
    key = make_key(tmp_path / "signed")
    by, name = (
        other if flaw == "another authority" else authority,
        "example.org" if flaw == "another host" else "127.0.0.1",
    )
    certificate = certify(by, key, name, "-h", *(["-V", "20200101:20200102"] if flaw == "expired" else []))
    async with serve(tmp_path / "server", [f"HostKey {key}", f"HostCertificate {certificate}"]) as server:
        known = tmp_path / "known_hosts"
        vouched = f"@cert-authority * {public(authority)}"
        known.write_text(vouched)
        person = Person(trust=False)
        with pytest.raises(HostKeyError, match="not accepted"):
            both = "HostKeyAlgorithms=ssh-ed25519-cert-v01@openssh.com,ssh-ed25519"
            await connect(target(server, host_user, both, known=known), person)
        assert len(person.asked) == 1
        known.write_text(vouched + f"[127.0.0.1]:{server.port} {public(key)}")
        await logs_in(target(server, host_user, known=known))


async def test_a_key_of_port_22_counts_if_this_port_has_none(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    known, old = tmp_path / "known_hosts", make_key(tmp_path / "old")
    where = target(sshd, host_user, known=known)
    known.write_text(f"127.0.0.1 {public(sshd.host_key)}")
    await logs_in(where)
    known.write_text(f"127.0.0.1 {public(sshd.host_key)}[127.0.0.1]:{sshd.port} {public(old)}")
    error = await refused(HostKeyError, where, Person(trust=True), match="has changed")
    assert f"{known}:2" in error.evidence
    said = ssh(where)
    assert said.returncode == 255 and "IDENTIFICATION HAS CHANGED" in said.stderr, "so says ssh"


def ssh(where: SshTarget, *more: str) -> subprocess.CompletedProcess[str]:
    """What OpenSSH does with the same words."""
    argv = ["ssh", "-F", "none", *where.flags(), "-o", "BatchMode=yes", *more, "--", where.host, "true"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30, stdin=subprocess.DEVNULL)


async def test_revoked_host_keys_are_refused(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    revoked, other = tmp_path / "revoked", make_key(tmp_path / "other")
    where = target(sshd, host_user, f"RevokedHostKeys={revoked}")
    await refused(HostKeyError, where, match="cannot be read")
    assert ssh(where).returncode == 255
    revoked.write_text(f"# old ones\n\n{public(other)}")
    async with logged_in(where):
        assert ssh(where).returncode == 0
    revoked.write_text(f"# old ones\n\n{public(other)}{public(sshd.host_key)}")
    for known in (sshd.known_hosts, tmp_path / "nothing_yet"):
        there = target(sshd, host_user, f"RevokedHostKeys={revoked}", known=known)
        await refused(HostKeyError, there, Person(trust=True), match="is revoked")
    assert ssh(where).returncode == 255
    subprocess.run(["ssh-keygen", "-q", "-k", "-f", str(revoked), f"{other}.pub"], check=True)
    error = await refused(HostKeyError, where, match="cannot be read")
    assert "--transport ssh" in error.do


async def test_lines_of_known_hosts_are_read_as_ssh_reads_them(sshd: Sshd, host_user: HostUser, tmp_path: Path) -> None:
    known, name = tmp_path / "known_hosts", f"[127.0.0.1]:{sshd.port}"
    kind, key, _ = public(sshd.host_key).split()
    where = target(sshd, host_user, "StrictHostKeyChecking=yes", known=known)
    for line, good in (
        (f"{name}\t{kind}\t{key}\r\n", True),
        (f"@trusted {name} {kind} {key}\n", False),
        (f"{name} {kind} {key}\n@revoked\t{name}\t{kind}\t{key}\n", False),
        (f"@revoked 127.0.0.1 {kind} {key}\n127.0.0.1 {kind} {key}\n", False),
        (f"@revoked * {kind} {key}\n127.0.0.1 {kind} {key}\n", False),
    ):
        known.write_text(line)
        assert (ssh(where).returncode == 0) is good
        if good:
            await logs_in(where)
        else:
            await refused(HostKeyError, where)
