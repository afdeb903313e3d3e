"""The few fields of a request's body that a gateway reads."""

import msgspec

NULL = msgspec.Raw(b"null")


class Body(msgspec.Struct):
    """Of all routes; what is not there is None or null."""

    model: object = None
    messages: msgspec.Raw = NULL
    tools: msgspec.Raw = NULL
    prompt: msgspec.Raw = NULL
    input: msgspec.Raw = NULL
    instructions: msgspec.Raw = NULL
    stream: object = None
    max_tokens: object = None
    max_completion_tokens: object = None
    max_output_tokens: object = None
    n: object = None
    best_of: object = None
    priority: object = None


body_decoder = msgspec.json.Decoder(Body)
