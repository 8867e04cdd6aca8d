"""What learns from the tokens of agents: PPO over tokens, and supervised learning of what was written."""
