"""Learners, made of the pillars below. They know no file and no logger."""
