"""Future to action: forecasts in, plans and movements out."""
