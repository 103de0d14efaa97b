"""What the doctor says about a master connection of the person's own."""

from __future__ import annotations

from tests.support.hosts.control_master import control_master, socket_directory
from tests.support.hosts.sshd import HostUser, Sshd
from tests.support.person.login import target

from ccb.local.doctor.doctor_findings import Finding, FindingState
from ccb.local.doctor.ssh_checks import master_finding
from ccb.tunnel.ssh.carrier import route


async def test_the_doctor_says_whether_sessions_go_over_the_master(sshd: Sshd, host_user: HostUser) -> None:
    with socket_directory() as sockets:
        path = sockets / f"{host_user.name}@127.0.0.1:{sshd.port}"
        where = target(sshd, host_user, f"ControlPath={path}")
        ((_, config),) = await route(where)

        async def finding(*, allowed: bool = True) -> Finding:
            found = await master_finding(config, where, allowed=allowed)
            assert found is not None
            return found

        assert await master_finding(config, where, allowed=True) is None
        async with control_master(sshd, host_user, path) as master:
            found = await finding()
            assert found.state is FindingState.OK and found.found.startswith(f"{path} answers within ")
            assert "controlMaster is false" in (await finding(allowed=False)).found
            sockets.chmod(0o777)
            assert f"other users may write to {sockets}" in (await finding()).found
            sockets.chmod(0o700)
            master.process.suspend()
            found = await finding()
            assert found.state is FindingState.WARN and "does not answer within 1 s" in found.found
            assert found.fix == f"End it: `ssh -O exit {host_user.name}@127.0.0.1`."
