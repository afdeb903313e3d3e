"""The engine's exceptions.

    QuireError                     anything quire raises on purpose
    ├── ConfigError                a setting is unknown, malformed or contradictory
    ├── SourceError                a model cannot be fetched, verified or stored
    ├── ModelError                 a model's files cannot be read or are not supported
    ├── RequestError               one request is refused; others are untouched
    ├── CapacityError              the machine cannot hold what was asked for
    ├── CalibrationError           step times could not be measured; an engine serves without
    └── EngineDeadError            the core process is gone; requests in flight have ended

Every message says what to do. Broken invariants are `RuntimeError("bug: ...")` instead.
"""


class QuireError(Exception):
    """Anything quire raises on purpose; its text is meant for the user."""


class ConfigError(QuireError):
    """A setting is unknown, malformed or contradicts another."""


class SourceError(QuireError):
    """A model cannot be fetched, verified or stored."""


class ModelError(QuireError):
    """A model's files cannot be read, or ask for what is not supported."""


class RequestError(QuireError):
    """One request is refused; `parameter` names the field at fault, where there is one."""

    def __init__(self, message: str, *, parameter: str | None = None) -> None:
        super().__init__(message)
        self.parameter = parameter


class CapacityError(QuireError):
    """The machine cannot hold what was asked for; the message says how much would fit."""


class CalibrationError(QuireError):
    """Step times could not be measured, or what was measured makes no sense."""


class EngineDeadError(QuireError):
    """The core process is gone; requests in flight have ended."""


def exit_status(error: QuireError) -> int:
    """What a process that ends by this error tells its parent: 2 is wrong usage."""
    return 2 if isinstance(error, ConfigError) else 1
