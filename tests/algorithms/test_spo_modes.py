"""What the modes of the temperature promise over many updates, on the walk: targets as far off as their budget says."""

import jax
import numpy as np
import pytest
from support.configs import SOLVED
from support.walks import played

NUM_UPDATES, WARM_UP = 60, 20
HELD = [  # what is constrained, its share of epsilon at least and at most, and how
    ("kl_nonparametric", 0.3, 1.5, {"temperature_mode": "dual", "dual_lr": 0.05}),
    ("kl_root", 0.8, 1.25, SOLVED | {"resampling_period": 2, "epsilon": 0.2}),
]


@pytest.mark.full  # a single update meets its budget in tests/algorithms/test_spo_learning.py
@pytest.mark.parametrize(("constrained", "least", "most", "leaves"), HELD, ids=["dual", "solve"])
def test_the_kl_of_the_search_target_stays_near_epsilon(constrained, least, most, leaves):
    """In every update after the first ones, from a temperature several times too low. It is measured before a step
    adapts to its own minibatch: solved for, it is off as far as minibatches differ, and learned, it follows later. Over
    six seeds the share is 0.62 to 1.40 if learned, and 0.92 to 1.15 if solved."""
    learner = played(**leaves | {"init_temperature": 0.1}).learner
    run = jax.jit(lambda key: jax.lax.scan(lambda s, _: learner.update(s), learner.init(key), None, NUM_UPDATES))
    state, metrics = run(jax.random.key(0))
    share = np.asarray(metrics[f"trainer/{constrained}"])[WARM_UP:] / state.hyper.epsilon
    assert share.min() > least
    assert share.max() < most
