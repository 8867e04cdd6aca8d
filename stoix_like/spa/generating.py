"""The stage `generate`: the pretrained model plays, and states that its answers tell are replaced by those that were.

The levels are those of training. The outputs are the rows as arrays; the same rows as parquet stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.algorithms.agent.episodes import Episodes
from stoix_like.algorithms.agent.loop import rollout
from stoix_like.algorithms.agent.random_speaker import random_speaker
from stoix_like.algorithms.agent.setup import Agent
from stoix_like.algorithms.agent.speaking import Speaker, model_speaker
from stoix_like.algorithms.text.generation import (
    Counts,
    GenerationRules,
    PlayedTurns,
    make_rows,
    split,
    states_of_turns,
)
from stoix_like.errors import RunError
from stoix_like.language import rendering
from stoix_like.runtime.datasets import parquet, row_files
from stoix_like.runtime.datasets.parquet import MISSING, Texts
from stoix_like.runtime.datasets.row_files import RowFile
from stoix_like.runtime.hardware.devices import reraise_device_errors
from stoix_like.runtime.runs.agents import row_form
from stoix_like.runtime.stages.manifest import Manifest
from stoix_like.runtime.stages.run import StageCall, StageResult, run_stage
from stoix_like.runtime.stages.table import StageFiles
from stoix_like.runtime.training.stopping import Interrupted
from stoix_like.spa.arms import GENERATE, PRETRAIN
from stoix_like.spa.pipeline import Pipeline, StageAgent, agent_of, read_params
from stoix_like.types import Array, Key, NetworkParams, role_key

_MEMORY_HINT = "lower generate_groups, and raise generate_batches"
#: (level keys [M], keys [M], parameters) -> (episodes, tokens of their last states [N, S'], which are some)
Player = Callable[[Key, Key, NetworkParams], tuple[Episodes, tuple[Array, Array]]]


def generate_stage(pipeline: Pipeline, files: StageFiles, call: StageCall) -> Manifest:
    """Plays, and writes the rows. Facts: how many rows there are, and what became of the others.

    Raises:
        Interrupted: a signal came.
        RunError: no row is left to learn from, or none to validate on.
    """
    folder = files.folder(GENERATE)
    return run_stage(folder, call, lambda: _generate(pipeline, files, folder))


def _generate(pipeline: Pipeline, files: StageFiles, folder: Path) -> StageResult:
    one = agent_of(pipeline, GENERATE)
    section, seed = pipeline.arm.config.generate, pipeline.config.model.seed
    played = _played(pipeline, files, one)
    rng = np.random.default_rng(seed)
    rules = GenerationRules(section.generate_states, section.generate_keep_untagged)
    turns, trajectory, counts = make_rows(one.agent.rules.slots, one.tokenizer.token_bytes, played, rules, rng)
    is_held_out = split(trajectory, section.generate_validation_share, rng)
    if is_held_out.all() or not is_held_out.any():
        what = f"generate: {int((~is_held_out).sum())} rows to learn from and {int(is_held_out.sum())} of validation"
        raise RunError(f"{what} are left of {counts.played}", "raise generate_groups, or answer_length")
    rows = RowFile(turns, trajectory, row_form(one.world, one.tokenizer, one.config))
    outputs = {
        row_files.TRAINING: row_files.write_rows(folder / row_files.TRAINING, rows.take(~is_held_out)),
        row_files.VALIDATION: row_files.write_rows(folder / row_files.VALIDATION, rows.take(is_held_out)),
    }
    _write_parquet(pipeline, folder, rows, is_held_out, one)
    kept = counts_text(counts, len(trajectory), keeps_untagged=rules.keeps_untagged)
    pipeline.reporter.info(f"generate: {kept}, {int(is_held_out.sum()):,} of them for validation")
    facts: dict[str, Any] = counts._asdict() | {"rows": int((~is_held_out).sum())}
    facts["validation_rows"] = int(is_held_out.sum())
    facts["generated_tokens"] = int(played.episodes.is_chosen.sum())
    return StageResult(outputs, facts)


def check_rows(files: StageFiles) -> tuple[RowFile, RowFile]:
    """(rows to learn from, rows of validation). Raises CheckpointError if they are not those of the manifest."""
    folder, outputs = files.folder(GENERATE), files.done(GENERATE).outputs
    training, validation = (
        row_files.read_rows(folder / name, outputs[name]) for name in (row_files.TRAINING, row_files.VALIDATION)
    )
    return training, validation


def counts_text(counts: Counts, kept: int, *, keeps_untagged: bool) -> str:
    """What became of all rows, in words."""
    left_out = {"too long": counts.too_long, "indivisible": counts.indivisible, "twice": counts.twice}
    left_out["without tags"] = 0 if keeps_untagged else counts.untagged
    named = ", ".join(f"{number:,} {name}" for name, number in left_out.items() if number)
    return f"{kept:,} rows of {counts.played:,}" + (f" ({named})" if named else "")


def _played(pipeline: Pipeline, files: StageFiles, one: StageAgent) -> PlayedTurns:
    """All episodes with their states."""
    section, is_random = pipeline.arm.config.generate, pipeline.arm.config.generate.generate_policy == "random"
    params = read_params(files, PRETRAIN, one)
    play, root = player(one.agent, is_random=is_random), jax.random.key(pipeline.config.model.seed)
    found = []
    for batch in range(section.generate_batches):
        if pipeline.stop.is_set:
            raise Interrupted(GENERATE)
        keys = jax.random.split(role_key(root, "selfplay", batch), (2, section.generate_groups))
        with reraise_device_errors("the episodes cannot be played", _MEMORY_HINT):
            found.append(jax.device_get(play(keys[0], keys[1], params)))
        done = (batch + 1) * section.generate_groups * section.generate_group_size
        pipeline.reporter.progress(f"generate: {done:,} episodes")
    episodes, (tokens, is_valid) = jax.tree.map(lambda *parts: np.concatenate(parts), *found)
    last = [row[valid].tolist() for row, valid in zip(tokens, is_valid, strict=True)]
    return states_of_turns(one.agent.dialogue, one.agent.lexicon, episodes, last)


def player(agent: Agent, *, is_random: bool = False, held_out: bool = False) -> Player:
    """A compiled function that plays groups of episodes and writes the states that they end in."""
    dialogue, rules = agent.dialogue, agent.rules
    lexicon = jax.tree.map(jnp.asarray, agent.lexicon)

    def speaker(params: NetworkParams) -> Speaker:
        if is_random:
            return random_speaker(dialogue, lexicon, rules.slots, rules.actions_per_turn)
        return model_speaker(agent.model, params, lexicon.prompt, lexicon.ends, rules.slots, agent.temperature)

    @jax.jit
    def play(level_keys: Key, keys: Key, params: NetworkParams) -> tuple[Episodes, tuple[Array, Array]]:
        episodes, world = rollout(dialogue, lexicon, rules, speaker(params), level_keys, keys, held_out=held_out)
        pieces = dialogue.write_told(world.env_state)
        longest = pieces.shape[1] * lexicon.table.tokens.shape[1]
        return episodes, rendering.pack(lexicon.table, pieces, longest, at_end=False)

    return play


def _write_parquet(pipeline: Pipeline, folder: Path, rows: RowFile, is_held_out: np.ndarray, one: StageAgent) -> None:
    if not parquet.is_installed():
        pipeline.reporter.note(f"generate: the rows are not written as parquet; {MISSING} makes that possible")
        return
    texts = Texts(one.tokenizer, one.world.prompts[one.config.agent.mode])
    parquet.write_parquet(folder / parquet.TRAINING, rows.take(~is_held_out), texts)
    parquet.write_parquet(folder / parquet.VALIDATION, rows.take(is_held_out), texts)
