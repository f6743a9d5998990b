"""What several tests use; what one room uses alone stands in its conftest.py."""
