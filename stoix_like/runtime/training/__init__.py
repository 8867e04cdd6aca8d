"""One training run: the driver that acts between chunks of updates, and everything the run writes.
Imports console, storage, hardware, loading, runs, telemetry, evaluators, profiling and reports.
"""
