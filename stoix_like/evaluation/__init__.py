"""Episodes, level sets, openings, matches, ratings, intervals, comparisons of few runs. Imports no other pillar."""
