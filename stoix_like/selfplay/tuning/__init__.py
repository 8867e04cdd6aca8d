"""What a loop changes while it runs: shares of games, and searches on a plateau.
Imports files, pipeline, stages and events.
"""
