"""The configuration: sections of leaves, their values and checks. Imports only the standard library, so that `--help`
does not load JAX.
"""
