"""What agents of text worlds are told, from the files in configs/prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stoix_like.errors import ConfigError
from stoix_like.language.templates import Order, Parts, whole_answer
from stoix_like.runtime.loading.presets import PROMPTS, configs_folder
from stoix_like.runtime.loading.strict_yaml import read_sections

MODES, PARTS = ("base", "worldmodel"), ("system", "instructions")


def read_prompts(name: str, numbers: Mapping[str, Any], order: Order) -> dict[str, tuple[str, str]]:
    """{mode: (system message, instructions)} of a world, with the numbers of a configuration in their places.

    The example of the mode "worldmodel" has its parts in the order of answers. Raises ConfigError if the file lacks a
    part, or a number that a text asks for.
    """
    path = configs_folder() / PROMPTS / f"{name}.yaml"
    sections = read_sections(path) or {}
    found = {}
    for mode in MODES:
        parts = [*PARTS, *(Parts._fields if mode == "worldmodel" else ())]
        texts = sections.get(mode)
        if not isinstance(texts, dict) or not all(isinstance(texts.get(part), str) for part in parts):
            raise ConfigError(f"{path}: {mode} needs the texts {' and '.join(parts)}", "install the package again")
        given = {**numbers}
        if mode == "worldmodel":
            given["example"] = whole_answer(order, Parts(*(texts[part] for part in Parts._fields)))
        try:
            found[mode] = (str(texts["system"]).format(**given), str(texts["instructions"]).format(**given))
        except (KeyError, IndexError, ValueError) as error:
            what = f"{path}: the texts of {mode} ask for {error}, which is no number of the world"
            raise ConfigError(what, f"numbers: {', '.join(numbers)}") from error
    return found
