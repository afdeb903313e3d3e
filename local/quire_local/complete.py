"""`quire complete --input TEXT`: one answer from a server of its own, which ends with it.

The answer goes to standard output, everything else to standard error.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from typing import TextIO

from quire_engine.__main__ import report_errors
from quire_engine.config import AccessConfig, EngineConfig
from quire_engine.config.flags import FlagParser, add_setting_flags, config_from
from quire_local.asking import Question, stream_answer
from quire_local.beside import serve_beside, with_free_port
from quire_local.numbers import count, limit, number_from, share, temperature

_DESCRIPTION = "Answer one prompt and print the answer as it is generated."
_INTERRUPTED = 130
_PENALTY = number_from(-2, 2)
_CHOICES: dict[str, tuple[Callable[[str], object], str]] = {
    "top_p": (share, "choose among the most likely tokens that together reach this share"),
    "top_k": (limit, "choose among this many of the most likely tokens; 0 is all"),
    "min_p": (number_from(0, 1), "choose among tokens with this share of the likeliest's chance"),
    "repetition_penalty": (number_from(0.01, 100), "above 1, tokens that came are less likely"),
    "presence_penalty": (_PENALTY, "above 0, tokens that the answer has are less likely"),
    "frequency_penalty": (_PENALTY, "the same for each time that the answer has them"),
}
"""Numbers that the answer is drawn by, by the API's names; default: what the model's makers say."""


def main(argv: Sequence[str]) -> int:
    """Answer the prompt; the exit status is returned."""
    return report_errors(lambda: _complete(argv, sys.stdout))


def _complete(argv: Sequence[str], output: TextIO) -> int:
    parser = _parser()
    parsed = parser.parse_known(argv)
    if parsed.input is None:  # required here and not by argparse: a misspelt --input is told first
        parser.error("the following arguments are required: --input")
    config = config_from(parsed, os.environ)
    given = vars(parsed)
    question = Question(
        text=parsed.input,
        max_tokens=parsed.max_tokens,
        temperature=parsed.temperature,
        choices={name: given[name] for name in (*_CHOICES, "stop") if name in given},
        is_raw=parsed.raw,
    )
    return answer(config, question, output)


def answer(config: EngineConfig, question: Question, output: TextIO) -> int:
    """Serve for this process alone, print one answer to `output`, and end.

    Raises
    ------
    QuireError
        The model could not be served, or the question was refused.
    """
    config = _private(config)
    with redirect_stdout(sys.stderr):
        status, companion = serve_beside(config, lambda url: _print(url, question, output))
    if companion.error is not None:
        raise companion.error
    return status if companion.is_done else _INTERRUPTED


def _print(url: str, question: Question, output: TextIO) -> None:
    """Print the answer, then end the server, which is this process."""
    try:
        for piece in stream_answer(url, question):
            output.write(piece)
            output.flush()
        output.write("\n")
    finally:
        os.kill(os.getpid(), signal.SIGINT)


def _private(config: EngineConfig) -> EngineConfig:
    """A server for this process alone, which does not linger."""
    server = replace(
        config.server, host="127.0.0.1", port=0, drain_seconds=0.0, drain_grace_seconds=0.0
    )
    observability = config.observability
    if observability.log_level == "info":  # that it is asked to end is no news here
        observability = replace(observability, log_level="warning")
    private = replace(config, server=server, access=AccessConfig(), observability=observability)
    return with_free_port(private)


def _text(given: str) -> str:
    """Text that can be sent: the shell passes any bytes."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError("the text is not valid UTF-8") from None
    return given


def _parser() -> FlagParser:
    parser = FlagParser(prog="quire complete", description=_DESCRIPTION)
    parser.usage = f"{parser.prog} --input TEXT [MODEL] [--setting VALUE ...]"
    parser.add_argument("--input", type=_text, metavar="TEXT", help="the prompt")
    parser.add_argument(
        "--max-tokens", type=count, default=256, metavar="N", help="most tokens to generate [256]"
    )
    parser.add_argument(
        "--temperature",
        type=temperature,
        default=0.0,
        metavar="X",
        help="0 always takes the most likely token; above, --seed makes answers repeatable [0]",
    )
    for name, (take, text) in _CHOICES.items():
        flag = f"--{name.replace('_', '-')}"
        parser.add_argument(flag, type=take, default=argparse.SUPPRESS, metavar="X", help=text)
    parser.add_argument(
        "--stop",
        type=_text,
        action="append",
        default=argparse.SUPPRESS,
        metavar="TEXT",
        help="end the answer before this text; may be given several times",
    )
    parser.add_argument(
        "--raw", action="store_true", help="continue the text as it is, without a chat template"
    )
    add_setting_flags(parser)
    return parser
