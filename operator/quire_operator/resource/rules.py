"""Rules across fields, in the API server's language (CEL).

They are checked where a resource is written, so `kubectl apply` says what is wrong and nothing
wrong is ever stored. What needs other objects cannot be a rule: it becomes a condition.
"""

from typing import Any, NamedTuple

RULES = "x-kubernetes-validations"


class Rule(NamedTuple):
    """One rule of an object or a value."""

    cel: str
    """True for what is accepted; self is the value, oldSelf what it replaces."""
    message: str
    """What is wrong and what to do, in one sentence: it follows the field's path."""
    field: str = ""
    """Path below the object that the message is about, such as .maxReplicas."""

    def as_schema(self) -> dict[str, str]:
        """The rule as an entry of x-kubernetes-validations."""
        entry = {"rule": self.cel, "message": self.message}
        return entry | ({"fieldPath": self.field} if self.field else {})


def validations(*several: Rule) -> dict[str, Any]:
    """Rules as part of a JSON schema."""
    return {RULES: [rule.as_schema() for rule in several]}


ORDERED_REPLICAS = Rule(
    "self.minReplicas <= self.maxReplicas",
    "minReplicas is more than maxReplicas: lower it, or raise maxReplicas",
    ".minReplicas",
)
"""Of every object that has both."""
