"""Long lists in pages: never more than one page of large objects in memory."""

from collections.abc import Iterator

from ..kube.answers import JsonObject
from ..kube.client import KubeClient
from ..kube.errors import UnexpectedAnswerError

PAGE_SIZE = 250
"""Objects per request: pages of a few megabytes for pods of ten to twenty kilobytes."""


def listed_objects(
    client: KubeClient, path: str, *, label_selector: str = "", page_size: int = PAGE_SIZE
) -> Iterator[JsonObject]:
    """All objects of a collection, one after another.

    Raises:
        GoneError: the list took longer than the server keeps its continuation (five minutes).
        KubeError: the API server refused or did not answer.
    """
    query = {"labelSelector": label_selector, "limit": str(page_size)}
    while True:
        answer = client.get(path, query)
        items, metadata = answer.get("items"), answer.get("metadata")
        if not isinstance(metadata, dict) or not isinstance(items, list | None):
            raise UnexpectedAnswerError(f"GET {path} was not answered with a list of objects")
        query["continue"] = str(metadata.get("continue") or "")
        del answer
        yield from items or ()
        if not query["continue"]:
            return
