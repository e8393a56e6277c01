"""Every folder of pairs/ is one object: `in.yaml` as a user writes it, and what the API server answers.

`out.yaml` is the pod that comes out (see essence.py for what is left away), `refused.txt` the error's text. The names
of the folders say what kind of pod it is, and where that matters what must happen.
"""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.apiserver import Answer, ApiServer
from tests.policies.essence import essence

PAIRS = Path(__file__).parent / "pairs"
ACCEPTED = sorted(path.parent.name for path in PAIRS.glob("*/out.yaml"))
REFUSED = sorted(path.parent.name for path in PAIRS.glob("*/refused.txt"))

_GROUPS = {"v1": "/api/v1", "apps/v1": "/apis/apps/v1", "batch/v1": "/apis/batch/v1"}


def create(server: ApiServer, name: str) -> Answer:
    """The answer to a dry run of the pair's input; in namespace demo where it names none."""
    body: dict[str, Any] = yaml.safe_load((PAIRS / name / "in.yaml").read_text())
    namespace = body["metadata"].setdefault("namespace", "demo")
    collection = f"{_GROUPS[body['apiVersion']]}/namespaces/{namespace}/{body['kind'].lower()}s"
    return server.call("POST", collection, body, query={"dryRun": "All"})


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_pod_that_is_stored_is_the_pair_s_output(api_server: ApiServer, name: str) -> None:
    answer = create(api_server, name)
    assert answer.status == HTTPStatus.CREATED, answer.message
    assert essence(answer.body) == yaml.safe_load((PAIRS / name / "out.yaml").read_text())


@pytest.mark.parametrize("name", REFUSED)
def test_the_refusal_says_what_where_what_is_expected_and_what_to_do(api_server: ApiServer, name: str) -> None:
    answer = create(api_server, name)
    assert answer.status in (HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN)
    assert answer.message == (PAIRS / name / "refused.txt").read_text().rstrip("\n")


def test_every_pair_has_exactly_one_expected_answer() -> None:
    assert sorted(ACCEPTED + REFUSED) == sorted(path.name for path in PAIRS.iterdir())
