"""Reads the metrics of runs, groups runs into experiments, and compares them.
Imports console, runs and telemetry.
"""
