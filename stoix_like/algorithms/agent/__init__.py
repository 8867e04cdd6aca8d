"""Agents that write their moves: the loop of turns, and what learns from it."""
