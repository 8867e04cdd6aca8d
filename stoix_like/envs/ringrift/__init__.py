"""RingRift on square8 and hex8, for two to four players: the rules on sets of cells that are words of bits."""
