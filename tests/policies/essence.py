"""A pod without what the API server adds to every pod, so that pairs show what the policies did.

Only what is exactly the API server's own value is dropped; anything else stays and shows as a difference.
"""

from __future__ import annotations

import re
from typing import Any

Object = dict[str, Any]

_POD_DEFAULTS: Object = {
    "dnsPolicy": "ClusterFirst",
    "enableServiceLinks": True,
    "preemptionPolicy": "PreemptLowerPriority",
    "priority": 0,
    "restartPolicy": "Always",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccount": "default",
    "serviceAccountName": "default",
    "terminationGracePeriodSeconds": 30,
}
_CONTAINER_DEFAULTS: Object = {
    "imagePullPolicy": "IfNotPresent",
    "resources": {},
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
}
_NOT_READY_SECONDS = 300
_SERVER_METADATA = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_TOKEN_VOLUME = re.compile(r"kube-api-access-[a-z0-9]{5}")


def essence(pod: Object) -> Object:
    """What of a pod that the API server returned was asked for, by the user or by a policy."""
    metadata = {key: value for key, value in pod["metadata"].items() if key not in _SERVER_METADATA}
    if "generateName" in metadata:
        del metadata["name"]
    spec = _without(pod["spec"], _POD_DEFAULTS)
    spec["tolerations"] = [one for one in spec["tolerations"] if one.get("tolerationSeconds") != _NOT_READY_SECONDS]
    for kind in ("initContainers", "containers"):
        spec[kind] = [_container(one) for one in spec.get(kind, [])]
    spec["volumes"] = [one for one in spec.get("volumes", []) if not _TOKEN_VOLUME.fullmatch(one["name"])]
    return {
        "metadata": metadata,
        "spec": {key: value for key, value in spec.items() if value != []},
        "qosClass": pod["status"]["qosClass"],
    }


def _container(container: Object) -> Object:
    kept = _without(container, _CONTAINER_DEFAULTS)
    mounts = kept.pop("volumeMounts", [])
    mounts = [one for one in mounts if not _TOKEN_VOLUME.fullmatch(one["name"])]
    return {**kept, "volumeMounts": mounts} if mounts else kept


def _without(values: Object, defaults: Object) -> Object:
    return {key: value for key, value in values.items() if key not in defaults or defaults[key] != value}
