"""The only room that knows the order of the stages: it schedules, compiles, caches, runs and watches."""
