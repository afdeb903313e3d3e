"""The `quire` command and everything that runs without a cluster."""
