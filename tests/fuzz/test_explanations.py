"""What agents answer on /explain: explained and shown, or one sentence, never anything else."""

from __future__ import annotations

import json
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from cpuplan.cli.explainblocks import Reasons, container_blocks
from cpuplan.cli.explainsource import AgentsPart, AskedPod, part_of_cluster
from cpuplan.kube.answers import json_object
from cpuplan.kube.client import KubeClient, ObjectList
from tests.fuzz.effort import fuzz
from tests.fuzz.mutation import json_values, mutated
from tests.fuzz.test_published_texts import CONTAINER

SENTENCE = {"topic": "input", "text": "because", "sources": [{"file": "/sys/x", "value": None}]}
CANDIDATES = {"workers": [0], "result": True, "cpus": "0-3", "fate": "held", "text": "held", "sources": []}
EXPLAINED = {"name": "e", "plan": CONTAINER, "reasons": [SENTENCE], "candidates": [CANDIDATES]}
DOCUMENT = {
    "version": 1,
    "node": "n",
    "secondsOld": 1.5,
    "podUID": "u",
    "generation": 3,
    "notes": ["a note"],
    "containers": [EXPLAINED],
}
JSON = json_values([*DOCUMENT, *EXPLAINED, *CANDIDATES, *SENTENCE, *CONTAINER])
POD = AskedPod("team", "llm-0", "u", "n", 3)


class OneAnswer:
    """A cluster with one agent that answers this."""

    def __init__(self, text: str) -> None:
        self._text = text

    def list_objects(self, *_: object, **__: object) -> ObjectList:
        return ObjectList(({"metadata": {"name": "agent"}, "spec": {"nodeName": "n"}},), "1")

    def get(self, path: str, *_: object, **__: object) -> dict[str, Any]:
        return json_object(path, self._text.encode("utf-8", "surrogatepass"))


def part(text: str) -> AgentsPart:
    """What is made of an answer, and shown where it is one."""
    found = part_of_cluster(cast("KubeClient", OneAnswer(text)), "cpuplan", POD)
    for container in () if found.explained is None else found.explained.containers:
        assert container_blocks("", container.plan, Reasons(container.sentences, container.candidates))
    return found


@st.composite
def answers(draw: st.DrawFn) -> str:
    """An answer with a few of its members, at any depth, replaced or removed."""
    document: dict[str, Any] = json.loads(json.dumps(DOCUMENT))
    (container,) = document["containers"]
    places = [document, container, container["plan"], container["reasons"][0], container["candidates"][0]]
    for place in draw(st.lists(st.sampled_from(places), max_size=3)):
        key = draw(st.sampled_from(sorted(place) or ["e"]))
        if draw(st.booleans()):
            place.pop(key, None)
        else:
            place[key] = draw(JSON)
    return json.dumps(document)


def test_the_answer_that_is_changed_here_is_one() -> None:
    found = part(json.dumps(DOCUMENT))
    assert found.explained is not None
    assert found.explained.to_document()["containers"][0]["candidates"] == [CANDIDATES]


@fuzz
@given(text=answers() | mutated([json.dumps(DOCUMENT)]) | JSON.map(json.dumps))
def test_any_answer_is_explained_or_one_sentence(text: str) -> None:
    found = part(text)
    assert (found.explained is None) == bool(found.trouble)
    assert "\n" not in found.trouble
