"""What is taken for an engine's trace on the machine, and what is not."""

from __future__ import annotations

from tests.cluster.host_traces import docker_rules

SAVED = """\
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
:KUBE-FORWARD - [0:0]
-A INPUT -p tcp --dport 22 -j ACCEPT
-A FORWARD -j DOCKER-USER
-A FORWARD -o br-0123456789ab -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A FORWARD -i br-lan -j ACCEPT
-A FORWARD -j KUBE-FORWARD
-A DOCKER -d 172.18.0.2/32 ! -i br-0123456789ab -p tcp -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
"""


def test_only_rules_with_dockers_chains_or_bridges_are_removed() -> None:
    assert docker_rules(SAVED) == (
        ["DOCKER", "DOCKER-USER"],
        [
            "-A FORWARD -j DOCKER-USER",
            "-A FORWARD -o br-0123456789ab -j DOCKER",
            "-A FORWARD -i docker0 ! -o docker0 -j ACCEPT",
        ],
    )


def test_a_masquerading_rule_of_a_docker_network_is_removed() -> None:
    rule = "-A POSTROUTING -s 172.18.0.0/16 ! -o br-0123456789ab -j MASQUERADE"
    assert docker_rules(f":POSTROUTING ACCEPT [0:0]\n{rule}\n")[1] == [rule]
