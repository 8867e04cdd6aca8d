"""What presets learn: runs that are trained once, and their scores on frozen levels. Imports timing."""
