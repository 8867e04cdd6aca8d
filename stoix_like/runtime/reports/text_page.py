"""Episodes of a language agent: lines for a terminal, and one HTML file with each token in the colour of its worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stoix_like.runtime.console.text import plural
from stoix_like.runtime.reports.html import Markup, facts, joined, page, tag

if TYPE_CHECKING:
    from stoix_like.runtime.evaluators.text_episodes import TextEpisode, TextToken, TextTurn

_LEGEND = (
    "What the world wrote is grey, and nothing is learned from it. What the agent wrote has a colour: blue where the"
    " token turned out better than its value promised, orange where worse. Point at a token to see its numbers."
)


def lines(episodes: Sequence[TextEpisode]) -> list[str]:
    """The episodes as text, and a last line that sums them up."""
    shown = []
    for number, episode in enumerate(episodes, 1):
        shown.append(f"── episode {number} of {len(episodes)} · level {episode.level} " + "─" * 20)
        for turn in episode.turns:
            shown += [turn.text(chosen=False), *_indented(turn.text(chosen=True)), f"  → {outcome(turn)}", ""]
        shown += [ending(episode), ""]
    return [*shown, summary(episodes)]


def _indented(text: str) -> list[str]:
    return [f"  │ {line}" for line in text.splitlines()]


def outcome(turn: TextTurn) -> str:
    """`1 action, reward 0, well-formed`."""
    number = "1 action" if turn.num_actions == 1 else f"{turn.num_actions} actions"
    form = "well-formed" if turn.is_well_formed else f"malformed, penalty {turn.penalty:g}"
    return f"{number}, reward {turn.reward:g}, {form}"


def ending(episode: TextEpisode) -> str:
    """`solved in 4 turns, return 1`."""
    turns = episode.turns
    how = "ended" if episode.succeeded is None else "solved" if episode.succeeded else "not solved"
    return f"{how} in {len(turns)} {plural('turn', len(turns))}, return {episode.episode_return:g}"


def summary(episodes: Sequence[TextEpisode]) -> str:
    """`3 of 4 episodes solved, 96 % of 21 turns well-formed`."""
    turns = [turn for episode in episodes for turn in episode.turns]
    share = sum(turn.is_well_formed for turn in turns) / max(len(turns), 1)
    solved = sum(bool(episode.succeeded) for episode in episodes)
    return f"{solved} of {len(episodes)} episodes solved, {share:.0%} of {len(turns)} turns well-formed"


def text_page(title: str, episodes: Sequence[TextEpisode]) -> str:
    """One HTML page of the episodes."""
    largest = max((abs(token.advantage) for e in episodes for t in e.turns for token in t.tokens), default=0.0)
    parts = [tag("h1", title), tag("p", summary(episodes), class_="quiet"), tag("p", _LEGEND)]
    for number, episode in enumerate(episodes, 1):
        parts.append(tag("h2", f"Episode {number}: {ending(episode)}"))
        parts += [_turn(turn, index, largest) for index, turn in enumerate(episode.turns, 1)]
    return page(title, *parts)


def _turn(turn: TextTurn, number: int, largest: float) -> Markup:
    tokens = joined([_token(token, largest) for token in turn.tokens])
    told = {"reward": f"{turn.reward:g}", "penalty": f"{turn.penalty:g}", "actions": str(turn.num_actions)}
    told["answer"] = "well-formed" if turn.is_well_formed else "malformed"
    told["tokens"] = str(sum(token.is_chosen for token in turn.tokens))
    text = tag("pre", tokens, style="white-space: pre-wrap; overflow-wrap: anywhere")
    return joined([tag("h3", f"Turn {number}"), text, facts(told.items())])


def _token(token: TextToken, largest: float) -> Markup:
    if not token.is_chosen:
        return tag("span", token.text, class_="quiet", style="font-size: inherit")
    strength = round(10 + 60 * abs(token.advantage) / largest) if largest else 10
    colour = "dodgerblue" if token.advantage >= 0 else "darkorange"
    numbers = f"log-probability {token.log_prob:.3f}, value {token.value:.3f}, advantage {token.advantage:+.3f}"
    style = f"background: color-mix(in srgb, {colour} {strength}%, transparent); outline: 1px solid var(--line)"
    return tag("span", token.text, title=numbers, style=style)
