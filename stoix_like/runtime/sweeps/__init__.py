"""Sweeps: trials drawn by optuna, each an ordinary run.
Imports console, storage, hardware, loading, runs, telemetry, training and figures.
"""
