"""Past to future: recorded arrivals in, quantile forecasts out."""
