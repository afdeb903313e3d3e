"""Messages of the kubelet's device plugin API, v1beta1, as far as a fake GPU needs them.

Written down as a table, from k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1/api.proto: so no
compiler for protocol buffers is needed, and no generated file is kept.
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

VERSION = "v1beta1"
REGISTER = f"/{VERSION}.Registration/Register"
PLUGIN_SERVICE = f"{VERSION}.DevicePlugin"

_FieldType = descriptor_pb2.FieldDescriptorProto
_TEXT, _FLAG, _MESSAGE = _FieldType.TYPE_STRING, _FieldType.TYPE_BOOL, _FieldType.TYPE_MESSAGE
_ONE, _MANY = _FieldType.LABEL_OPTIONAL, _FieldType.LABEL_REPEATED

# message: {field: (number, type, label, message of the field)}
_MESSAGES: dict[str, dict[str, tuple[int, Any, Any, str]]] = {
    "Empty": {},
    "DevicePluginOptions": {
        "pre_start_required": (1, _FLAG, _ONE, ""),
        "get_preferred_allocation_available": (2, _FLAG, _ONE, ""),
    },
    "RegisterRequest": {
        "version": (1, _TEXT, _ONE, ""),
        "endpoint": (2, _TEXT, _ONE, ""),
        "resource_name": (3, _TEXT, _ONE, ""),
        "options": (4, _MESSAGE, _ONE, "DevicePluginOptions"),
    },
    "Device": {"ID": (1, _TEXT, _ONE, ""), "health": (2, _TEXT, _ONE, "")},
    "ListAndWatchResponse": {"devices": (1, _MESSAGE, _MANY, "Device")},
    "ContainerAllocateRequest": {"devices_ids": (1, _TEXT, _MANY, "")},
    "AllocateRequest": {"container_requests": (1, _MESSAGE, _MANY, "ContainerAllocateRequest")},
    # on the wire a map is a list of such entries
    "EnvironmentEntry": {"key": (1, _TEXT, _ONE, ""), "value": (2, _TEXT, _ONE, "")},
    "ContainerAllocateResponse": {"envs": (1, _MESSAGE, _MANY, "EnvironmentEntry")},
    "AllocateResponse": {"container_responses": (1, _MESSAGE, _MANY, "ContainerAllocateResponse")},
}


def _build() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(
        name="quire/deviceplugin.proto", package=VERSION, syntax="proto3"
    )
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind, label, of) in fields.items():
            message.field.add(
                name=field,
                number=number,
                type=kind,
                label=label,
                type_name=f".{VERSION}.{of}" if of else None,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{VERSION}.{name}"))
        for name in _MESSAGES
    }


messages = _build()
"""Message classes by name."""
