"""The book of pods: what the watch tells is taken in, what it loses is found by a listing."""

from cpuplan.controller.book import PodBook
from cpuplan.controller.observed import ObservedPod, observed_pod
from tests.controller.pods import planned


def seen(name: str, generation: int = 1, *, version: int | None = None) -> ObservedPod:
    """A planned pod, of a resource version that grows with its generation unless one is given."""
    content = planned(name, generation=generation)
    content["metadata"]["resourceVersion"] = str(100 * generation if version is None else version)
    return observed_pod(content)


def generations(book: PodBook) -> set[tuple[str, int | None]]:
    """The pods in the book with the generations of their plans."""
    return {(pod.name, None if pod.plan is None else pod.plan.generation) for pod in book.pods()}


def names(book: PodBook) -> set[str]:
    """The pods in the book."""
    return {pod.name for pod in book.pods()}


def test_only_what_differs_counts_as_a_change() -> None:
    book = PodBook()
    assert (book.put(seen("a")), book.put(seen("a")), book.put(seen("a", 2))) == (True, False, True)


def test_removing_an_unknown_pod_is_no_change() -> None:
    book = PodBook()
    book.put(seen("a"))
    assert (book.remove("uid-a"), book.remove("uid-a")) == (True, False)


def test_a_listing_finds_lost_deletions_changes_and_creations() -> None:
    book = PodBook()
    book.put(seen("lost-deletion"))
    book.put(seen("lost-change"))
    book.begin_listing()
    assert book.end_listing([seen("lost-change", 2), seen("lost-creation")]) == 3
    assert names(book) == {"lost-change", "lost-creation"}


def test_a_listing_that_agrees_with_the_watch_finds_nothing() -> None:
    book = PodBook()
    book.put(seen("a"))
    book.begin_listing()
    assert book.end_listing([seen("a")]) == 0


def test_what_the_watch_tells_during_a_listing_is_newer_than_the_listing() -> None:
    book = PodBook()
    book.put(seen("deleted"))
    book.begin_listing()
    book.put(seen("created"))
    book.put(seen("changed", 2))
    book.remove("uid-deleted")
    assert book.end_listing([seen("deleted"), seen("changed", 1)]) == 0
    assert generations(book) == {("created", 1), ("changed", 2)}


def test_a_watch_that_lags_behind_does_not_lead_back() -> None:
    """At the start kopf still tells what it had listed itself, while a later listing is in the book."""
    book = PodBook()
    book.begin_listing()
    book.put(seen("early", 1))
    book.end_listing([seen("early", 2), seen("late", 2)])
    assert (book.put(seen("late", 1)), book.put(seen("late", 3))) == (False, True)
    assert generations(book) == {("early", 2), ("late", 3)}


def test_a_new_resource_version_alone_is_no_change() -> None:
    book = PodBook()
    book.put(seen("a", version=1))
    assert book.put(seen("a", version=2)) is False


def test_a_listing_that_failed_changes_nothing() -> None:
    book = PodBook()
    book.put(seen("a"))
    book.begin_listing()
    book.abandon_listing()
    assert names(book) == {"a"}
