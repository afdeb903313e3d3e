"""Names of calls, by which results are told apart."""

import secrets
import string

_CHARACTERS = string.ascii_letters + string.digits


def make_call_id(*, is_short: bool) -> str:
    """Make an id that no other call has: OpenAI's form, or the 9 characters of Mistral's."""
    if is_short:
        return "".join(secrets.choice(_CHARACTERS) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"
