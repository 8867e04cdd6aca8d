"""Measurements: what `bench.py` claims and how it is measured. Imports runtime and the floors below it."""
