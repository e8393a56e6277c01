"""The shared ConfigMap: written only where it differs, repaired when somebody else wrote, emptied without waste."""

import json

import pytest

from cpuplan.controller.indexstore import IndexStore
from cpuplan.controller.packing import MOST_DATA_BYTES, Share
from cpuplan.kube.client import KubeClient
from cpuplan.kube.errors import ConflictError, KubeError
from tests.controller.conftest import writes
from tests.fakeapi import FakeApi

MAPS = "/api/v1/namespaces/cpuplan/configmaps"
BIG = "x" * (MOST_DATA_BYTES * 2 // 3)


@pytest.fixture
def store(client: KubeClient) -> IndexStore:
    """An index that was not read yet."""
    return IndexStore(client, "cpuplan", "cpuplan")


def data(api: FakeApi, name: str = "cpuplan") -> object:
    """What a ConfigMap holds; None when there is none of that name."""
    stored = api.object(f"{MAPS}/{name}")
    return None if stored is None else stored.get("data", {})


def test_an_empty_cluster_gets_an_empty_configmap(api: FakeApi, store: IndexStore) -> None:
    store.write([])
    assert data(api) == {}
    assert writes(api) == [("POST", MAPS)]


def test_the_configmap_says_whose_it_is(api: FakeApi, store: IndexStore) -> None:
    store.write([])
    stored = api.object(f"{MAPS}/cpuplan")
    assert stored is not None
    assert stored["metadata"]["labels"] == {
        "cpuplan.dev/index": "cpuplan",
        "app.kubernetes.io/managed-by": "cpuplan-operator",
    }


def test_an_unchanged_index_is_not_written(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", "1")])
    store.write([Share("a", "1")])
    assert writes(api) == [("POST", MAPS)]


def test_after_a_restart_an_unchanged_index_is_not_written(api: FakeApi, client: KubeClient, store: IndexStore) -> None:
    store.write([Share("a", "1"), Share("b", "2")])
    assert IndexStore(client, "cpuplan", "cpuplan").write([Share("b", "2"), Share("a", "1")]) == []
    assert writes(api) == [("POST", MAPS)]


def test_only_the_nodes_that_differ_are_sent(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", "1"), Share("b", "2"), Share("c", "3")])
    store.write([Share("a", "1"), Share("b", "changed"), Share("d", "4")])
    (patch,) = api.requests_of("PATCH")
    assert patch.body["data"] == {"b": "changed", "c": None, "d": "4"}
    assert data(api) == {"a": "1", "b": "changed", "d": "4"}


def test_every_patch_names_the_version_that_it_changes(api: FakeApi, store: IndexStore) -> None:
    store.write([])
    before = api.object(f"{MAPS}/cpuplan")
    store.write([Share("a", "1")])
    (patch,) = api.requests_of("PATCH")
    assert before is not None
    assert patch.body["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]


def test_a_large_index_is_split_and_gathered_again(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", BIG), Share("b", BIG)])
    assert (data(api), data(api, "cpuplan-1")) == ({"a": BIG}, {"b": BIG})
    store.write([Share("a", "1"), Share("b", "2")])
    assert (data(api), data(api, "cpuplan-1")) == ({"a": "1", "b": "2"}, None)


def test_no_configmap_reaches_512_kib_in_any_encoding(api: FakeApi, store: IndexStore) -> None:
    entry = json.dumps({"status": "Pinned", "mask": "0-31", "address": "0000:1b:00.0"})
    store.write([Share(f"node-{number}", "[" + ",".join([entry] * 400) + "]") for number in range(40)])
    sizes = [len(json.dumps(api.object(f"{MAPS}/{name}"))) for name in ("cpuplan", "cpuplan-1", "cpuplan-2")]
    assert max(sizes) < 512 << 10


def test_after_a_restart_a_split_index_is_found_and_not_written(
    api: FakeApi, client: KubeClient, store: IndexStore
) -> None:
    store.write([Share("a", BIG), Share("b", BIG)])
    count = len(writes(api))
    IndexStore(client, "cpuplan", "cpuplan").write([Share("a", BIG), Share("b", BIG)])
    assert len(writes(api)) == count


def test_an_edit_by_somebody_else_is_undone_when_the_index_is_read_again(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", "1")])
    api.patch(f"{MAPS}/cpuplan", {"data": {"a": "edited", "foreign": "x"}})
    store.forget()
    store.write([Share("a", "1")])
    assert data(api) == {"a": "1"}


def test_a_deleted_configmap_is_made_again(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", "1")])
    api.remove(f"{MAPS}/cpuplan")
    store.forget()
    store.write([Share("a", "1")])
    assert data(api) == {"a": "1"}


def test_a_configmap_without_our_label_is_taken_over(api: FakeApi, store: IndexStore) -> None:
    api.put(f"{MAPS}/cpuplan", {"metadata": {}, "data": {"a": "1"}})
    store.write([Share("a", "1")])
    stored = api.object(f"{MAPS}/cpuplan")
    assert stored is not None
    assert stored["metadata"]["labels"]["cpuplan.dev/index"] == "cpuplan"


def test_a_further_configmap_without_our_label_is_taken_over_when_it_is_needed(api: FakeApi, store: IndexStore) -> None:
    api.put(f"{MAPS}/cpuplan-1", {"metadata": {}, "data": {"b": "1"}})
    shares = [Share("a", BIG), Share("b", BIG)]
    with pytest.raises(ConflictError):
        store.write(shares)
    store.write(shares)
    stored = api.object(f"{MAPS}/cpuplan-1")
    assert stored is not None
    assert stored["metadata"]["labels"]["cpuplan.dev/index"] == "cpuplan"
    assert (data(api), data(api, "cpuplan-1")) == ({"a": BIG}, {"b": BIG})
    assert store.write(shares) == []


def test_a_further_configmap_that_was_not_taken_over_is_not_deleted(api: FakeApi, store: IndexStore) -> None:
    api.put(f"{MAPS}/cpuplan-1", {"metadata": {}, "data": {"foreign": "1"}})
    with pytest.raises(ConflictError):
        store.write([Share("a", BIG), Share("b", BIG)])
    store.write([Share("a", BIG)])
    assert data(api, "cpuplan-1") == {"foreign": "1"}


def test_other_configmaps_are_left_alone(api: FakeApi, store: IndexStore) -> None:
    labels = {"cpuplan.dev/index": "cpuplan"}
    api.put(f"{MAPS}/mine", {"metadata": {"labels": labels}, "data": {"a": "1"}})
    api.put(f"{MAPS}/cpuplan-7", {"metadata": {}, "data": {"a": "1"}})
    store.write([])
    assert (data(api, "mine"), data(api, "cpuplan-7")) == ({"a": "1"}, {"a": "1"})


def test_a_conflict_is_an_error_and_the_next_write_repairs(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", "1")])
    api.patch(f"{MAPS}/cpuplan", {"data": {"a": "by another leader"}})
    api.fail(409, method="PATCH")
    with pytest.raises(ConflictError):
        store.write([Share("a", "2")])
    store.write([Share("a", "2")])
    assert data(api) == {"a": "2"}


def test_a_configmap_that_a_successor_filled_meanwhile_is_not_deleted(api: FakeApi, store: IndexStore) -> None:
    """By a leader that does not know yet that it was replaced."""
    store.write([Share("a", BIG), Share("b", BIG)])
    api.patch(f"{MAPS}/cpuplan-1", {"data": {"b": "of the successor"}})

    with pytest.raises(ConflictError):
        store.write([Share("a", BIG)])

    assert data(api, "cpuplan-1") == {"b": "of the successor"}


def test_a_failed_write_is_made_by_the_next_call(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", "1")])
    api.fail(503, method="PATCH")
    with pytest.raises(KubeError):
        store.write([Share("a", "2")])
    store.write([Share("a", "2")])
    assert data(api) == {"a": "2"}


def test_the_size_counts_nodes_once(api: FakeApi, store: IndexStore) -> None:
    store.write([Share("a", BIG), Share("a", BIG + "y"), Share("b", "1")])
    assert (store.size().configmap_count, store.size().node_count) == (2, 2)
