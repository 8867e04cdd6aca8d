"""Sequential Monte Carlo over any model. Imports no other pillar: it knows neither environments nor networks."""
