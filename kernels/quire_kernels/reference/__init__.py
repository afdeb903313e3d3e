"""Every operation in plain torch, for tests and for reading. Slow on purpose."""
