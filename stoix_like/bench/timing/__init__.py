"""How anything is timed: measurements, updates one at a time, memory, ceilings."""
