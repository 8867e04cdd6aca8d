"""Contests of runs and engines on board games: who plays, matches, ratings.
Imports console, hardware, runs, evaluators and figures.
"""
