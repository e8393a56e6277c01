"""What the API server and the kubelet may answer: values, or the one error that their readers name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, cast

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from cpuplan.agent.claims import ClaimReader, NotAllocated
from cpuplan.agent.planned import DeviceResources
from cpuplan.agent.podresources import parse_assignments
from cpuplan.agent.podresources_messages import message_class
from cpuplan.controller.observed import observed_pod
from cpuplan.host.devices import UnplacedDevice
from cpuplan.kube.answers import json_object, refusal
from cpuplan.kube.client import KubeClient
from cpuplan.kube.errors import KubeError, UnexpectedAnswerError
from cpuplan.kube.pods import parse_pod
from cpuplan.model.cpulist import MAX_CPU
from tests.fuzz.effort import fuzz
from tests.fuzz.mutation import file_contents, json_values, outcome_of

IDENTITY = {"namespace": "default", "name": "llm-0", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"}
POD_KEYS = (
    *("containers", "initContainers", "resources", "limits", "claims", "name", "cpu", "nvidia.com/gpu", "nodeName"),
    *("containerStatuses", "state", "terminated", "running", "containerID", "restartCount", "resourceClaims"),
    *("env", "envFrom", "value", "command", "args", "restartPolicy", "restartPolicyRules"),
    *("resourceClaimName", "resourceClaimStatuses", "extendedResourceClaimStatus", "requestMappings", "conditions"),
)
METADATA_KEYS = ("annotations", "labels", "managedFields", "fieldsV1", "f:metadata", "time", "deletionTimestamp")
CLAIM_KEYS = (
    *("status", "allocation", "devices", "results", "request", "driver", "pool", "device", "shareID", "adminAccess"),
)
SLICE_KEYS = (
    "spec",
    "driver",
    "pool",
    "name",
    "generation",
    "devices",
    "basic",
    "attributes",
    "string",
    "uuid",
    "pciBusID",
    "items",
)

PARTS = st.dictionaries(st.sampled_from(("spec", "status")), json_values(POD_KEYS))
METADATA = st.dictionaries(st.sampled_from(METADATA_KEYS), json_values(METADATA_KEYS))


@fuzz
@given(PARTS, METADATA)
def test_any_object_with_an_identity_is_a_pod_to_the_agent(parts: dict[str, Any], metadata: dict[str, Any]) -> None:
    assert parse_pod({**parts, "metadata": {**metadata, **IDENTITY}}).name == "llm-0"


@fuzz
@given(json_values(("metadata", "spec", *METADATA_KEYS)))
def test_any_other_json_is_refused_by_the_agent(content: Any) -> None:
    pod = outcome_of(lambda: parse_pod(content if isinstance(content, dict) else {}), UnexpectedAnswerError)
    assert isinstance(pod, UnexpectedAnswerError)


@fuzz
@given(PARTS, METADATA)
def test_an_object_is_a_pod_to_the_operator_or_an_error(parts: dict[str, Any], metadata: dict[str, Any]) -> None:
    content = {**parts, "metadata": {**metadata, **IDENTITY}}
    pod = outcome_of(lambda: observed_pod(content), KeyError, TypeError, ValueError, AttributeError)
    assert isinstance(pod, Exception) or pod.uid == "u"


@fuzz
@given(file_contents(('{"kind":"Status","reason":"Gone","message":"too old"}', "[]", "")), st.integers(300, 599))
def test_an_answer_is_an_object_or_an_error_of_ours(content: bytes, status: int) -> None:
    answer = outcome_of(lambda: json_object("GET /x", content), UnexpectedAnswerError)
    assert isinstance(answer, dict | UnexpectedAnswerError)
    assert isinstance(refusal("GET /x", status, content), KubeError)


class FixedAnswers:
    """An API client that answers with one claim and one list of slices."""

    def __init__(self, claim: Any, slices: Any) -> None:
        self._claim, self._slices = claim, slices

    def get(self, path: str, _query: Mapping[str, str] | None = None) -> Any:
        """The answer for the path."""
        return self._claim if "resourceclaims" in path else self._slices


CLAIMED = {"results": [{"request": "gpu", "driver": "gpu.nvidia.com", "pool": "n", "device": "gpu-0"}]}
CLAIMS = st.dictionaries(st.sampled_from(CLAIM_KEYS), json_values(CLAIM_KEYS)) | json_values(CLAIM_KEYS).map(
    lambda value: {"status": {"allocation": {"devices": {"results": [{**CLAIMED["results"][0], "x": value}, value]}}}}
)
SLICES = st.dictionaries(st.sampled_from(SLICE_KEYS), json_values(SLICE_KEYS)) | st.lists(
    st.dictionaries(st.sampled_from(SLICE_KEYS), json_values(SLICE_KEYS)), max_size=3
).map(lambda items: {"items": items})


class Places:
    """A host that has a GPU everywhere, and knows no device id."""

    def place(self, device_id: str) -> UnplacedDevice:
        return UnplacedDevice(f"{device_id} is not here", may_change=False)

    def is_gpu(self, address: str) -> bool:
        return bool(address)


@fuzz
@given(claim=CLAIMS, slices=SLICES)
def test_claimed_devices_are_found_or_it_is_said_why_not(claim: dict[str, Any], slices: dict[str, Any]) -> None:
    resources = {"claims": [{"name": "gpu"}]}
    pod = parse_pod(
        {
            "metadata": IDENTITY,
            "spec": {
                "containers": [{"name": "e", "resources": resources}],
                "resourceClaims": [{"name": "gpu", "resourceClaimName": "llm-0-gpu"}],
            },
        }
    )
    reader = ClaimReader(cast("KubeClient", FixedAnswers(claim, slices)), "n", resources=DeviceResources())
    found = reader.devices_of(pod, pod.containers[0], Places())
    assert found.why if isinstance(found, NotAllocated) else all(device.device_id for device in found)


ANSWER = message_class("ListPodResourcesResponse")
SCALARS = {
    FieldDescriptor.TYPE_STRING: st.text(max_size=8),
    FieldDescriptor.TYPE_INT64: st.integers(-(1 << 63), (1 << 63) - 1),
}


def message_contents(descriptor: Descriptor) -> st.SearchStrategy[dict[str, Any]]:
    """Any content of a message: each field may be there or not."""
    fields = {}
    for field in descriptor.fields:
        one = SCALARS[field.type] if field.message_type is None else message_contents(field.message_type)
        fields[field.name] = st.lists(one, max_size=3) if field.is_repeated else one
    return st.fixed_dictionaries({}, optional=fields)


ANSWERS = message_contents(ANSWER.DESCRIPTOR).map(lambda content: ANSWER(**content))


@fuzz
@given(ANSWERS)
def test_every_answer_of_a_kubelet_is_assignments(answer: Message) -> None:
    assignments = parse_assignments(answer)
    cpus = {cpu for pods in assignments.values() for pod in pods for cpu in pod.cpu_ids}
    assert all(0 <= cpu <= MAX_CPU for cpu in cpus)


@fuzz
@given(ANSWERS, st.integers(0, 60), st.binary(max_size=20))
def test_bytes_are_an_answer_or_cannot_be_decoded(answer: Message, place: int, noise: bytes) -> None:
    content = answer.SerializeToString()
    spliced = content[:place] + noise + content[place + len(noise) :]
    decoded = outcome_of(lambda: ANSWER.FromString(spliced), DecodeError)
    assert isinstance(decoded, DecodeError) or parse_assignments(decoded) is not None


@fuzz
@given(json_values(("a",)).map(json.dumps))
def test_json_that_is_no_object_is_an_unexpected_answer(text: str) -> None:
    answer = outcome_of(lambda: json_object("GET /x", text.encode()), UnexpectedAnswerError)
    assert isinstance(answer, UnexpectedAnswerError) != isinstance(json.loads(text), dict)
