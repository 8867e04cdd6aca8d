"""Searches of saved runs compared at equal numbers of model steps.
Imports console, runs, evaluators, results and figures.
"""
