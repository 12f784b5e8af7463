"""What serve does by itself: scheduled jobs, and one group at work."""
