"""Measuring what docs/benchmarks.md claims."""
