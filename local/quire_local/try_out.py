"""`make run`: `quire up` with a small model, which is asked a question to show that it answers."""

import json
import sys
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from quire_engine.__main__ import report_errors
from quire_engine.errors import ConfigError
from quire_engine.server.listener import listen
from quire_local.asking import AnswerError, Question, served_model, stream_answer
from quire_local.up.command import parser, up

_QUESTION = Question(
    text="What is the capital of France?", max_tokens=64, temperature=0.0, is_raw=False
)


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until told to stop; the exit status is returned."""
    arguments = sys.argv[1:] if argv is None else argv
    with as_file(files("quire_local.up").joinpath("smollm2.yaml")) as file:
        return report_errors(lambda: _try_out(arguments, file))


def _try_out(argv: Sequence[str], file: Path) -> int:
    flags = parser(prog="python -m quire_local.try_out", default_file=str(file))
    parsed = flags.parse_args(argv)
    try:
        listen(parsed.host, parsed.port).close()
    except ConfigError as error:
        raise ConfigError(f"{error}; with make: make run PORT=8080") from error
    return up(parsed, _show)


def _show(url: str) -> None:
    """Print question and answer, and how to ask more; a failure is told, and serving goes on."""
    print(f"\n> {_QUESTION.text}")
    try:
        for piece in stream_answer(url, _QUESTION):
            print(piece, end="", flush=True)
        print(_invitation(url, served_model(url)), flush=True)
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
