"""Players of board games against each other: openings, matches, ratings, and who is promoted. Imports `evaluation`."""
