"""Hyperparameter sweeps: Optuna samples the trials, and each trial is an ordinary run.
Imports console, storage, hardware, loading, runs, telemetry, evaluators, training, results and figures.
"""
