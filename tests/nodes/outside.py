"""Applications outside of the cluster: OpenAI's client, by Envoy and a host's name."""

from typing import Any

import openai

from hack.cluster.cluster import Cluster
from tests.api.servers import wait_until

NO_KEY = "whoever-asks-is-let-in"


def way_in(cluster: Cluster, host: str, key: str = NO_KEY) -> dict[str, Any]:
    """What makes one of OpenAI's clients ask by Envoy."""
    return {
        "base_url": f"http://127.0.0.1:{cluster.config.ports.ingress}/v1",
        "default_headers": {"host": host},
        "api_key": key,
    }


def as_user(cluster: Cluster, host: str, key: str = NO_KEY) -> openai.OpenAI:
    """Somebody who tries each request once."""
    return openai.OpenAI(**way_in(cluster, host, key), max_retries=0, timeout=120)


def lists(user: openai.OpenAI, model: str) -> bool:
    """Whether a model is there for this user; what Envoy is told takes its way."""
    try:
        return model in [one.id for one in user.models.list()]
    except openai.APIError:
        return False


def streamed(cluster: Cluster, host: str, model: str, question: str = "Say hello.") -> str:
    """One streamed answer, as soon as there is one; at least three pieces, or it is an error."""
    with as_user(cluster, host) as user:
        wait_until(lambda: lists(user, model), pause_seconds=0.1)
        messages: list[Any] = [{"role": "user", "content": question}]
        stream = user.chat.completions.create(
            model=model, messages=messages, max_tokens=24, temperature=0, stream=True
        )
        chunks = list(stream)
    assert len(chunks) >= 3, chunks
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
