"""Commands of board games: matches, ratings, and a person who plays."""
