"""Missing rights are found before anything starts."""

import pytest

from cpuplan.controller.access import MissingRightsError, Right, needed_rights, require_rights
from cpuplan.kube.client import KubeClient
from tests.fakeapi import FakeApi

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def allow(api: FakeApi, *answers: bool) -> None:
    """The API server's answers, in order."""
    texts = {True: b'{"status": {"allowed": true}}', False: b'{"status": {"allowed": false}}'}
    for answer in answers:
        api.fail(201, path_part=REVIEWS, body=texts[answer])


def test_an_account_that_may_everything_may_start(api: FakeApi, client: KubeClient) -> None:
    allow(api, True, True)
    require_rights(client, [Right("list", "", "pods"), Right("watch", "", "pods")])


def test_all_missing_rights_are_named_in_one_sentence(api: FakeApi, client: KubeClient) -> None:
    allow(api, False, True, False)
    rights = [
        Right("list", "", "pods"),
        Right("watch", "", "pods"),
        Right("get", "coordination.k8s.io", "leases", "cpuplan"),
    ]
    with pytest.raises(MissingRightsError) as raised:
        require_rights(client, rights)
    assert str(raised.value) == (
        "the operator's account may not list pods in all namespaces; get leases.coordination.k8s.io in namespace "
        "cpuplan: bind it to the roles of the chart"
    )


def test_a_right_is_asked_for_as_the_api_names_it(api: FakeApi, client: KubeClient) -> None:
    allow(api, True, True)
    require_rights(client, [Right("create", "", "events"), Right("get", "", "configmaps", "cpuplan")])
    assert [request.body["spec"]["resourceAttributes"] for request in api.requests_of("POST")] == [
        {"verb": "create", "group": "", "resource": "events"},
        {"verb": "get", "group": "", "resource": "configmaps", "namespace": "cpuplan"},
    ]


def test_no_right_to_change_pods_is_needed() -> None:
    assert {right.verb for right in needed_rights("cpuplan") if right.resource == "pods"} == {"list", "watch"}
