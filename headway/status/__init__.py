"""What is known right now, in the shapes that terminal, HTTP and page share."""
