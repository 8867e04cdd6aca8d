"""Self-play in stages on disk: selfplay, sync, export, train, evaluate, promote. Imports runtime and lower floors."""
