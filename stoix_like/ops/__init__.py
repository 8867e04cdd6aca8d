"""Arithmetic on arrays: returns, losses, distributions, pytrees. Imports the shared words alone."""
