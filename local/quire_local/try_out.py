"""`make run`: serves a model, asks it one question to show that it answers, and goes on serving."""

import json
import os
import sys
from collections.abc import Sequence

from quire_engine.__main__ import report_errors
from quire_engine.config.flags import FlagParser, add_setting_flags, config_from
from quire_engine.config.values import split
from quire_local.asking import AnswerError, Question, served_model, stream_answer
from quire_local.beside import serve_beside, with_free_port

_DESCRIPTION = "Serve a model, ask it one question, and go on serving until SIGTERM or Ctrl-C."
_QUESTION = Question(
    text="What is the capital of France?", max_tokens=64, temperature=0.0, is_raw=False
)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit status is returned."""
    return report_errors(lambda: _try_out(sys.argv[1:] if argv is None else argv))


def _try_out(argv: Sequence[str]) -> int:
    parser = FlagParser(prog="python -m quire_local.try_out", description=_DESCRIPTION)
    add_setting_flags(parser)
    config = with_free_port(config_from(parser.parse_known(argv), os.environ))
    key = next(iter(split(config.access.api_key)), None)
    status, _ = serve_beside(config, lambda url: _show(url, key))
    return status


def _show(url: str, api_key: str | None = None) -> None:
    """Print question and answer, and how to ask more; a failure is told, and serving goes on."""
    print(f"\n> {_QUESTION.text}")
    try:
        for piece in stream_answer(url, _QUESTION, api_key):
            print(piece, end="", flush=True)
        print(_invitation(url, served_model(url, api_key)), flush=True)
    except AnswerError as error:
        print(f"quire: error: {error}", file=sys.stderr)


def _invitation(url: str, model: str) -> str:
    messages = [{"role": "user", "content": "Who are you?"}]
    body = json.dumps({"model": model, "messages": messages, "temperature": 0})
    return (
        f"\n\nServing OpenAI's API at {url}/v1 until Ctrl-C. Ask more from another terminal:\n"
        f"  curl {url}/v1/chat/completions -H 'content-type: application/json' \\\n"
        f"    -d '{body}'"
    )


if __name__ == "__main__":
    sys.exit(main())
