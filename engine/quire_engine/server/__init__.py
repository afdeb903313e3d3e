"""OpenAI's API over HTTP: routes, checking, streams, metrics, and the life of a server process."""
