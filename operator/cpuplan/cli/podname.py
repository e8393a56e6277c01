"""A pod as people name it on a command line."""

from __future__ import annotations

from .errors import WRONG_USAGE, CliError

_KINDS = frozenset({"po", "pod", "pods"})
"""What kubectl takes for the kind, in lower case."""


def pod_name(text: str, namespace: str | None) -> str:
    """The name in `NAME`, `pod/NAME` or `pods/NAME`.

    Args:
        namespace: that which the command line gives, for the error's sentence.

    Raises:
        CliError: it is empty, or names something else than a pod.
    """
    kind, slash, name = text.rpartition("/")
    if slash and kind.lower() not in _KINDS:
        raise CliError(
            f"{text} is no pod, and the name of one pod is wanted (such as llm-0 or pod/llm-0); kubectl get pods "
            f"-n {namespace or 'NAMESPACE'} lists them",
            WRONG_USAGE,
        )
    if not name:
        raise CliError("the pod's name is empty; give one, or a file with -f", WRONG_USAGE)
    return name
