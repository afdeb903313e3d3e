"""Why there is no grammar for what was asked."""


class SchemaError(Exception):
    """A schema, expression or grammar cannot be heeded; the text says what of it."""
