"""Experience kept for learning: contiguous sequences per environment (`sequences`), and single samples (`ring`)."""

from stoix_like.replay.ring import Ring, RingState, filled, make_ring
from stoix_like.replay.sequences import Buffer, ReplayState, make_buffer, num_bytes, num_logical_shards

__all__ = [
    "Buffer",
    "ReplayState",
    "Ring",
    "RingState",
    "filled",
    "make_buffer",
    "make_ring",
    "num_bytes",
    "num_logical_shards",
]
