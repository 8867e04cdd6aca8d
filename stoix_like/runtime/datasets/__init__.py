"""Data that is learned from, on disk: rows of written turns. Imports storage and stages."""
