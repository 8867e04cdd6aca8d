"""Metrics of runs read back, grouped into experiments and compared.
Imports loading, runs and telemetry.
"""
