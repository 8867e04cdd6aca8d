"""Torsos, heads and how they are joined and masked: the door to flax. Imports no other pillar."""
