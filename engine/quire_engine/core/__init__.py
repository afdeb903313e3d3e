"""The engine's core, its process, and the API server's client of it."""
