"""Run folders, checkpoints and loaded runs. Imports console, storage, hardware, loading, stages and weights."""
