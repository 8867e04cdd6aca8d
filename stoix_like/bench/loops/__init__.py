"""What loops of self-play reach and cost, and how they survive. Imports timing, learning and alphazero."""
