"""What a check of a client comes to if it fails."""


class ClientError(Exception):
    """A client is not content, or cannot be had; the message says why."""
