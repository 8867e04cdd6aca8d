"""The rows of the suite `ringrift`, small."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from stoix_like.bench.speed import ringrift
from stoix_like.bench.speed.region_labels import region_labels
from stoix_like.envs.ringrift.sets import as_bools, board_words, host_cells, unpacked
from stoix_like.envs.ringrift.state import Position, make_rules
from stoix_like.envs.ringrift.territory import flooded, open_by_colour


@pytest.mark.full
def test_every_part_is_a_row_and_games_stand_beside_the_plain_rules(monkeypatch):
    sizes = {"GAMES": ("square8",), "NUM_GAMES": 64, "NUM_PLIES": 90, "PLAIN_GAMES": 2, "SEARCHED": 4, "SIMULATIONS": 2}
    for name, value in sizes.items():
        monkeypatch.setattr(ringrift, name, value)
    rows = {row.name.split("/")[1]: row for row in ringrift.ringrift_suite()}
    assert list(rows) == ["regions", "mobility", "legal_actions", "random_action", "step", "games", "search"]
    assert rows["search"].name == "ringrift/search/othello/4x2"  # the last one
    assert rows["search"].reference > 0
    assert all(row.value > 0 for row in rows.values())
    assert rows["regions"].reference > 0
    games = rows["games"]
    assert games.unit == "decisions/s"
    assert games.reference > 0
    assert "games/s; reference: the plain rules" in games.note


@pytest.mark.parametrize(("name", "num_players"), [("square8", 3), ("hex8", 2)])
def test_labels_and_floods_find_the_same_regions(name, num_players):
    """On boards whose cells have markers, territory or nothing at random."""
    rules = make_rules(name, num_players)
    board, num_cells = rules.board, rules.board.num_cells
    what = np.random.default_rng(0).integers(0, 3 * num_players, (64, num_cells))
    owners = np.arange(num_players)[:, None]
    markers, collapsed = (board_words(board, what[:, None] == owners + first) for first in (0, num_players))
    each = host_cells(board, np.eye(num_cells, dtype=bool))  # [C]

    def found(markers, collapsed):
        position = Position(unpacked(jnp.zeros_like(markers)[None]), unpacked(markers), unpacked(collapsed))
        floods = flooded(rules, each.at(slice(None), None), open_by_colour(rules, position).at(None))
        return region_labels(rules, position), as_bools(board, floods)

    labels, floods = jax.device_get(jax.jit(jax.vmap(found))(markers, collapsed))  # [N, P + 1, C], [N, C, P + 1, C]
    together = (labels[..., :, None] == labels[..., None, :]) & (labels < num_cells)[..., None]  # [N, P + 1, C, C]
    np.testing.assert_array_equal(floods, np.moveaxis(together, 1, 2))
    num_regions = [len(set(one[one < num_cells].tolist())) for one in labels.reshape(-1, num_cells)]
    assert max(num_regions) > 4
