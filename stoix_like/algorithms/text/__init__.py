"""What learns from the tokens of agents: PPO over tokens, and supervised learning of what they write. Imports agent."""
