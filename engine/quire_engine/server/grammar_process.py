"""The process that tries grammars: bounded in time and memory, and of no use to break.

    parent ──► TrialSetup, then one wish after the other          (length, then msgpack)
    parent ◄── the vocabulary, then one Trial for each wish

Schemas and expressions come from clients, and a native compiler works on them: it may hang, crash,
or fill the memory, and what it makes may take long at each token. So a wish is written as a
grammar, compiled and followed here first, over some hundred tokens chosen at random. A timer of the
process's CPU time ends it without asking Python, which does not run while native code does; the
parent sees it gone and says so to the one client whose wish it was.
"""

import os
import random
import resource
import signal
import time
from pathlib import Path

import msgspec

from quire_engine.config import EngineConfig
from quire_engine.core.launch import ignore_terminal_signals
from quire_engine.grammar.compiler import CompiledGrammar, Compiler
from quire_engine.grammar.matching import GrammarState
from quire_engine.grammar.refusal import SchemaError
from quire_engine.grammar.writing import decode_spec, write_grammar
from quire_engine.parent import die_with_parent
from quire_engine.protocol.grammar import Grammar, Vocabulary
from quire_engine.server.model_files import choose_tokenizer
from quire_engine.tokenizing.frames import read_frame, write_frame
from quire_engine.tokenizing.tokenizer import Tokenizer

CPU_SECONDS = 2.0
"""A schema of fifty fields takes some hundredths of a second."""
MAX_MEMORY_BYTES = 2 << 30
NICENESS = 5
"""What is tried gives way to the engine's steps and to events, on a machine with few cores."""
MAX_MASK_SECONDS = 0.005
"""Most CPU time for the mask of a token, on average: a step waits for that of each of its rows."""
_NUM_WALKS = 4
_WALK_TOKENS = 40


class TrialSetup(msgspec.Struct, kw_only=True):
    """Whose tokens grammars are compiled for."""

    config: EngineConfig
    model_path: str | None
    width: int
    """Tokens that the model scores."""


class Trial(msgspec.Struct, kw_only=True):
    """A grammar that compiles and is fast enough, or why there is none."""

    grammar: Grammar | None = None
    error: str | None = None
    seconds: float = 0.0
    """CPU time that it took."""


def make_vocabulary(tokenizer: Tokenizer, width: int) -> Vocabulary:
    """List what each token stands for; control tokens stand for nothing."""
    count = min(tokenizer.vocab_size, width)
    spell, special = tokenizer.spelling.bytes_of, tokenizer.special_token_ids
    return Vocabulary(
        tokens=tuple(b"" if token_id in special else spell(token_id) for token_id in range(count)),
        width=width,
        end_token_ids=tuple(token_id for token_id in tokenizer.eos_token_ids if token_id < width),
    )


def try_wish(compiler: Compiler, wish: bytes) -> Trial:
    """Write, compile and follow what a route wants."""
    started_at = time.process_time()
    try:
        grammar = write_grammar(decode_spec(wish))
        follow(compiler.compile(grammar))
    except SchemaError as error:
        return Trial(error=str(error), seconds=time.process_time() - started_at)
    except MemoryError:
        return Trial(error="it needs too much memory", seconds=time.process_time() - started_at)
    return Trial(grammar=grammar, seconds=time.process_time() - started_at)


def follow(compiled: CompiledGrammar) -> None:
    """Follow a grammar along some random texts.

    Raises
    ------
    SchemaError
        It leads to where nothing can follow, permits no text but the empty one, or takes too long.
    """
    num_tokens = 0
    started_at = time.process_time()
    for seed in range(_NUM_WALKS):
        chance = random.Random(seed)
        state = GrammarState(compiled, compiled.vocabulary.end_token_ids)
        for _ in range(_WALK_TOKENS):
            if state.is_finished:
                break
            permitted = state.permitted()
            if not permitted:
                raise SchemaError("it needs a text that the model's tokens cannot spell")
            state.advance(chance.choice(permitted))
            num_tokens += 1
    if num_tokens == 0:
        raise SchemaError("it permits nothing but an empty answer")
    seconds = (time.process_time() - started_at) / num_tokens
    if seconds > MAX_MASK_SECONDS:
        raise SchemaError(
            f"it takes {seconds * 1000:.0f} ms to find what may come next, where"
            f" {MAX_MASK_SECONDS * 1000:.0f} ms are the most: make it simpler, above all with"
            " shorter repetitions"
        )


def main() -> None:
    """Try grammars until the parent closes the pipe."""
    die_with_parent()
    ignore_terminal_signals()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICENESS)
    setup = msgspec.msgpack.decode(read_frame(), type=TrialSetup)
    tokenizer = choose_tokenizer(
        setup.config, None if setup.model_path is None else Path(setup.model_path)
    )
    vocabulary = make_vocabulary(tokenizer, setup.width)
    compiler = Compiler(vocabulary)
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    write_frame(vocabulary)
    while True:
        wish = read_frame()
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        trial = try_wish(compiler, wish)
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        write_frame(trial)


if __name__ == "__main__":
    main()
