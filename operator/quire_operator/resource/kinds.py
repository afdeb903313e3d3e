"""Kinds of values in the resource: a type, the range it accepts, and what the API server needs.

A field of `quire_operator.resource.spec` names one of these; the CRD's schema, the reference page
and the reader follow from it. Everything has an upper bound: without one the API server counts a
CEL rule over it as too expensive.
"""

from typing import Annotated, Literal

from msgspec import Meta

from quire_operator.resource.rules import Rule, validations

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOTTED_NAME = rf"^{_LABEL}(\.{_LABEL})*$"
_NAME = f"^{_LABEL}$"
KEY = rf"({_LABEL}([.]{_LABEL})*/)?[A-Za-z0-9]([-._A-Za-z0-9]{{0,61}}[A-Za-z0-9])?"
"""The name of a label, a taint or a resource; what stands before / has 253 characters at most."""
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$"

_ABOVE_DAYS = "(^|[a-z])([0-9]{5}[0-9.]*h|[0-9]{9})"
"""In a duration: more than a day for sure, and maybe more than CEL can read."""

Count = Annotated[int, Meta(ge=0, le=10_000)]
"""How many replicas."""
Total = Annotated[int, Meta(ge=0, le=1_000_000)]
"""How many replicas all accelerators have together, also while some stand in for others."""
Percent = Annotated[int, Meta(ge=1, le=100)]
"""A share, in percent."""
Seconds = Annotated[int, Meta(ge=0, le=86_400)]
"""A time in whole seconds, at most a day."""
Duration = Annotated[
    str,
    Meta(
        max_length=16,
        pattern=r"^([0-9]+(\.[0-9]+)?(h|m|s|ms))+$",
        examples=["90s", "5m", "1h30m", "60ms"],
        extra_json_schema=validations(
            Rule(
                f"!self.matches('{_ABOVE_DAYS}') && duration(self) <= duration('24h')",
                "must be at most 24h",
            ),
        ),
    ),
]
"""A time with its unit, as Go and kubectl write it."""
PositiveDuration = Annotated[
    Duration,
    Meta(
        extra_json_schema=validations(
            Rule(
                f"self.matches('{_ABOVE_DAYS}') || duration(self) > duration('0s')",
                "must be more than 0s; leave it out for none",
            ),
        ),
    ),
]
"""A time of more than nothing."""
Money = Annotated[
    str,
    Meta(
        min_length=1, max_length=12, pattern=r"^[0-9]{1,6}(\.[0-9]{1,4})?$", examples=["0.80", "30"]
    ),
]
"""Money in any one currency, as text so that no digit is lost."""

Cost = Annotated[str, Meta(max_length=24, pattern=r"^[0-9]{1,16}(\.[0-9]{1,4})?$")]
"""What many replicas cost together, in the currency of Money."""

Name = Annotated[str, Meta(min_length=1, max_length=63, pattern=_NAME)]
"""A DNS label."""
ShortName = Annotated[str, Meta(min_length=1, max_length=20, pattern=_NAME)]
"""A DNS label that leaves room for others in the names made of it."""
ObjectName = Annotated[str, Meta(min_length=1, max_length=253, pattern=_DOTTED_NAME)]
"""The name of another object in the same namespace."""
Host = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=253,
        pattern=_DOTTED_NAME,
        examples=["models.example.com"],
        extra_json_schema=validations(
            Rule(
                "!(self + '.').contains('.svc.')",
                "is an address inside the cluster, where another service answers: use a host name"
                " of your own",
            ),
            Rule(
                r"self.matches('[.][a-z]([-a-z0-9]*[a-z0-9])?$')",
                "is no domain's name: use a host name of your own with a dot in it, such as"
                " models.example.com; IP addresses and names of one part are not taken",
            ),
            Rule(
                "self.split('.').all(part, size(part) <= 63)",
                "has a part of more than 63 characters, which no host can have: shorten it",
            ),
        ),
    ),
]
"""A host name, without scheme and port."""
ServedName = Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9_.:/@-]+$")]
"""What clients put in "model"."""
Source = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        pattern=r"^[!-~]+$",
        examples=["hf://Qwen/Qwen3-8B@main"],
        extra_json_schema=validations(
            Rule(
                "self.matches('^(hf|pvc|https|pypi)://.+$')",
                "does not say where the model is: hf://organisation/repository@revision,"
                " pvc://claim/path, https://host/file.gguf or"
                " pypi://package==version/path/in/wheel; s3:// and gs:// are not read",
            )
        ),
    ),
]
"""Where a model is."""
Sha256 = Annotated[str, Meta(max_length=64, pattern="^[0-9a-f]{64}$")]
"""64 hexadecimal digits."""
SecretKey = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
"""A key in a Secret's data."""
Product = Annotated[
    str,
    Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$"),
]
"""A value of the node label nvidia.com/gpu.product."""
_IMAGE_HOST = r"([A-Za-z0-9]([-.A-Za-z0-9]*[A-Za-z0-9])?|[[][0-9A-Fa-f:]+[]])(:[0-9]+)?/"
_IMAGE_PART = r"[a-z0-9]+([._-]+[a-z0-9]+)*"
_IMAGE = (
    rf"({_IMAGE_HOST})?{_IMAGE_PART}(/{_IMAGE_PART})*"
    r"(:[A-Za-z0-9_][-.A-Za-z0-9_]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?"
)
Image = Annotated[
    str,
    Meta(
        max_length=512,
        pattern=r"^[!-~]*$",
        extra_json_schema=validations(
            Rule(
                f"self.matches('^({_IMAGE})?$')",
                "is no image's name, such as registry.example.com/team/engine:1.0",
            )
        ),
    ),
]
"""A container image, or empty for the operator's own choice."""
LabelKey = Annotated[str, Meta(min_length=1, max_length=317)]
LabelValue = Annotated[
    str, Meta(max_length=63, pattern=r"^([A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?)?$")
]
_KEYS = Rule(
    f"self.all(k, k.indexOf('/') <= 253 && k.matches('^{KEY}$'))",
    "a key is no name of a label, such as pool or example.com/pool",
)
_ANNOTATION_KEYS = Rule(
    f"self.all(k, k.indexOf('/') <= 253 && k.lowerAscii().matches('^{KEY}$'))",
    "a key is no name of an annotation, such as note or example.com/note",
)
Labels = Annotated[
    dict[LabelKey, LabelValue], Meta(max_length=32, extra_json_schema=validations(_KEYS))
]
"""Labels and their values."""
Annotations = Annotated[
    dict[LabelKey, Annotated[str, Meta(max_length=4096)]],
    Meta(max_length=32, extra_json_schema=validations(_ANNOTATION_KEYS)),
]
"""Annotations and their values."""
Quantity = Annotated[
    Annotated[int, Meta(ge=0)] | Annotated[str, Meta(max_length=32, pattern=_QUANTITY)],
    Meta(
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 32,
            "minimum": 0,
            "pattern": _QUANTITY,
        },
    ),
]
"""An amount of a resource, as in pods: 500m, 2, 16Gi. Numbers are taken too."""
Quantities = Annotated[
    dict[LabelKey, Quantity],
    Meta(
        max_length=16,
        extra_json_schema=validations(
            Rule(
                "self.all(k, k in ['cpu', 'memory', 'ephemeral-storage']"
                " || k.startsWith('hugepages-') || (k.contains('/') && k.indexOf('/') <= 253"
                f" && !k.startsWith('requests.') && k.matches('^{KEY}$')))",
                "a key is no resource of a pod: take cpu, memory, ephemeral-storage,"
                " hugepages-2Mi, or one of a device plugin, such as example.com/device",
            ),
            Rule(
                "self.all(k, !k.contains('/') || quantity(string(self[k])).isInteger())",
                "of what has a / in its name there are whole numbers only",
            ),
        ),
    ),
]
"""Amounts by resource."""
Argument = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern=r"^.*$",
        extra_json_schema=validations(
            Rule(
                "self.matches('^--[a-z][a-z0-9-]*(=.*)?$')",
                "is no flag: write each as --flag=value, not the value in an entry of its own",
            )
        ),
    ),
]
"""One flag of the engine, with = before its value."""
Message = Annotated[str, Meta(max_length=2048)]
"""A sentence for people."""
Word = Annotated[str, Meta(max_length=128)]
"""A word or name for people."""
Timestamp = Annotated[str, Meta(max_length=32, extra_json_schema={"format": "date-time"})]
"""A moment, RFC 3339."""

Quantization = Literal["none", "fp8", "int8", "int4"]
DType = Literal["auto", "bfloat16", "float16", "float32", "packed"]
KvCacheDType = Literal["auto", "bfloat16", "float16", "float32"]
BlockSize = Literal[16, 32, 64]
ScalingMode = Literal["Auto", "External", "Recommend"]
PriorityClass = Literal["interactive", "background"]
GpuName = Annotated[str, Meta(min_length=1, max_length=63)]
ShapeName = Annotated[str, Meta(min_length=1, max_length=63)]
