"""From YAML and flags to one checked configuration. Imports console."""
