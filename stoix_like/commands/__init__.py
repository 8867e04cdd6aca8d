"""The commands: parsers, what they print, and the one entry of every script. Imports every floor below."""
