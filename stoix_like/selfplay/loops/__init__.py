"""The loops that run unattended.
Imports files, pipeline, stages, iterations, events, watch, tuning and ratings.
"""
