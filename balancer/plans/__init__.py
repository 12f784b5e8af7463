"""Where plans, decisions and what was learned are kept."""
