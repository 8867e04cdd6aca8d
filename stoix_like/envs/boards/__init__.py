"""Board games as `BoardGame`s, by name; rules of our own where they are faster, else those of pgx."""
