"""Exports the policy of a run for programs without this project.
Imports console, weights, runs and results.
"""
