"""Files written whole or not at all, their digests, the lock of a folder. Imports console."""
