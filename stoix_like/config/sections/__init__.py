"""The sections of leaves, and the configurations that are made of them. Imports checks."""
