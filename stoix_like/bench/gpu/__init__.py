"""What is measured while a GPU is there, in processes under limits. Imports timing, speed and alphazero."""
