"""What can go wrong in the operator.

OperatorError
SettingsError       a flag, variable or kubeconfig is wrong
ApiError            the API server refused, or was not reached
RetryableError      and may not the next time
ForeignObjectError  an object that is wanted is there, and is somebody else's
"""


class OperatorError(Exception):
    """Anything that the operator reports."""


class SettingsError(OperatorError):
    """A flag, variable or kubeconfig is wrong; the message says which and what to do."""


class ApiError(OperatorError):
    """The API server refused a request, or could not be reached."""

    def __init__(self, message: str, status: int | None = None, words: str = "") -> None:
        super().__init__(message)
        self.status = status
        """HTTP status; None: there was no answer."""
        self.words = words or message
        """What the API server said, without what was asked."""


class RetryableError(ApiError):
    """The same request may be answered the next time."""


class ForeignObjectError(ApiError):
    """An object of a name that is wanted is somebody else's: it is not touched."""
