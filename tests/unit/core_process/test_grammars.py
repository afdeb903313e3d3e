"""Grammars in the core: compiled beside the steps, kept by content, and never lost."""

import itertools
import json
import random
import threading
from collections.abc import Collection
from queue import SimpleQueue

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.core.engine import EngineCore
from quire_engine.core.grammars import GrammarCache, GrammarDesk
from quire_engine.errors import RequestError
from quire_engine.execution.simulated import SimulatedExecutor
from quire_engine.grammar.compiler import CompiledGrammar, Compiler
from quire_engine.grammar.writing import write_grammar
from quire_engine.protocol.grammar import (
    Grammar,
    GrammarKind,
    JsonSchemaGrammar,
    RegexGrammar,
    Vocabulary,
)
from quire_engine.protocol.messages import AddRequest, FinishReason, Priority
from quire_engine.protocol.sampling import SamplingParams

VOCABULARY = msgspec.msgpack.encode(
    Vocabulary(tokens=tuple(bytes([b]) for b in range(256)), width=128_256, end_token_ids=())
)
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "string", "minLength": 12}, "b": {"enum": ["north", "south"]}},
    "required": ["a", "b"],
}
WISHES = [
    None,
    write_grammar(JsonSchemaGrammar(SCHEMA)),
    write_grammar(RegexGrammar("[a-z]{40}")),
]


def build_core(*, num_blocks: int = 4000) -> EngineCore:
    config = EngineConfig(
        model=ModelConfig(max_model_len=128),
        cache=CacheConfig(max_num_blocks=num_blocks, block_size=4),
        scheduler=SchedulerConfig(max_num_seqs=8, max_num_batched_tokens=64),
        executor=ExecutorConfig(
            simulate="h100", model_shape="llama3-8b", simulated_step_seconds=0.0
        ),
    )
    executor = SimulatedExecutor(config, check=True)
    facts = executor.allocate_cache()
    core = EngineCore(config, executor, facts, random_source=random.Random(0))
    core.grammars.use(VOCABULARY)
    return core


def request(name: str, grammar: Grammar | None, **changes: object) -> AddRequest:
    made = AddRequest(
        client_id="test",
        request_id=name,
        prompt_token_ids=list(f"a prompt of {name}".encode()),
        sampling=SamplingParams(max_tokens=60, seed=int(name)),
        grammar=grammar,
    )
    return msgspec.structs.replace(made, **changes)


def run(
    core: EngineCore, requests: list[AddRequest], preempt_at: Collection[int] = ()
) -> dict[str, tuple[str, FinishReason]]:
    """Text and end of each; before some steps, all that run are sent back to the queue."""
    texts = {r.request_id: "" for r in requests}
    ends: dict[str, FinishReason] = {}
    for added in requests:
        assert core.add(added, 0.0) is None
    steps = itertools.count()
    while core.has_work():
        now = next(steps)
        if now in preempt_at:
            for running in list(core.scheduler.running):
                core.scheduler.roster.preempt(running)
        for _, delta in core.step(float(now)):
            name = delta.request_id
            texts[name] = texts.get(name, "") + bytes(delta.token_ids).decode()
            if delta.finish_reason is not None:
                ends[name] = delta.finish_reason
    core.check_invariants()
    return {name: (text, ends[name]) for name, text in texts.items()}


@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(WISHES), st.sampled_from(Priority)), min_size=1, max_size=8),
    st.sets(st.integers(1, 40), max_size=4),
)
def test_company_and_preemptions_change_no_answer(
    wanted: list[tuple[Grammar | None, Priority]], preempt_at: set[int]
) -> None:
    requests = [
        request(str(number), grammar, priority=priority)
        for number, (grammar, priority) in enumerate(wanted)
    ]
    alone: dict[str, tuple[str, FinishReason]] = {}
    for one in requests:
        alone |= run(build_core(), [one])
    assert run(build_core(num_blocks=64), requests, preempt_at) == alone


def test_an_answer_that_was_sent_back_goes_on_where_it_was() -> None:
    core = build_core()
    ((text, reason),) = run(core, [request("0", WISHES[1])], preempt_at={3, 4, 11}).values()
    assert core.stats().num_preemptions == 3
    assert json.loads(text)["b"] in ("north", "south")
    assert reason is FinishReason.STOP


def test_each_of_several_answers_has_a_state_of_its_own() -> None:
    answers = run(build_core(), [request("0", WISHES[1], num_sequences=3)])
    assert len(answers) == 3
    for text, reason in answers.values():
        json.loads(text)
        assert reason is FinishReason.STOP


def test_a_grammar_is_compiled_once() -> None:
    cache = GrammarCache()
    cache.use(VOCABULARY)
    grammar = Grammar(GrammarKind.REGEX, "[a-z]+")
    assert cache.find(grammar) is None
    compiled = cache.compile(grammar)
    assert cache.find(Grammar(GrammarKind.REGEX, "[a-z]+")) is compiled


def test_the_same_vocabulary_of_another_process_keeps_what_is_compiled() -> None:
    cache = GrammarCache()
    cache.use(VOCABULARY)
    grammar = Grammar(GrammarKind.REGEX, "[a-z]+")
    compiled = cache.compile(grammar)
    cache.use(bytes(bytearray(VOCABULARY)))
    assert cache.find(grammar) is compiled


def test_a_compiler_that_fails_fails_one_request_and_not_its_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = GrammarCache()
    cache.use(VOCABULARY)
    compile_well = Compiler.compile

    def fail_once(self: Compiler, grammar: Grammar) -> CompiledGrammar:
        if grammar.text == "bad":
            raise MemoryError("no room")
        return compile_well(self, grammar)

    monkeypatch.setattr(Compiler, "compile", fail_once)
    delivered: list[str] = []
    last = threading.Event()

    def deliver(one: AddRequest) -> None:
        delivered.append(one.request_id)
        if one.request_id == "1":
            last.set()

    desk = GrammarDesk(cache, deliver)
    for number, text in enumerate(("bad", "good")):
        assert desk.takes(request(str(number), Grammar(GrammarKind.REGEX, text)))
    assert last.wait(60)
    desk.close()
    assert delivered == ["0", "1"]
    with pytest.raises(RequestError, match="does not compile: no room"):
        cache.compile(Grammar(GrammarKind.REGEX, "bad"))


def test_a_grammar_before_the_vocabulary_is_refused() -> None:
    with pytest.raises(RequestError, match="before the vocabulary"):
        GrammarCache().compile(Grammar(GrammarKind.REGEX, "a"))


def test_a_request_that_is_taken_back_meanwhile_never_comes_to_the_core() -> None:
    delivered: list[str] = []
    last = threading.Event()

    def deliver(one: AddRequest) -> None:
        delivered.append(one.request_id)
        if one.request_id == "3":
            last.set()

    desk = GrammarDesk(GrammarCache(), deliver)
    waiting = [request(str(n), Grammar(GrammarKind.REGEX, f"a{n}")) for n in range(4)]
    assert all(desk.takes(one) for one in waiting)  # they wait for the vocabulary, then fail
    desk.abort(["1", "2"])
    desk.use(VOCABULARY)
    assert last.wait(60)
    desk.close()
    assert set(delivered) <= {"0", "1", "2", "3"}
    assert {"0", "3"} <= set(delivered)


def test_an_abort_never_overtakes_the_request_that_it_is_for() -> None:
    queue: SimpleQueue[str] = SimpleQueue()
    is_aborted = threading.Event()

    def abort() -> None:
        desk.abort(["0"])
        queue.put("abort")
        is_aborted.set()

    def deliver(one: AddRequest) -> None:
        threading.Thread(target=abort).start()
        is_aborted.wait(0.2)  # where it could overtake, it would
        queue.put(f"request {one.request_id}")

    desk = GrammarDesk(GrammarCache(), deliver)
    desk.use(VOCABULARY)
    assert desk.takes(request("0", Grammar(GrammarKind.REGEX, "a")))
    assert [queue.get(timeout=60), queue.get(timeout=60)] == ["request 0", "abort"]
    desk.close()


def test_requests_without_a_grammar_pass_by() -> None:
    desk = GrammarDesk(GrammarCache(), lambda _: None)
    assert not desk.takes(request("0", None))
