"""The launch line survives the pipe, however it is cut."""

import os
import threading

import pytest

from quire_engine.config import EngineConfig, ModelConfig
from quire_engine.core.launch import CoreLaunch, encode_launch, read_launch

LAUNCH = CoreLaunch(
    config=EngineConfig(model=ModelConfig(source="x" * 200_000, max_model_len=512)),
    model_path="/models/ünïcode.gguf",
    input_address="ipc:///tmp/quire/1-in",
)


def test_a_launch_is_read_as_it_was_written() -> None:
    read_fd, write_fd = os.pipe()
    writer = threading.Thread(target=_write_in_pieces, args=(write_fd, encode_launch(LAUNCH)))
    writer.start()
    try:
        assert read_launch(read_fd) == LAUNCH  # and the pipe is still open
    finally:
        writer.join()
        os.close(read_fd)
        os.close(write_fd)


def test_an_empty_input_says_that_people_do_not_start_the_core() -> None:
    read_fd, write_fd = os.pipe()
    os.close(write_fd)
    with pytest.raises(SystemExit, match="not by hand"):
        read_launch(read_fd)
    os.close(read_fd)


def _write_in_pieces(fd: int, data: bytes) -> None:
    for start in range(0, len(data), 7_001):
        os.write(fd, data[start : start + 7_001])
