"""Loops over the stages of self-play: events, breakers, status, and the two loops that run unattended."""
