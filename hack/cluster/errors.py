"""What a user of clusters may be told."""


class ClusterError(Exception):
    """A cluster cannot be made or used here; the message says what to do."""


class ModulesUnavailableError(ClusterError):
    """What a program is built from cannot be fetched: there is no network, or no proxy."""
