"""Benchmarks: the suites of `bench.py`. Imports runtime and the floors below it."""
