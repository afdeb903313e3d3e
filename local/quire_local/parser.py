"""Flags of the commands that are no engine's."""

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """An argument parser that says what is wrong in one line, as `quire serve` does.

    argparse prints the usage first: for `quire simulate` a screen, with the reason below it.
    """

    def error(self, message: str) -> NoReturn:
        """Say it, and end with status 2."""
        self.exit(2, f"quire: error: {message}; see {self.prog} --help\n")
