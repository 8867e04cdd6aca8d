"""All that an agent loop needs of text, for one world, one rendering of its states and one mode of answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from stoix_like.errors import ConfigError
from stoix_like.language import rendering, templates
from stoix_like.language.automaton import Mode, Parser
from stoix_like.language.grammar import Grammar, make_grammar
from stoix_like.language.rendering import PieceTable
from stoix_like.language.spans import SpanTable, make_spans
from stoix_like.language.templates import Order, TurnFacts
from stoix_like.language.tokenizers import TURN_END, Tokenizer
from stoix_like.types import Array, EnvState, Pieces, TextWorld


class Lexicon(NamedTuple):
    """Tables of a dialogue, arrays of the host that are arguments of compiled programs."""

    prompt: Any  # [P] int32, tokens
    table: PieceTable  # of the pieces of a dialogue
    grammar: Grammar  # of the answers
    ends: Any  # [E] int32, tokens that end a turn
    spans: SpanTable  # of the parts of an answer


class Dialogue(NamedTuple):
    """How turns are written, as pieces whose numbers are those of `Lexicon.table`.

    Attributes:
        world: that is talked about.
        pieces: of its states, in one rendering.
        mode: "base", or "worldmodel" with observation and prediction in each answer.
        is_conversation: turns show the reward of the one before, as in a context of all turns.
        order: of the parts of an answer in the mode "worldmodel".
    """

    world: TextWorld
    pieces: Pieces
    mode: Mode
    is_conversation: bool
    order: Order = "obs_pred_answer"

    @property
    def texts(self) -> tuple[str, ...]:
        """The pieces: of turns, of states, of answers."""
        return (*templates.turn_texts(self.mode, self.order), *self.pieces.texts, *templates.TAGS, *self.world.grammar)

    def most_turn_tokens(self, lengths: Sequence[int]) -> int:
        """The most tokens of a user turn, from those of each of `texts`."""
        of_turns = lengths[: len(templates.turn_texts(self.mode, self.order))]
        around = templates.most_tokens(of_turns, is_conversation=self.is_conversation)
        return around + _most_tokens(self.pieces, self._of_states(lengths))

    def most_answer_tokens(self, lengths: Sequence[int], num_actions: int) -> int:
        """The most tokens of an answer that has so many actions, from those of each of `texts`."""
        tokens = dict(zip(self.texts, lengths, strict=True))
        tags = [templates.THOUGHT, templates.ANSWER, templates.ANSWERED, TURN_END]
        spans = 0
        if self.mode == "worldmodel":
            tags += [templates.OBSERVATION, templates.OBSERVED, templates.PREDICTION, templates.PREDICTED]
            spans = 2 * _most_tokens(self.told, self._of_states(lengths)[-len(self.told.texts) :])
        actions = num_actions * max(tokens[name] for name in self.world.grammar)
        return sum(tokens[tag] for tag in tags) + spans + actions + (num_actions - 1) * tokens[templates.SEPARATOR]

    @property
    def told(self) -> Pieces:
        """What answers tell of a state: the last of its pieces, or all."""
        return self.pieces if self.pieces.told is None else self.pieces.told

    def _of_states(self, lengths: Sequence[int]) -> Sequence[int]:
        """Of the lengths of `texts`, those of the states' pieces."""
        first = len(templates.turn_texts(self.mode, self.order))
        return lengths[first : first + len(self.pieces.texts)]

    def write_state(self, state: EnvState) -> Array:
        """[N, M] int32, the pieces of states [N, ...]."""
        return _shifted(jax.vmap(self.pieces.write)(state), len(templates.turn_texts(self.mode, self.order)))

    def write_told(self, state: EnvState) -> Array:
        """[N, M'] int32, the pieces with which answers tell states [N, ...]."""
        first = len(templates.turn_texts(self.mode, self.order)) + len(self.pieces.texts) - len(self.told.texts)
        return _shifted(jax.vmap(self.told.write)(state), first)

    def write_turn(self, state: EnvState, facts: TurnFacts) -> Array:
        """[N, M] int32, the pieces of a user turn about states [N, ...], up to the forced beginning of the answer."""
        before = templates.before_state(facts, is_conversation=self.is_conversation)
        return jnp.concatenate([before, self.write_state(state), templates.after_state(facts)], axis=1)

    def write_beginning(self, observation: Array, prediction: Array) -> Array:
        """[N, M] int32, the pieces that an answer of the order "obs_pred_answer" begins with, up to its prediction."""
        first = len(templates.turn_texts(self.mode, self.order)) + len(self.pieces.texts)
        tags = (templates.OBSERVATION, templates.OBSERVED, templates.PREDICTION, templates.PREDICTED)
        columns = [jnp.full((len(observation), 1), first + templates.TAGS.index(tag), jnp.int32) for tag in tags]
        return jnp.concatenate([columns[0], observation, *columns[1:3], prediction, columns[3]], axis=1)

    def write_answer(self, actions: Array, spans: tuple[Array, Array] | None = None) -> Array:
        """[N, M] int32, the pieces of an answer after its forced beginning: its actions [N, K], -1 where none.

        In the mode "worldmodel", `spans` are the pieces of the states in observation and prediction.
        """
        first = len(templates.turn_texts(self.mode, self.order)) + len(self.pieces.texts)
        tag = {text: first + index for index, text in enumerate(templates.TAGS)}
        num_rows, num_actions = actions.shape

        def column(text: str) -> Array:
            return jnp.full((num_rows, 1), tag[text], jnp.int32)

        answer = [column(templates.THOUGHT), column(templates.ANSWER)]
        for index in range(num_actions):
            action = actions[:, index : index + 1]
            if index:
                answer.append(jnp.where(action >= 0, tag[templates.SEPARATOR], -1))
            answer.append(_shifted(action, first + len(templates.TAGS)))
        columns = [*answer, column(templates.ANSWERED)]
        if spans is not None:
            observation, prediction = spans
            parts = {
                "obs": [column(templates.OBSERVATION), observation, column(templates.OBSERVED)],
                "pred": [column(templates.PREDICTION), prediction, column(templates.PREDICTED)],
                "answer": columns,
            }
            columns = [one for name in self.order.split("_") for one in parts[name]]
        return jnp.concatenate([*columns, column(TURN_END)], axis=1)


def make_dialogue(
    world: TextWorld, *, rendering: str, mode: Mode, is_conversation: bool, order: Order = "obs_pred_answer"
) -> Dialogue:
    """The dialogue about a world. Raises ConfigError for a rendering or a mode that the world does not have."""
    for leaf, name, known in (("rendering", rendering, world.pieces), ("mode", mode, world.prompts)):
        if name not in known:
            raise ConfigError(
                f"agent.{leaf}: {world.env.task_id} has no {leaf} '{name}'", f"it has {', '.join(sorted(known))}"
            )
    return Dialogue(world, world.pieces[rendering], mode, is_conversation, order)


def make_lexicon(dialogue: Dialogue, tokenizer: Tokenizer, parser: Parser) -> Lexicon:
    """The tables of a dialogue. Raises ConfigError, with the piece, if the tokenizer lacks one."""
    return Lexicon(
        prompt=np.array(tokenizer.prompt(dialogue.world.prompts[dialogue.mode]), np.int32),
        table=rendering.make_table(dialogue.texts, tokenizer),
        grammar=make_grammar(
            dialogue.world.grammar, tokenizer.token_bytes, parser=parser, mode=dialogue.mode, order=dialogue.order
        ),
        ends=np.array(tokenizer.ends, np.int32),
        spans=make_spans(tokenizer.token_bytes),
    )


def _most_tokens(pieces: Pieces, lengths: Sequence[int]) -> int:
    """The most tokens of a state, from those of each of its pieces."""
    return pieces.longest * max(lengths) if pieces.most_tokens is None else pieces.most_tokens(lengths)


def _shifted(pieces: Array, by: int) -> Array:
    return jnp.where(pieces >= 0, pieces + by, -1)
