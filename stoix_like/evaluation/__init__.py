"""Episodes, frozen level sets, intervals, comparisons of few runs. Imports no other pillar."""
