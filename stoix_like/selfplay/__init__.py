"""Self-play in stages on disk: selfplay, sync, export, train, evaluate, promote. Never meets bench."""
