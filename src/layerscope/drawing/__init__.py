"""What a picture shows, as data (a `Figure`), and how matplotlib draws it."""
