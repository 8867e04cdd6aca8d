"""Stages of a pipeline: work whose inputs and outputs are files, done once its manifest is. Imports console, storage."""
