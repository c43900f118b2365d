"""The web server: a supervisor that never serves, and a child that never computes."""
