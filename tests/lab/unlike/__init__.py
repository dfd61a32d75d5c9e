"""Learners unlike any the laboratory ships, small enough to be killed many times a minute."""
