"""Text for agents: tokenizers, rendering of states, the grammar of answers, templates of turns, sampling of tokens."""
