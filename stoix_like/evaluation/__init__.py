"""Episodes, levels, intervals, comparisons of few runs; `contests` has matches and ratings. Imports no other pillar."""
