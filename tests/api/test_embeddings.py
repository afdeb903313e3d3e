"""`/v1/embeddings` of the default model on a CPU, as OpenAI's client asks for them."""

import asyncio
import base64
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import openai
import pytest

from tests.api.servers import MODEL as SIMULATED_MODEL
from tests.api.servers import RunningServer, wait_until_async

MODEL = "SmolLM2-135M-Instruct.Q4_1"
PATH = "/v1/embeddings"
SIZE = 576
TEXTS = ["The cat sleeps on the sofa.", "A kitten naps on the couch.", "Rates of interest rose."]


@pytest.fixture(scope="module")
def embedding_server() -> Iterator[RunningServer]:
    model = ("--max-model-len", "512", "--max-num-blocks", "256", "--pooling", "mean")
    short_steps = ("--max-num-seqs", "16", "--max-num-batched-tokens", "64")
    with RunningServer(*model, *short_steps) as running:
        yield running


@pytest.fixture
def embedder(embedding_server: RunningServer) -> Iterator[openai.OpenAI]:
    url = f"{embedding_server.url}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120) as made:
        yield made


def vectors_of(answer: Any) -> np.ndarray[Any, Any]:
    assert [one.index for one in answer.data] == list(range(len(answer.data)))
    return np.array([one.embedding for one in answer.data])


def test_texts_that_mean_the_same_are_near(embedder: openai.OpenAI) -> None:
    answer = embedder.embeddings.create(model=MODEL, input=TEXTS)
    vectors = vectors_of(answer)

    assert vectors.shape == (3, SIZE)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-5)
    nearness = vectors @ vectors.T
    assert nearness[0, 1] > nearness[0, 2]
    assert answer.object == "list"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > len(TEXTS)


def test_numbers_base64_texts_and_token_ids_are_the_same(
    embedder: openai.OpenAI, embedding_server: RunningServer
) -> None:
    ids = embedding_server.post("/tokenize", {"prompt": TEXTS[0]}).json()["tokens"]
    by_default = vectors_of(embedder.embeddings.create(model=MODEL, input=TEXTS[0]))
    as_numbers = embedder.embeddings.create(
        model=MODEL, input=[TEXTS[0]], encoding_format="float", dimensions=SIZE
    )
    as_ids = embedder.embeddings.create(model=MODEL, input=ids)
    coded = embedding_server.post(
        PATH, {"model": MODEL, "input": [ids, ids], "encoding_format": "base64"}
    ).json()["data"]
    decoded = [np.frombuffer(base64.b64decode(one["embedding"]), "<f4") for one in coded]

    for vector in (vectors_of(as_numbers)[0], vectors_of(as_ids)[0], *decoded):
        np.testing.assert_array_equal(np.float32(vector), np.float32(by_default[0]))
    assert as_ids.usage.prompt_tokens == len(ids)


def test_more_inputs_than_the_core_has_at_a_time(
    embedder: openai.OpenAI, embedding_server: RunningServer
) -> None:
    inputs = [[number, number + 1] for number in range(1, 80)]
    vectors = vectors_of(embedder.embeddings.create(model=MODEL, input=inputs))
    alone = vectors_of(embedder.embeddings.create(model=MODEL, input=inputs[70]))

    assert vectors.shape == (79, SIZE)
    np.testing.assert_allclose(vectors[70], alone[0], atol=1e-5)
    embedding_server.wait_until_idle()


def count(server: RunningServer, sample: str) -> float:
    lines = server.get("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith(sample))


def test_it_is_counted(embedding_server: RunningServer) -> None:
    ended = f'vllm:request_success_total{{finished_reason="stop",model_name="{MODEL}"}}'
    samples = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", ended)
    before = [count(embedding_server, sample) for sample in samples]
    usage = embedding_server.post(PATH, {"model": MODEL, "input": TEXTS}).json()["usage"]
    after = [count(embedding_server, sample) for sample in samples]

    rises = [new - old for old, new in zip(before, after, strict=True)]
    assert rises == [usage["prompt_tokens"], 0, len(TEXTS)]


async def test_a_client_that_leaves_frees_the_blocks(embedding_server: RunningServer) -> None:
    async with httpx.AsyncClient(timeout=300) as leaving:
        inputs = [[number + 1] * 100 for number in range(1000)]
        body = {"model": MODEL, "input": inputs}
        headers = {"x-quire-gateway": "leaver;7"}
        asked = leaving.post(embedding_server.url + PATH, json=body, headers=headers)
        request = asyncio.create_task(asked)
        await wait_until_async(lambda: embedding_server.state().blocks.held > 0, 120)
        request.cancel()
    await wait_until_async(lambda: embedding_server.state().blocks.held == 0, 120)
    embedding_server.wait_until_idle()
    # nor does the gateway's account wait for the inputs that were never sent
    short = {"model": MODEL, "input": "hi"}
    embedding_server.post(PATH, short, headers={"x-quire-gateway": "leaver;8"})
    await wait_until_async(lambda: embedding_server.state().gateways["leaver"] == 8, 60)


@pytest.mark.parametrize(
    ("parameters", "name"),
    [
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": [1, "a"]}, "input"),
        ({"input": {"a": 1}}, "input"),
        ({"input": [49152]}, "input"),
        ({"input": [-1]}, "input[0]"),
        ({"input": [1] * 512}, "input"),
        ({"input": "a " * 100_000}, "input"),
        ({"input": "a", "dimensions": 64}, "dimensions"),
        ({"input": "a", "dimensions": SIZE + 1}, "dimensions"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
        ({"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ({}, "input"),
    ],
)
def test_what_is_wrong_is_named(
    embedding_server: RunningServer, parameters: dict[str, Any], name: str
) -> None:
    response = embedding_server.post(PATH, {"model": MODEL, **parameters})

    assert response.status_code == 400, response.text
    error = response.json()["error"]
    assert (error["type"], error["param"]) == ("invalid_request_error", name)


def test_unknown_fields_and_models(embedding_server: RunningServer) -> None:
    body = {"model": MODEL, "input": "a", "unknown": 1, "user": "me"}
    assert embedding_server.post(PATH, body).status_code == 200
    assert embedding_server.post(PATH, {**body, "model": "other"}).status_code == 404


def test_a_simulated_engine_says_that_it_has_none(server: RunningServer) -> None:
    response = server.post(PATH, {"model": SIMULATED_MODEL, "input": "hi"})

    assert response.status_code == 400
    assert "cannot compute embeddings" in response.json()["error"]["message"]
