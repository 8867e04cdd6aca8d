"""Reads the metrics of runs, groups runs into experiments, and compares them.
Imports loading, runs and telemetry.
"""
