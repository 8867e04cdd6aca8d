"""`events.sqlite`: what has happened, who is told, and what loops keep. Imports files and iterations."""
