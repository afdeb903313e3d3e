"""What the scripts that run in clients' own environments share; the standard library alone."""

import json
import sys
import urllib.request
from collections.abc import Callable

Check = Callable[[str, str], None]
"""Takes the URL of the API and the model's name; an exception says what is wrong."""

QUESTION = "What is the capital of France? Answer in one word."


def main(checks: list[Check]) -> None:
    """Run all checks against the server that the command line names."""
    [url] = sys.argv[1:]
    with urllib.request.urlopen(f"{url}/models", timeout=60) as response:
        model = json.load(response)["data"][0]["id"]
    for check in checks:
        check(url, model)
        print(f"  {check.__name__.replace('_', ' ')}")
    print(f"{len(checks)} checks")


def require(holds: bool, found: object) -> None:
    """Fail with what was found, if something does not hold; `assert` can be switched off."""
    if not holds:
        raise AssertionError(repr(found))
