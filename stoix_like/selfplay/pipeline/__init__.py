"""What the stages of a pipeline share: its programs, its players, its evidence. Imports files."""
