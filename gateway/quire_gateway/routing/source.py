"""Where routing documents come from: a file, or a cluster."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from quire_gateway.errors import SettingsError
from quire_gateway.routing.document import RoutingDocument
from quire_gateway.routing.file_source import FileSource
from quire_gateway.settings import GatewaySettings


class Source(Protocol):
    """Says which documents are in force."""

    documents: tuple[RoutingDocument, ...]
    """The oldest first: it wins where two have the same name and neither tells since when."""

    @property
    def is_complete(self) -> bool:
        """Whether all that there is has been seen once."""

    @property
    def is_stale(self) -> bool:
        """Whether a document cannot be used, and an older one is in force, or none."""

    @property
    def problem(self) -> str:
        """Why what is in force may be old; empty while it is not."""

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Follow what changes until cancelled; `on_change` is called after each change."""

    async def close(self) -> None:
        """Let go of what is open."""


async def open_source(settings: GatewaySettings) -> Source:
    """Open what the settings name.

    Raises
    ------
    GatewayError
        The file cannot be used, or there is no cluster.
    """
    if not settings.kubernetes:
        return FileSource(Path(settings.routing))
    try:  # a second and 50 MB, for those who want it
        from quire_gateway.routing.cluster_source import ClusterSource
    except ImportError as error:
        raise SettingsError(f'--kubernetes needs pip install "quire[gateway]": {error}') from error
    return await ClusterSource.connect(settings.watched_namespaces, random.random)
