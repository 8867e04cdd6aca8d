"""Searches of saved runs compared at equal numbers of model steps.
Imports console, hardware, runs, evaluators, results and figures.
"""
