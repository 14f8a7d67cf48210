"""What is measured in this project's own environment."""
