"""Agents of text worlds from their configurations: the world with its prompts, the tokenizer, the learner."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import jax
from jax.sharding import SingleDeviceSharding

from stoix_like.algorithms.agent.setup import decoder_sizes, make_agent
from stoix_like.algorithms.text import fine_tuning, pretraining, token_ppo
from stoix_like.algorithms.text.world_rows import WrittenTurns
from stoix_like.config.dicts import config_from_dict
from stoix_like.config.sections.agent import AgentSectionConfig
from stoix_like.config.sections.agent_runs import AgentConfig, FineTuneConfig, LanguageConfig, PretrainConfig
from stoix_like.envs.text import worlds
from stoix_like.errors import CheckpointError, ConfigError
from stoix_like.language.tokenizers import Tokenizer, word_tokenizer
from stoix_like.language.words import WORDS
from stoix_like.runtime.console.spelling import training_name
from stoix_like.runtime.datasets import parquet, row_files
from stoix_like.runtime.datasets.parquet import Texts
from stoix_like.runtime.datasets.row_form import RowForm
from stoix_like.runtime.loading.prompts import read_prompts
from stoix_like.runtime.runs.checkpoint import CheckpointMeta, CheckpointStore
from stoix_like.runtime.runs.find import find_checkpoint, find_source, is_parameters
from stoix_like.runtime.runs.host_values import best_scores
from stoix_like.runtime.runs.inputs import TOKENIZER, check_tokenizer, hashes
from stoix_like.runtime.weights import parameters
from stoix_like.types import Environment, Learner, NetworkParams, Params, Prompt, TextWorld

LEAST_FORMAT = 0.98  # well-formed answers of a model that an agent may begin with


def make_text_world(env: Environment, agent: AgentSectionConfig | None = None) -> TextWorld:
    """The text world of an environment, with the prompts that come with the package and the budget of an agent.

    Its ceiling is that of the budget: how often the best agent succeeds that commits to all actions of a turn at once.

    Raises:
        ConfigError: the environment is none of the shipped text worlds.
    """
    agent = agent or AgentSectionConfig()
    limit = int(env.time_limit or 0)
    world = worlds.text_world(env, {}, (agent.num_turns, agent.actions_per_turn))
    numbers = (
        worlds.sizes(env)
        | dict(env.rules)
        | {
            "num_turns": agent.num_turns,
            "actions_per_turn": agent.actions_per_turn,
            "max_actions": limit,
        }
    )
    texts = read_prompts(worlds.name_of(env), numbers, agent.order)
    marks = worlds.marks(env)
    return world._replace(prompts={mode: Prompt((*marks, f"<{mode}>"), *parts) for mode, parts in texts.items()})


def make_tokenizer() -> Tokenizer:
    """The tokenizer of the shipped worlds' words."""
    return word_tokenizer(WORDS)


def make_learner(world: TextWorld, config: LanguageConfig) -> Learner:
    """The learner of a configuration in a text world. Raises ConfigError as `token_ppo.make`."""
    tokenizer = make_tokenizer()
    if isinstance(config, PretrainConfig):
        return pretraining.make(world, tokenizer, config)
    if isinstance(config, FineTuneConfig):
        return fine_tuning.make(world, tokenizer, config, *_rows(world, tokenizer, config))
    return token_ppo.make(world, tokenizer, config)


def language_inputs(world: TextWorld, config: LanguageConfig) -> dict[str, Any]:
    """{path of the state: host arrays}, the inputs of an agent's run: tables of its dialogues, and its tokenizer."""
    tokenizer = make_tokenizer()
    if isinstance(config, PretrainConfig):
        lexicons = tuple(agent.lexicon for agent in pretraining.make_agents(world, tokenizer, config))
        return {"lexicons": lexicons, TOKENIZER: tokenizer.hash}
    agent = make_agent(world, tokenizer, config)
    if isinstance(config, FineTuneConfig):
        rows = fine_tuning.training_rows(agent, config.fine_tune, _rows(world, tokenizer, config)[0])
        return {"rows": rows, "prompt": agent.lexicon.prompt, TOKENIZER: tokenizer.hash}
    lexicon = agent.lexicon
    given: dict[str, Any] = {"lexicon": lexicon, TOKENIZER: tokenizer.hash}
    if config.token_ppo.kl_coef > 0.0:
        given["reference"] = _reference(world, tokenizer, config)
    return given


def _rows(world: TextWorld, tokenizer: Tokenizer, config: FineTuneConfig) -> tuple[WrittenTurns, WrittenTurns]:
    """(rows to learn from, rows of validation) of a configuration.

    Raises ConfigError if it names none, and CheckpointError if they cannot be read, or not by its agent.
    """
    if (path := config.fine_tune.data_path) is None:
        raise ConfigError(
            "fine_tune.data_path: no rows are given", "give --data-path, a folder that the stage generate has made"
        )
    folder, form = Path(path), row_form(world, tokenizer, config)
    if parquet.has_parquet(folder) and not row_files.has_rows(folder):
        return parquet.read_folder(folder, form, Texts(tokenizer, world.prompts[config.agent.mode]))
    training, validation = row_files.read_folder(folder, form)
    return training.turns, validation.turns


def row_form(world: TextWorld, tokenizer: Tokenizer, config: Any) -> RowForm:
    """What rows have in common with an agent of a configuration with the section `agent`."""
    section, slots = config.agent, make_agent(world, tokenizer, config).rules.slots
    return RowForm(
        task_id=world.env.task_id,
        world=worlds.sizes(world.env) | dict(world.env.rules),
        rendering=section.rendering,
        mode=section.mode,
        order=section.order,
        context=section.context,
        tokenizer=tokenizer.hash.tobytes().hex(),
        slots=[slots.state, slots.answer],
    )


def _reference(world: TextWorld, tokenizer: Tokenizer, config: AgentConfig) -> NetworkParams:
    """The policy that a new run begins with, on the host.

    Raises CheckpointError if there is none, or if the run of `load_path` speaks other tokens or has several seeds: all
    seeds share it.
    """
    path = find_source(str(config.checkpointing.load_path), config.checkpointing.save_dir)
    if is_parameters(path):
        stored = parameters.read_metadata(path)
        of_file = make_agent(world, tokenizer, _language_config(stored.algorithm, stored.config)).model
        shapes = jax.eval_shape(of_file.init, jax.random.key(0))
        published: NetworkParams = jax.device_get(parameters.read_arrays(path, shapes))
        return published
    folder, update = find_checkpoint(path)
    store = CheckpointStore(folder)
    meta = store.load_meta(update)
    check_tokenizer(hashes({TOKENIZER: tokenizer.hash})[TOKENIZER], meta, path)
    base = _language_config(meta.algorithm, meta.config)
    if base.training_core.num_seeds > 1:
        what = f"token_ppo.kl_coef: {path} has {base.training_core.num_seeds} seeds, and the policy is held to one"
        raise CheckpointError(what, "give a run of one seed")
    critic = base.token_ppo.critic if isinstance(base, AgentConfig) else None
    shapes = jax.eval_shape(make_agent(world, tokenizer, base, critic).model.init, jax.random.key(0))
    here = SingleDeviceSharding(jax.local_devices()[0])
    template = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=here), shapes)
    reference: NetworkParams = jax.device_get(policy_params(store.load_part("params", template, meta.update)))
    return reference


def _language_config(algorithm: str, stored: dict[str, Any]) -> LanguageConfig:
    """The configuration of a run with a language model, as it was stored."""
    types = {"agent": AgentConfig, "sft": FineTuneConfig}
    config: LanguageConfig = config_from_dict(types.get(algorithm, PretrainConfig), stored)
    return config


def policy_params(params: Params) -> NetworkParams:
    """The decoder's part of an agent's parameters, without a value function."""
    policy: NetworkParams = params
    return policy._replace(critic=None)


def hidden_sizes(config: LanguageConfig) -> dict[str, float]:
    """{leaf: number} of a decoder that the shapes of its parameters do not show."""
    attention = decoder_sizes(config.architecture, config.decoder, 1).attention
    return {name: getattr(attention, name) for name in ("num_heads", "num_kv_heads", "head_dim", "rope_theta")}


def fine_tune_notes(config: FineTuneConfig, base: CheckpointMeta | None) -> list[str]:
    """As `base_notes`, of fine-tuning, which may begin with a fresh decoder."""
    return [] if base is None else base_notes(config, base)


def base_notes(config: AgentConfig | FineTuneConfig, base: CheckpointMeta | None) -> list[str]:
    """What an agent begins with, if it will probably not learn from that; `base` is None for a fresh decoder."""
    if base is None:
        pretrain = training_name("pretrain")
        return [f"a fresh decoder never writes a valid answer: {pretrain} makes one that does, for --load-path"]
    notes, best, is_pretrained = [], best_scores(base), base.algorithm == "pretrain"
    if is_pretrained and base.update == 0:
        notes.append("the base has done no update of its pretraining")
    elif is_pretrained and best is not None and min(best.scores) < LEAST_FORMAT:
        well_formed = math.floor(1e3 * min(best.scores)) / 1e3
        notes.append(f"only {well_formed:.3f} of the base's answers are well-formed; agents need {LEAST_FORMAT}")
    if base.task_id != config.environment.task_id:
        notes.append(f"the base has learned to answer in {base.task_id}, not in {config.environment.task_id}")
    learned_once: list[tuple[str, str]] = [("mode", config.agent.mode), ("rendering", config.agent.rendering)]
    if config.agent.mode == "worldmodel":  # others have nothing to order
        learned_once.append(("order", config.agent.order))
    for name, own in learned_once:
        learned, section = base.config.get("agent", {}).get(name, own), base.config.get("pretrain", {})
        others = [section.get(f"second_{name}")]
        if section.get(f"all_{name}s", False):
            others += pretraining.ALL_RENDERINGS if name == "rendering" else [own]
        if own not in (learned, *others):
            notes.append(f"the base has learned to answer in {name} {learned}, not in {own}")
    return notes
