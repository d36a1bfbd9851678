"""The engine: the one part that knows the order of the stages. It makes plans, finds them again, and runs them."""
