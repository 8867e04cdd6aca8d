"""What can be configured: sections of leaves, their checks, their values. Imports the standard library alone, so that
`--help` answers before JAX is loaded.
"""
