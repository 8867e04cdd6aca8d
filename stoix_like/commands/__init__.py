"""The commands: their parsers, their output, and the common entry of all scripts. Imports every floor below."""
