"""Stages of a pipeline: work from files to files, done once its manifest is written. Imports console and storage."""
