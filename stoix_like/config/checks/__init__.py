"""Values of leaves, and the checks of one leaf and of several together."""
