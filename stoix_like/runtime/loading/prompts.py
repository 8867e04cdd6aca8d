"""What agents of text worlds are told, from the files in configs/prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoix_like.errors import ConfigError
from stoix_like.runtime.loading.presets import PROMPTS, configs_folder
from stoix_like.runtime.loading.strict_yaml import read_sections

MODES, PARTS = ("base", "worldmodel"), ("system", "instructions")


def read_prompts(name: str, numbers: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """{mode: (system message, instructions)} of a world, with the numbers of a configuration in their places.

    Raises ConfigError if the file lacks a part, or a number that a text asks for.
    """
    path = configs_folder() / PROMPTS / f"{name}.yaml"
    sections = read_sections(path) or {}
    found = {}
    for mode in MODES:
        texts = sections.get(mode)
        if not isinstance(texts, dict) or not all(isinstance(texts.get(part), str) for part in PARTS):
            raise ConfigError(f"{path}: {mode} needs the texts {' and '.join(PARTS)}", "install the package again")
        try:
            found[mode] = (str(texts["system"]).format(**numbers), str(texts["instructions"]).format(**numbers))
        except (KeyError, IndexError, ValueError) as error:
            what = f"{path}: the texts of {mode} ask for {error}, which is no number of the world"
            raise ConfigError(what, f"numbers: {', '.join(numbers)}") from error
    return found
