"""EPiDA itself, without Ray: blocks, the five stages, one round, the schedule, preparation and training."""
