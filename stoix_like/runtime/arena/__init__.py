"""Contests of runs and engines on board games: who plays, matches, ratings.
Imports console, runs, results, evaluators and storage.
"""
