"""Whatever stands in the pod's volume, reading it is an answer, never an exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cpuplan.host.root import HostRoot
from cpuplan.inprocess.published import NotPublished, PublishedPlan, read_published
from cpuplan.model.podplan import PodPlan
from tests.conftest import TreeOf
from tests.podvolume import POD_UID, plan_of_pod

SERVER = "h100-server"
QUICK = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["0-3", "9-", "0-9999999"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
Read = Callable[[bytes], object]


@pytest.fixture
def server(own_machine: TreeOf) -> HostRoot:
    return own_machine(SERVER)


@pytest.fixture
def read(tmp_path: Path, server: HostRoot) -> Read:
    """Reads a volume whose plan holds these bytes."""
    (tmp_path / "uid").write_text(POD_UID)

    def call(content: bytes) -> object:
        (tmp_path / "plan").write_bytes(content)
        return read_published(folder=tmp_path, root=server)

    return call


@pytest.fixture
def document(server: HostRoot) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plan_of_pod(SERVER, server, gpus=(0, 1)).to_json())
    return found


@QUICK
@given(content=st.binary(max_size=200))
def test_bytes_are_no_plan(read: Read, content: bytes) -> None:
    assert isinstance(read(content), NotPublished)


@QUICK
@given(data=st.data())
def test_a_plan_with_any_one_value_replaced_is_a_plan_or_said_to_be_none(
    read: Read, document: dict[str, Any], data: st.DataObject
) -> None:
    spoilt = json.loads(json.dumps(document))
    place, key = data.draw(st.sampled_from(list(places(spoilt))))
    place[key] = data.draw(JSON)

    found = read(json.dumps(spoilt).encode())

    assert isinstance(found, NotPublished | PublishedPlan)
    assert not isinstance(found, PublishedPlan) or PodPlan.from_json(found.pod_plan.to_json()) == found.pod_plan


def places(value: Any) -> Any:
    """Every container of a JSON document with every key or index in it."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])
