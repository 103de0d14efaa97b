"""What the doctor calls a container that a command of `--transport` leads to."""

from __future__ import annotations

import pytest

from ccb.local.command_line.parser import parse_arguments
from ccb.local.doctor.doctor import entered_container


@pytest.mark.parametrize(
    ("command", "title"),
    [
        ("docker exec -i web", "docker exec web"),
        ("/usr/bin/podman exec -i -u www --env TOKEN=hunter2 web sh", "podman exec web"),
        ("docker exec -ie TOKEN=hunter2 web", "docker exec web"),
        ("sudo docker exec --env=TOKEN=hunter2 --user www -it web", "docker exec web"),
        ("kubectl exec -i -n prod pod-7 --", "kubectl exec pod-7"),
        ("kubectl exec -i pod-7 -c app --token hunter2 --", "kubectl exec pod-7"),
        ("docker exec --new-option hunter2 web", ""),
        ("docker exec -i 'web of hunter2'", ""),
        ("docker --tlskey hunter2 exec -i web", ""),
        ("sudo -u me docker exec -i web", ""),
        ("sshpass -p hunter2 ssh web", ""),
        ("docker", ""),
        ("sudo", ""),
    ],
)
def test_the_name_of_a_container_is_shown_and_nothing_else_of_the_command(command: str, title: str) -> None:
    assert entered_container(parse_arguments(["doctor", "--transport", command]).connection) == title


def test_a_name_that_the_person_gave_is_the_one() -> None:
    assert entered_container(parse_arguments(["doctor", "box", "--transport", "docker exec -i web"]).connection) == ""
