"""Profiles that come with quire: `profiles/measured/GPU/SHAPE.json`, measured in bfloat16."""

from functools import cache
from pathlib import Path

from quire_engine.profiles.engine_profile import EngineProfile, load_profile
from quire_engine.profiles.shapes import SHAPES, ModelShape

FOLDER = Path(__file__).parent / "measured"


@cache
def find_shipped(gpu: str, shape: ModelShape) -> EngineProfile | None:
    """The profile of a model shape on a GPU, by its name in the catalogue; None without one.

    Steps of another model with the same network take the same time, so that its profile counts,
    too: of step times, not of lengths and blocks.
    """
    own = shape.name
    alike = (one.name for one in SHAPES.values() if one.network == shape.network)
    for name in (own, *sorted(alike)):
        file = FOLDER / gpu / f"{name}.json"
        if file.is_file():
            return load_profile(file.read_bytes())
    return None
