"""Atomic file writes, file digests, and the lock of a folder. Imports console."""
