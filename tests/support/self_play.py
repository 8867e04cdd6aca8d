"""The fixed part of AlphaZero's program at sizes that can be followed by hand."""

from stoix_like.algorithms.alphazero.state import AlphaZeroSettings
from stoix_like.search.gumbel import GumbelConfig

SETTINGS = AlphaZeroSettings(
    rollout_length=4,
    random_plies=0,
    temperature_plies=0,
    batch_size=4,
    most_gradient_steps=5,
    num_shards=1,
    full_search_share=1.0,
    use_symmetries=False,
    decays_rates=False,
    search=GumbelConfig(),
    quick_search=None,
)
