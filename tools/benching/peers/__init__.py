"""What is measured in the peers' environment: a module for each library."""
