"""Operators that only the back end makes: graphs that are saved hold none of them."""
