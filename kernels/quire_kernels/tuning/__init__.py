"""Launch configurations per architecture: tables as data, found by `lookup`."""
