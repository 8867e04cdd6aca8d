"""Run folders, checkpoints, runs read back. Imports console, storage, hardware, loading and weights."""
