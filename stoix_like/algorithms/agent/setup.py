"""What an agent consists of, made from a world, a tokenizer and a configuration: texts, sizes of rows, model."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp

from stoix_like.algorithms.agent.loop import AgentRules
from stoix_like.algorithms.agent.slots import Slots
from stoix_like.config.sections.agent import AgentSectionConfig, DecoderSectionConfig
from stoix_like.config.sections.runs import ArchitectureConfig
from stoix_like.errors import ConfigError
from stoix_like.language import rendering
from stoix_like.language.dialogue import Dialogue, Lexicon, make_dialogue, make_lexicon
from stoix_like.language.tokenizers import Tokenizer
from stoix_like.networks.transformer.model import CriticKind, LanguageModel
from stoix_like.networks.transformer.sizes import AttentionSizes, DecoderSizes
from stoix_like.types import TextWorld

DEFAULT_HEADS, DEFAULT_LAYERS = 4, 3
SHARDS_OF_PROCESSES = 8  # of a run of several processes; with 2, 4 or 8 devices in all, rows stay on their own


class Agent(NamedTuple):
    """An agent without parameters.

    Attributes:
        dialogue: how its turns are written.
        lexicon: tables of the dialogue, arrays of the host.
        rules: of its episodes.
        model: the sizes of its decoder.
        temperature: of its sampling.
        tokenizer_hash: [32] uint8, of the vocabulary whose tokens its model speaks.
    """

    dialogue: Dialogue
    lexicon: Lexicon
    rules: AgentRules
    model: LanguageModel
    temperature: float
    tokenizer_hash: Any


def make_agent(world: TextWorld, tokenizer: Tokenizer, config: Any, critic: CriticKind | None = None) -> Agent:
    """The agent of a configuration with the sections `agent`, `decoder`, `architecture` and `hardware`.

    Raises:
        ConfigError: a rendering or mode that the world does not have, a piece that the tokenizer lacks, slots that are
            too few, sizes of heads that do not fit, or a world without a limit of actions.
    """
    section: AgentSectionConfig = config.agent
    is_conversation = section.context == "full"
    dialogue = make_dialogue(
        world,
        rendering=section.rendering,
        mode=section.mode,
        is_conversation=is_conversation,
        order=section.order,
    )
    lexicon = make_lexicon(dialogue, tokenizer, section.parser)
    rules = AgentRules(
        slots=make_slots(section, dialogue, lexicon),
        actions_per_turn=section.actions_per_turn,
        max_actions=_max_actions(world),
        format_penalty=section.format_penalty,
        group_size=section.group_size,
        shares_noise=section.shared_env_noise,
        num_shards=SHARDS_OF_PROCESSES if config.hardware.distributed else config.hardware.num_devices,
    )
    sizes = decoder_sizes(config.architecture, config.decoder, len(tokenizer.token_bytes))
    return Agent(dialogue, lexicon, rules, LanguageModel(sizes, critic), section.temperature, tokenizer.hash)


def make_slots(section: AgentSectionConfig, dialogue: Dialogue, lexicon: Lexicon) -> Slots:
    """The sizes of rows. Raises ConfigError if a state or an answer of the format may not fit."""
    lengths = [int(length) for length in lexicon.table.lengths[:-1]]  # of each text, without the row of no text
    longest_turn = dialogue.most_turn_tokens(lengths)
    longest_answer = dialogue.most_answer_tokens(lengths, section.actions_per_turn)
    state, answer = section.state_length or longest_turn, section.answer_length or longest_answer
    rendering.require_slots("agent.state_length: a turn of this world", longest_turn, state, "leave it null")
    shortest = dialogue.most_answer_tokens(lengths, 1)
    rendering.require_slots("agent.answer_length: an answer with one action", shortest, answer, "raise it")
    return Slots(len(lexicon.prompt), section.num_turns, state, answer, dialogue.is_conversation)


def decoder_sizes(architecture: ArchitectureConfig, section: DecoderSectionConfig, num_tokens: int) -> DecoderSizes:
    """The sizes of a decoder. Raises ConfigError if the heads do not fit."""
    width, num_heads = architecture.hidden_dim, architecture.num_heads or DEFAULT_HEADS
    num_kv_heads = section.num_kv_heads or num_heads
    head_dim = section.head_dim or width // num_heads
    problems = []
    if section.head_dim is None and width % num_heads:
        problems.append(f"architecture.hidden_dim: {width} is not divisible by num_heads {num_heads}")
    if head_dim % 2:
        problems.append(f"decoder.head_dim: {head_dim} is odd, and positions turn pairs of numbers")
    if num_heads % num_kv_heads:
        problems.append(f"decoder.num_kv_heads: {num_kv_heads} does not divide num_heads {num_heads}")
    if problems:
        raise ConfigError(problems, "for example hidden_dim 96, num_heads 4, num_kv_heads null, head_dim null")
    return DecoderSizes(
        num_tokens=num_tokens,
        num_layers=architecture.num_layers or DEFAULT_LAYERS,
        width=width,
        ffn_width=section.ffn_dim or -(-8 * width // 3 // 8) * 8,
        attention=AttentionSizes(
            num_heads, num_kv_heads, head_dim, section.qkv_bias, section.qk_norm, section.rope_theta
        ),
        ties_embeddings=section.tie_embeddings,
        dtype=jnp.dtype(architecture.compute_dtype),
        remat=section.remat,
        scans_layers=section.scan_layers,
    )


def _max_actions(world: TextWorld) -> int:
    limit = world.env.time_limit
    if limit is None or limit > 99:
        found = "has no limit of actions" if limit is None else f"allows {limit} actions"
        raise ConfigError(
            f"{world.env.task_id} {found}, and a turn shows how many are left, below 100",
            "give the environment a time_limit of at most 99",
        )
    return limit
