"""Learning curves, comparisons and episodes as pictures.
Imports console, storage and results.
"""
