"""Environments by task id, auto-reset, level pools: the door to jumanji. Imports no other pillar."""
