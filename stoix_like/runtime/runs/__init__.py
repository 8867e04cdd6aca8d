"""Run folders, checkpoints, loaded runs. Imports console, storage, hardware, loading, stages, datasets and weights."""
