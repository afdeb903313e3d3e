"""Profiles that come with quire: `profiles/measured/GPU/SHAPE.json`, measured in bfloat16."""

from functools import cache
from pathlib import Path

from quire_engine.profiles.engine_profile import EngineProfile, load_profile

FOLDER = Path(__file__).parent / "measured"


@cache
def find_shipped(gpu: str, shape: str) -> EngineProfile | None:
    """The profile of a model shape on a GPU, by their names in the catalogues; None without one."""
    try:
        data = (FOLDER / gpu / f"{shape}.json").read_bytes()
    except FileNotFoundError:
        return None
    return load_profile(data)
