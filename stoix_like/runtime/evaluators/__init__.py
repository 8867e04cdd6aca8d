"""Policies evaluated on level sets, with or without search.
Imports console, hardware, runs and telemetry.
"""
