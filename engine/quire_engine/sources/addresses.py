"""Addresses as they may be shown: without passwords, signatures and the like."""

from urllib.parse import urlsplit


def redacted(url: str) -> str:
    """An address without the user, password and query in it, for messages."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()
