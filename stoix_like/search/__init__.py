"""Sequential Monte Carlo over any model, Gumbel and plain tree search over games. Imports no other pillar."""
