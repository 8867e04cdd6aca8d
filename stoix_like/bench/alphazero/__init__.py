"""The speed and the strength of AlphaZero. Imports timing and learning."""
