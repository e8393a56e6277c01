"""The kubelet's PodResources v1 messages, built at run time from a table of field numbers.

No generated code: its file would be named `api.proto` like the device plugin's, and two of that name cannot be
loaded in one process. These live in a descriptor pool of their own.

Source: the field numbers of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto at v0.37.2. Older kubelets leave
out fields, newer ones add some, and we name only those that we use; all of that reads fine.
"""

from typing import Final

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

PACKAGE: Final = "v1"
LIST_METHOD: Final = f"/{PACKAGE}.PodResourcesLister/List"

_STRING = FieldDescriptorProto.TYPE_STRING
_INT64 = FieldDescriptorProto.TYPE_INT64

_Field = tuple[str, int, "int | str", bool]
"""Name, number, scalar type or message name, repeated."""

_MESSAGES: dict[str, tuple[_Field, ...]] = {
    "ListPodResourcesRequest": (),
    "ListPodResourcesResponse": (("pod_resources", 1, "PodResources", True),),
    "PodResources": (
        ("name", 1, _STRING, False),
        ("namespace", 2, _STRING, False),
        ("containers", 3, "ContainerResources", True),
        ("cpu_ids", 4, _INT64, True),
    ),
    "ContainerResources": (
        ("name", 1, _STRING, False),
        ("devices", 2, "ContainerDevices", True),
        ("cpu_ids", 3, _INT64, True),
    ),
    "ContainerDevices": (
        ("resource_name", 1, _STRING, False),
        ("device_ids", 2, _STRING, True),
    ),
}


def _pool() -> DescriptorPool:
    file = FileDescriptorProto(name="cpuplan/podresources_v1.proto", package=PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for name, number, kind, is_repeated in fields:
            field = message.field.add(name=name, number=number)
            field.label = FieldDescriptorProto.LABEL_REPEATED if is_repeated else FieldDescriptorProto.LABEL_OPTIONAL
            if isinstance(kind, str):
                field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
            else:
                field.type = kind  # type: ignore[assignment]
    pool = DescriptorPool()
    pool.Add(file)
    return pool


_POOL = _pool()


def message_class(name: str) -> type[Message]:
    """The class of a message of the package, such as `ListPodResourcesResponse`."""
    return GetMessageClass(_POOL.FindMessageTypeByName(f"{PACKAGE}.{name}"))
