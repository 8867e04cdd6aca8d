"""One training run: the driver between chunks of updates, and all that it writes.
Imports console, storage, hardware, loading, runs, telemetry and evaluators.
"""
